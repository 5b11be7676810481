//! The engine with `automation_engine.fast_append = off`: Postgres' own insertion writes the event log and the history,
//! and captured changes, effects and indexes are the same as with `on`, after `kill -9` as well, and while sessions of
//! both kinds write at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use e2e::invariants::{ACCOUNTS, change_sql};
use e2e::{Cluster, Database, Signal, Worker};

fn without_fast_append() -> Cluster {
    Cluster::build().setting("automation_engine.fast_append", "off").start()
}

/// Every btree of the engine has every row of its table, in order, and its pages hang together.
fn expect_sound_indexes(db: &Database<'_>) {
    let checked = db.number(
        "SELECT count(bt_index_parent_check(c.oid, true))
           FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam AND a.amname = 'btree'
          WHERE c.relnamespace = 'automation_internal'::regnamespace AND c.relkind = 'i'",
    );
    assert!(checked > 20, "{checked} indexes");
}

/// A table whose changes are noted by a trigger of its own, to be compared with the events.
fn open_item(db: &Database<'_>) {
    db.execute(
        "CREATE EXTENSION amcheck;
         CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int NOT NULL, note text);
         CREATE TABLE expected (topic text, entity text, n int);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO expected VALUES (
                 'item.' || CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'UPDATE' THEN 'updated' ELSE 'deleted' END,
                 CASE TG_OP WHEN 'DELETE' THEN OLD.id ELSE NEW.id END, CASE TG_OP WHEN 'DELETE' THEN NULL ELSE NEW.n END);
             RETURN NULL;
         END $$;
         CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION note();
         SELECT automation.watch_table('item');
         INSERT INTO item (n) SELECT 0 FROM generate_series(1, 500)",
    );
}

/// One row, groups around the size from which pages are filled at once, a toasted value, a rollback, a savepoint.
fn write(session: &Database<'_>, nth: u64) -> Result<(), e2e::SqlError> {
    let id = nth % 500 + 1;
    let sql = match nth % 7 {
        0 => format!("UPDATE item SET n = n + 1 WHERE id = {id}"),
        1 => "INSERT INTO item (n) SELECT 1 FROM generate_series(1, 99)".to_owned(),
        2 => "INSERT INTO item (n) SELECT 1 FROM generate_series(1, 350)".to_owned(),
        3 => format!("UPDATE item SET n = n + 1, note = repeat(md5(n::text), 400) WHERE id = {id}"),
        4 => format!("BEGIN; UPDATE item SET n = n + 1 WHERE id <= {id}; ROLLBACK"),
        5 => format!(
            "BEGIN; UPDATE item SET n = n + 1 WHERE id = {id}; SAVEPOINT s; UPDATE item SET n = 0 WHERE id <= 120;
             ROLLBACK TO s; UPDATE item SET n = n + 1 WHERE id = {id}; COMMIT"
        ),
        _ => format!("DELETE FROM item WHERE id = {}", 500 + nth),
    };
    match session.try_execute(&sql) {
        // Sessions that change the same rows in different orders: one of them is rolled back and its changes never
        // happened.
        Err(error) if error.sqlstate == "40P01" => session.try_execute("ROLLBACK"),
        outcome => outcome,
    }
}

/// The events that are missing, and those that are there without a change.
const DIFFERENCES: &str = "
    WITH recorded AS (SELECT topic, entity_id, (next ->> 'n')::int AS n FROM automation.events WHERE kind = 'item')
    SELECT 'missing', * FROM (TABLE expected EXCEPT ALL TABLE recorded) AS missing
    UNION ALL
    SELECT 'too many', * FROM (TABLE recorded EXCEPT ALL TABLE expected) AS extra
    LIMIT 20";

fn expect_events_of_all_changes(db: &Database<'_>) {
    let differences = db.rows(DIFFERENCES);
    assert!(differences.is_empty(), "{differences:?}");
    assert!(db.number("SELECT count(*) FROM automation.events WHERE kind = 'item'") > 1000);
    assert_eq!(db.number("SELECT count(*) - count(DISTINCT id) FROM automation_internal.event"), 0);
}

#[test]
fn every_committed_change_is_one_event_after_crashes_too() {
    let cluster = without_fast_append();
    let db = cluster.database("ordinary");
    open_item(&db);
    let next = AtomicU64::new(0);
    for _ in 0..2 {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let session = cluster.connect("ordinary");
                    while write(&session, next.fetch_add(1, Ordering::Relaxed)).is_ok() {}
                });
            }
            let begun = next.load(Ordering::Relaxed);
            while next.load(Ordering::Relaxed) < begun + 40 {
                thread::sleep(Duration::from_millis(10));
            }
            cluster.crash();
        });
        cluster.start_again();
        db.disconnect();
        expect_sound_indexes(&db);
    }
    db.wait_until("all is routed", "SELECT automation.route() = 0");
    expect_events_of_all_changes(&db);
    assert_eq!(db.text("SHOW automation_engine.fast_append"), "off");
    let alone = db.number(
        "SELECT count(*) FROM automation_internal.event WHERE group_span = 0 AND op = 'u' AND xid IN (
        SELECT xid FROM automation_internal.event GROUP BY xid HAVING count(*) = 1)",
    );
    assert_eq!(alone, 0, "a statement on its own is indexed by its transaction");
}

#[test]
fn sessions_that_append_fast_and_sessions_that_do_not_write_one_log() {
    let cluster = Cluster::start();
    let db = cluster.database("mixed");
    open_item(&db);
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for way in ["on", "off", "on", "off"] {
            let (next, cluster) = (&next, &cluster);
            scope.spawn(move || {
                let session = cluster.connect("mixed");
                session.execute(&format!("SET automation_engine.fast_append = {way}"));
                while next.load(Ordering::Relaxed) < 280 {
                    write(&session, next.fetch_add(1, Ordering::Relaxed)).expect("a write");
                }
            });
        }
    });
    db.wait_until("all is routed", "SELECT automation.route() = 0");
    expect_events_of_all_changes(&db);
    expect_sound_indexes(&db);
}

#[test]
fn effects_are_those_of_the_committed_changes_when_processes_and_the_server_are_killed() {
    let cluster = without_fast_append();
    let db = cluster.database("ledger");
    db.execute("CREATE EXTENSION amcheck");
    db.open_ledger();
    db.make_changes(100);
    db.signal_worker(Worker::Executor, Signal::Kill);
    cluster.wait_until_back("ledger", || cluster.crashes() > 0);
    db.disconnect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let session = cluster.connect("ledger");
            (0..).take_while(|nth| session.try_execute(&change_sql(nth % ACCOUNTS + 1, *nth)).is_ok()).count();
        });
        db.wait_until("changes are made", "SELECT count(*) > 150 FROM made_change");
        cluster.crash();
    });
    cluster.start_again();
    db.disconnect();
    // Turned on and off while the server runs: workers and sessions follow at their next statement.
    for way in ["on", "off"] {
        cluster.reload(&[("automation_engine.fast_append", way)]);
        db.wait_until(
            "the setting counts",
            &format!("SELECT current_setting('automation_engine.fast_append') = '{way}'"),
        );
        db.make_changes(50);
    }
    db.expect_ledger_settled();
    expect_sound_indexes(&db);
}
