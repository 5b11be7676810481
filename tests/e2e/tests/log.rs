//! The log's index, which is written to page by page when many events come at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::{Cluster, Database};

/// An index that misses a row, has one too many or is out of order makes this fail.
fn expect_sound_indexes(db: &Database<'_>) {
    let checked = db.number(
        "SELECT count(bt_index_parent_check(i.indexrelid, true))
           FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
          WHERE i.indrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'automation_internal.event'::regclass)
            AND c.relkind = 'i'",
    );
    assert!(checked >= 4, "{checked} indexes");
    let (by_scan, by_index) =
        (counted(db, "enable_indexscan = off; SET enable_indexonlyscan"), counted(db, "enable_seqscan"));
    assert_eq!(by_scan, by_index);
}

fn counted(db: &Database<'_>, off: &str) -> i64 {
    db.execute(&format!("SET enable_bitmapscan = off; SET {off} = off"));
    let found = db.number("SELECT count(*) FROM automation_internal.event WHERE id > 0");
    db.execute("RESET ALL");
    found
}

fn open(db: &Database<'_>) {
    db.execute(
        "CREATE EXTENSION amcheck;
         CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int);
         SELECT automation.watch_table('item');
         INSERT INTO item (n) SELECT 0 FROM generate_series(1, 3000)",
    );
}

/// Groups just below, at and above the size from which pages are filled at once, rolled back ones among them.
fn write(db: &Database<'_>, nth: usize) -> Result<(), e2e::SqlError> {
    let rows = [1, 99, 100, 101, 450, 1700][nth % 6];
    db.try_execute(&format!("INSERT INTO item (n) SELECT 1 FROM generate_series(1, {rows})"))?;
    db.try_execute(&format!("BEGIN; UPDATE item SET n = n + 1 WHERE id <= {rows}; ROLLBACK"))
}

#[test]
fn writers_of_many_events_at_once_leave_a_sound_index() {
    let cluster = Cluster::start();
    let db = cluster.database("log");
    open(&db);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let session = cluster.connect("log");
                while next.load(Ordering::Relaxed) < 240 {
                    write(&session, next.fetch_add(1, Ordering::Relaxed)).expect("a write");
                }
            });
        }
    });
    db.wait_until("all is routed", "SELECT automation.route() = 0");
    expect_sound_indexes(&db);
}

#[test]
fn a_crash_while_many_events_are_written_leaves_a_sound_index() {
    let cluster = Cluster::start();
    let db = cluster.database("log");
    open(&db);
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let session = cluster.connect("log");
                    (0..).take_while(|nth| write(&session, *nth).is_ok()).count();
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(400));
            cluster.crash();
        });
        cluster.start_again();
        db.disconnect();
        expect_sound_indexes(&db);
    }
}

#[test]
fn a_session_that_is_terminated_while_it_records_a_change_lets_go_of_everything() {
    let cluster = Cluster::start();
    let db = cluster.database("log");
    open(&db);
    let mut victim = db.client().expect("a session");
    victim.batch_execute("UPDATE item SET n = 1 WHERE id = 1").expect("an update");
    let pid: i32 = victim.query_one("SELECT pg_backend_pid()", &[]).expect("its pid").get(0);
    let blocker = cluster.connect("log");
    blocker.execute("BEGIN; LOCK TABLE automation_internal.event IN ACCESS EXCLUSIVE MODE");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || victim.batch_execute("UPDATE item SET n = n + 1 WHERE id = 1"));
        db.wait_until(
            "it waits for the log",
            &format!("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {pid}"),
        );
        db.execute(&format!("SELECT pg_terminate_backend({pid})"));
        assert!(waiting.join().expect("a thread").is_err());
    });
    blocker.execute("ROLLBACK");
    db.wait_until("it is gone", &format!("SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid})"));
    db.execute("BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE NOWAIT; ROLLBACK");
    assert_eq!(db.number("SELECT n FROM item WHERE id = 1"), 1);
}
