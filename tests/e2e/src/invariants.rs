//! A ledger whose effects can be counted, and the invariants that hold over it after any fault
//! (`tests/invariants.sql`).
//!
//! Every change of an account takes its next version and notes itself in `made_change`, in one transaction. Two
//! automations of two owners each leave one row in `effect` per change, and a third does so for the changes that the
//! second one makes itself. So exactly the changes that the database has as committed must have had their effects, no
//! matter which process was killed in between.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::database::{Database, SqlError};

/// Accounts are numbered from 1.
pub const ACCOUNTS: u64 = 8;

const INVARIANTS: &str = include_str!("../../invariants.sql");

const SCHEMA: &str = "
    CREATE ROLE bookkeeper LOGIN;
    CREATE ROLE auditor LOGIN;
    -- A crash may undo the last of the auditor's runs, so they are done again.
    ALTER ROLE auditor SET synchronous_commit = off;
    CREATE TABLE account (id int PRIMARY KEY, version bigint NOT NULL DEFAULT 0, change bigint NOT NULL DEFAULT 0);
    INSERT INTO account (id) SELECT generate_series(1, 8);
    CREATE TABLE mirror (LIKE account INCLUDING ALL);
    INSERT INTO mirror SELECT * FROM account;
    CREATE TABLE made_change (account int NOT NULL, version bigint NOT NULL, change bigint NOT NULL);
    CREATE TABLE effect (
        seq bigint GENERATED ALWAYS AS IDENTITY,
        automation text NOT NULL,
        account int NOT NULL,
        version bigint NOT NULL,
        change bigint NOT NULL,
        run bigint NOT NULL,
        by_role name NOT NULL DEFAULT current_user);
    CREATE VIEW expected_effect AS
        SELECT a.automation, c.account, c.version, c.change
          FROM made_change AS c CROSS JOIN (VALUES ('book'), ('audit'), ('confirm')) AS a (automation);
    GRANT SELECT ON account, mirror TO bookkeeper, auditor;
    GRANT UPDATE ON mirror TO auditor;
    GRANT INSERT ON effect TO bookkeeper, auditor;
    SELECT automation.watch_table('account');
    SELECT automation.watch_table('mirror');
    SELECT automation.define('book', run_as => 'bookkeeper',
        trigger => automation.on_updated('account'),
        steps   => ARRAY[
            automation.sql($$ SELECT pg_advisory_xact_lock_shared(8) $$),
            automation.sql($$ INSERT INTO effect (automation, account, version, change, run)
                              VALUES ('book', {{ new.id }}, {{ new.version }}, {{ new.change }}, {{ run.id }}) $$) ]);
    SELECT automation.define('audit', run_as => 'auditor',
        trigger => automation.on_updated('account'),
        steps   => ARRAY[
            automation.sql($$ INSERT INTO effect (automation, account, version, change, run)
                              VALUES ('audit', {{ new.id }}, {{ new.version }}, {{ new.change }}, {{ run.id }}) $$),
            automation.sql($$ UPDATE mirror SET version = {{ new.version }}, change = {{ new.change }}
                               WHERE id = {{ new.id }} $$) ]);
    SELECT automation.define('confirm', run_as => 'bookkeeper',
        trigger => automation.on_updated('mirror'),
        steps   => ARRAY[
            automation.sql($$ INSERT INTO effect (automation, account, version, change, run)
                              VALUES ('confirm', {{ new.id }}, {{ new.version }}, {{ new.change }}, {{ run.id }}) $$) ])";

/// Every event is routed and every dispatch is run.
const DRAINED: &str = "
    SELECT NOT EXISTS (SELECT FROM automation_internal.dispatch)
       AND NOT EXISTS (SELECT FROM automation_internal.event AS e CROSS JOIN automation_internal.router_cursor AS c
                        WHERE NOT pg_visible_in_snapshot(e.xid, c.from_snapshot)
                          AND NOT COALESCE(pg_visible_in_snapshot(e.xid, c.to_snapshot) AND e.id <= c.position, false))";

/// Runs that a person would look at first when an effect is missing.
const UNUSUAL: &str = "
    SELECT id, automation, entity, event_id, status, ended_reason, attempt, error
      FROM automation.runs WHERE status <> 'completed' LIMIT 10";

/// SQL that gives an account its next version. `change` is a number by which a test knows its change again.
pub fn change_sql(account: u64, change: u64) -> String {
    format!(
        "WITH changed AS (
             UPDATE account SET version = version + 1, change = {change} WHERE id = {account}
             RETURNING id, version, change)
         INSERT INTO made_change (account, version, change) SELECT id, version, change FROM changed"
    )
}

impl Database<'_> {
    /// Creates the ledger and its automations.
    #[track_caller]
    pub fn open_ledger(&self) {
        self.execute(SCHEMA);
    }

    /// Commits `count` changes, over all accounts, in one transaction.
    #[track_caller]
    pub fn make_changes(&self, count: u64) {
        if let Err(error) = self.try_make_changes(count) {
            panic!("{error}\n{}", self.cluster().log_tail());
        }
    }

    /// The same where the server may be on its way down.
    pub fn try_make_changes(&self, count: u64) -> Result<(), SqlError> {
        let mut sql = String::from("BEGIN;");
        for number in 0..count {
            let change = change_sql(number % ACCOUNTS + 1, number);
            let _ = write!(sql, "{change};");
        }
        sql.push_str("COMMIT");
        self.try_execute(&sql)
    }

    /// Lets no run of `book` get to its end, not even after a crash, until [`Self::open_gate`].
    #[track_caller]
    pub fn close_gate(&self) {
        // A prepared transaction keeps its locks through a crash.
        self.execute("BEGIN");
        self.execute("SELECT pg_advisory_xact_lock(8)");
        self.execute("PREPARE TRANSACTION 'gate'");
    }

    #[track_caller]
    pub fn open_gate(&self) {
        self.execute("COMMIT PREPARED 'gate'");
    }

    /// Waits until an executor stands before the closed gate, in the middle of a run; returns its process.
    #[track_caller]
    pub fn wait_until_a_run_is_held(&self) -> i32 {
        const HELD: &str = "FROM pg_stat_activity
             WHERE backend_type = 'automation_engine executor' AND wait_event_type = 'Lock' AND wait_event = 'advisory'";
        self.wait_until("a run is held in the middle", &format!("SELECT EXISTS (SELECT {HELD})"));
        self.number(&format!("SELECT pid {HELD} LIMIT 1")) as i32
    }

    /// Waits until nothing is left to route or to run; returns how long that took.
    #[track_caller]
    pub fn wait_until_drained(&self, patience: Duration) -> Duration {
        self.wait_at_most(patience, "every change is routed and run", DRAINED)
    }

    /// The invariants that do not hold, each by its name and the rows that say so.
    #[track_caller]
    pub fn broken_invariants(&self) -> Vec<String> {
        let answers = invariants().map(|(name, query)| (name, self.rows(query)));
        let broken = answers.filter(|(_, rows)| !rows.is_empty());
        broken.map(|(name, rows)| format!("I{name}: {} rows\n{}", rows.len(), listed(&rows))).collect()
    }

    /// Fails with every invariant that does not hold.
    #[track_caller]
    pub fn expect_invariants(&self) {
        let broken = self.broken_invariants();
        if !broken.is_empty() {
            let unusual = listed(&self.rows(UNUSUAL));
            panic!("broken: {}unusual runs:\n{unusual}{}", broken.join("broken: "), self.cluster().log_tail());
        }
    }

    /// Waits until everything is done, and expects all invariants to hold.
    #[track_caller]
    pub fn expect_ledger_settled(&self) {
        self.wait_until_drained(Duration::from_secs(60));
        self.expect_invariants();
    }
}

impl Cluster {
    /// Waits until the server has noticed a death and accepts connections again; returns that moment.
    /// `down` says whether the old server is gone.
    #[track_caller]
    pub fn wait_until_back(&self, database: &str, down: impl Fn() -> bool) -> Instant {
        let began = Instant::now();
        loop {
            if down() && self.connect(database).try_rows("SELECT true").is_ok() {
                return Instant::now();
            }
            assert!(began.elapsed() < Duration::from_secs(30), "the server does not come back\n{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// How often this server has crashed and restarted by itself.
    pub fn crashes(&self) -> usize {
        self.log().matches("terminating any other active server processes").count()
    }
}

fn listed(rows: &[Vec<Option<String>>]) -> String {
    let mut text = String::new();
    for row in rows.iter().take(10) {
        let values: Vec<&str> = row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
        let _ = writeln!(text, "    {}", values.join(" | "));
    }
    text
}

/// The queries of the file, each with the comment above it as its name.
fn invariants() -> impl Iterator<Item = (&'static str, &'static str)> {
    INVARIANTS.split("\n-- I").skip(1).map(|part| {
        let (name, query) = part.split_once('\n').expect("a query under its name");
        (name, query.trim())
    })
}
