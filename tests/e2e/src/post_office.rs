//! Automations that send messages: each row of `letter` starts the automation named in it, which sends one.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::cluster::{Cluster, ClusterBuilder};
use crate::database::Database;
use crate::receiver::Receiver;

const SCHEMA: &str = "
    DO $$ BEGIN CREATE ROLE poster LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
    CREATE TABLE letter (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL);
    GRANT SELECT ON letter TO poster;
    SELECT automation.watch_table('letter')";

impl Cluster {
    /// A server whose messages may go without TLS.
    pub fn plain() -> ClusterBuilder {
        Cluster::build().setting("automation_engine.http_allow_plain", "on")
    }

    /// Gives the server a key to seal secrets with.
    pub fn give_key(&self) {
        let file = self.socket_directory().join("secret.key");
        fs::write(&file, [7; 32]).expect("a file of ours");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a file of ours");
        let server = fs::metadata(self.data()).expect("the data directory");
        chown(&file, Some(server.uid()), Some(server.gid())).expect("a file of ours");
        self.reload(&[("automation_engine.secret_key_file", file.to_str().expect("a path in UTF-8"))]);
    }
}

impl Database<'_> {
    #[track_caller]
    pub fn open_post_office(&self) {
        self.execute(SCHEMA);
    }

    /// Lets messages of `poster` go to a receiver.
    #[track_caller]
    pub fn allow(&self, receiver: &Receiver) {
        self.execute(&format!(
            "SELECT automation.allow_egress('poster', '127.0.0.1', port => {}, cidr => '127.0.0.0/8')",
            receiver.port
        ));
    }

    /// Letters of this kind are sent by a step with these arguments.
    #[track_caller]
    pub fn send_letters(&self, kind: &str, webhook: &str) {
        self.execute(&format!(
            "SELECT automation.define('{kind}', run_as => 'poster',
                 trigger => automation.on_created('letter', filter => 'new.kind == \"{kind}\"'),
                 steps => ARRAY[automation.webhook({webhook})])"
        ));
    }

    #[track_caller]
    pub fn write_letters(&self, kind: &str, count: usize) {
        self.execute(&format!("INSERT INTO letter (kind) SELECT '{kind}' FROM generate_series(1, {count})"));
    }

    /// Waits until so many messages of the kind have come to this state.
    #[track_caller]
    pub fn wait_for_state(&self, kind: &str, state: &str, count: usize) {
        self.wait_until(
            &format!("{count} {kind} {state}"),
            &format!(
                "SELECT count(*) = {count} FROM automation.deliveries WHERE automation = '{kind}' AND state = '{state}'"
            ),
        );
    }
}
