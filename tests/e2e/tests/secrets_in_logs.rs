//! The value of a secret gets into the server's log by none of the errors of the functions that take one.

use std::os::unix::fs::{PermissionsExt, chown};
use std::{fs, os::unix::fs::MetadataExt};

use e2e::{Cluster, Database};

/// The secret that no line of the log may hold.
const CANARY: &str = "canary-4711-canary";

fn opened(cluster: &Cluster) -> Database<'_> {
    let db = cluster.database("letters");
    db.execute(
        "CREATE ROLE clerk LOGIN; SELECT automation.grant_usage('clerk', 'author');
         CREATE ROLE stranger",
    );
    db
}

/// A file that the server can read.
fn file(cluster: &Cluster, name: &str, content: &str) -> String {
    let file = cluster.socket_directory().join(name);
    fs::write(&file, content).expect("a file of ours");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a file of ours");
    let server = fs::metadata(cluster.data()).expect("the data directory");
    chown(&file, Some(server.uid()), Some(server.gid())).expect("a file of ours");
    file.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn a_failing_set_secret_leaves_no_value_in_the_log() {
    let cluster = Cluster::start();
    let db = opened(&cluster);
    let clerk = db.as_role("clerk");
    let long = format!("{CANARY}{}", "x".repeat(5000));
    let calls = [
        (format!("' name', '{CANARY}'"), "22023"),
        (format!("NULL, '{CANARY}'"), "22004"),
        (format!("'name', E'{CANARY}\\n'"), "22023"),
        (format!("'name', '{long}'"), "22023"),
        (format!("'name', 'whsec_{CANARY}'"), "22023"),
        (format!("'name', '{CANARY}', host => 'no host'"), "22023"),
        (format!("'name', '{CANARY}', owner => 'stranger'"), "42501"),
        (format!("'name', '{CANARY}', owner => 'nobody'"), "42704"),
        // there is no key yet
        (format!("'name', '{CANARY}'"), "55000"),
    ];
    for (arguments, sqlstate) in &calls {
        let call = format!("SELECT automation.set_secret({arguments})");
        assert_eq!(clerk.error(&call).sqlstate, *sqlstate, "{call}");
        // Inside a function, where the context quotes the statement.
        let block = format!("DO $do$ BEGIN PERFORM automation.set_secret({arguments}); END $do$");
        assert_eq!(clerk.error(&block).sqlstate, *sqlstate, "{block}");
    }
    // Bound to a parameter, which the server shows in the context if it is told to.
    clerk.execute("SET log_parameter_max_length_on_error = -1");
    let bound = format!("PREPARE keep (text) AS SELECT automation.set_secret('name', $1); EXECUTE keep ('{CANARY}')");
    assert_eq!(clerk.error(&bound).sqlstate, "55000");
    let log = cluster.log();
    assert!(log.contains("there is no key to seal secrets with"), "the errors are logged");
    assert!(!log.contains(CANARY), "{}", cluster.log_tail());
    // The next statement of the same session is logged as ever.
    assert_eq!(clerk.error("SELECT automation.pause('unknown statement')::text || 1/0").sqlstate, "22012");
    assert!(cluster.log().contains("unknown statement"), "{}", cluster.log_tail());
    // So is an error after one that went well.
    cluster.give_key();
    clerk.wait_until(
        "the key is known",
        &format!("SELECT automation.set_secret('name', '{CANARY}') IS NOT NULL OR true"),
    );
    assert_eq!(clerk.error("SELECT 1/0 AS after_success").sqlstate, "22012");
    assert!(cluster.log().contains("after_success"), "{}", cluster.log_tail());
}

#[test]
fn a_secret_can_be_read_from_a_file_by_those_who_may_read_files() {
    let cluster = Cluster::start();
    cluster.give_key();
    let db = opened(&cluster);
    let clerk = db.as_role("clerk");
    let path = file(&cluster, "token", &format!("{CANARY}\n"));
    let keep =
        |path: &str| format!("SELECT automation.set_secret_from_file('token', '{path}', host => 'api.example.com')");
    assert_eq!(clerk.error(&keep(&path)).sqlstate, "42501");
    db.execute("GRANT pg_read_server_files TO clerk");
    clerk.execute(&keep(&path));
    assert_eq!(clerk.text("SELECT name || ' ' || host FROM automation.secrets"), "token api.example.com");
    let long = file(&cluster, "long", &"x".repeat(10_000));
    let binary = cluster.socket_directory().join("binary");
    fs::write(&binary, [0xff, 0xfe, 0x00]).expect("a file of ours");
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o644)).expect("a file of ours");
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    let two_lines = file(&cluster, "two_lines", &format!("{CANARY}\n{CANARY}\n"));
    let cases = [
        ("/nowhere/to/be/found", "58P01"),
        ("/dev/zero", "58P01"),
        (".", "58P01"),
        ("", "22023"),
        (&long, "22023"),
        (&binary, "58P01"),
        (&two_lines, "22023"),
    ];
    for (path, sqlstate) in cases {
        assert_eq!(clerk.error(&keep(path)).sqlstate, sqlstate, "{path}");
    }
    assert_eq!(clerk.error("SELECT automation.set_secret_from_file('token', NULL)").sqlstate, "22004");
    // Not even where every statement is logged.
    cluster.reload(&[("log_statement", "all")]);
    clerk.execute(&keep(&path));
    assert!(!cluster.log().contains(CANARY), "{}", cluster.log_tail());
}
