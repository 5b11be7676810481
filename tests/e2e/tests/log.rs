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

#[test]
fn only_a_statement_that_ends_its_transaction_does_without_the_second_index_entry() {
    let cluster = Cluster::build().setting("automation_engine.fast_append", "on").start();
    let db = cluster.database("log");
    open(&db);
    db.execute("CREATE FUNCTION touch() RETURNS void LANGUAGE sql AS 'UPDATE item SET n = n + 1 WHERE id = 1'");
    let mut client = db.client().expect("a session");
    let mut indexed = |what: &str, write: &mut dyn FnMut(&mut postgres::Client)| -> Vec<bool> {
        let before = db.number("SELECT max(id) FROM automation_internal.event");
        write(&mut client);
        let found =
            db.column(&format!("SELECT group_span > 0 FROM automation_internal.event WHERE id > {before} ORDER BY id"));
        assert!(!found.is_empty(), "{what}");
        found.into_iter().map(|value| value == "t" || value == "true").collect()
    };
    let mut text = |sql: &str| indexed(sql, &mut |client| client.batch_execute(sql).expect(sql));
    assert_eq!(text("UPDATE item SET n = n + 1 WHERE id = 1"), [false]);
    assert_eq!(text("UPDATE item SET n = n + 1 WHERE id <= 2"), [true, false], "the first of a group stands for it");
    assert_eq!(text("BEGIN; UPDATE item SET n = n + 1 WHERE id = 1; COMMIT"), [true]);
    assert_eq!(text("UPDATE item SET n = n + 1 WHERE id = 1; SELECT pg_sleep(0)"), [true]);
    assert_eq!(text("UPDATE item SET n = n + 1 WHERE id = 1 RETURNING n"), [true], "it may take long to be read");
    assert_eq!(text("SELECT touch()"), [true]);
    assert_eq!(text("DO 'BEGIN UPDATE item SET n = n + 1 WHERE id = 1; END'"), [true]);
    assert_eq!(text("SELECT automation.emit('a.b', '{}')"), [true]);
    let prepared = |client: &mut postgres::Client| {
        let sql = "UPDATE item SET n = n + $1 WHERE id = 1";
        assert_eq!(client.execute(sql, &[&1i32]).expect(sql), 1);
    };
    assert_eq!(indexed("prepared", &mut |client| prepared(client)), [false]);
    let script = cluster.socket_directory().join("pipeline.sql");
    std::fs::write(
        &script,
        "\\startpipeline\nUPDATE item SET n = n + 1 WHERE id = 1;\nUPDATE item SET n = n + 1 WHERE id = 2;\n\\endpipeline\n",
    )
    .expect("a script");
    let pipeline = |_: &mut postgres::Client| {
        let (host, file) = (cluster.socket_directory().to_str(), script.to_str());
        let (host, file) = (host.expect("a path"), file.expect("a path"));
        cluster.run("pgbench", &["-n", "-M", "extended", "-t", "1", "-h", host, "-U", "postgres", "-f", file, "log"]);
    };
    assert_eq!(indexed("pipeline", &mut |client| pipeline(client)), [true, false], "only its last statement ends it");
    db.wait_until("all is routed", "SELECT automation.route() = 0");
    expect_sound_indexes(&db);
}

#[test]
fn ids_go_on_rising_behind_a_crash_and_a_restart() {
    let cluster = Cluster::start();
    let db = cluster.database("log");
    open(&db);
    db.execute(
        "CREATE TABLE seen (id bigint);
         SELECT automation.define('see', trigger => automation.on_updated('item'),
                                  steps => ARRAY[automation.sql('INSERT INTO seen VALUES ({{ new.id }})')])",
    );
    let mut written = 0;
    let stop = || {
        cluster.stop(e2e::Shutdown::Fast);
    };
    for again in [&|| cluster.crash(), &stop] as [&dyn Fn(); 2] {
        for _ in 0..2 {
            // A single change and a group, before and behind.
            db.execute("UPDATE item SET n = n + 1 WHERE id = 1");
            db.execute("UPDATE item SET n = n + 1 WHERE id <= 300");
            written += 301;
            let last = db.number("SELECT max(id) FROM automation_internal.event");
            again();
            cluster.start_again();
            db.disconnect();
            db.execute("UPDATE item SET n = n + 1 WHERE id = 1");
            written += 1;
            assert!(db.number("SELECT max(id) FROM automation_internal.event WHERE kind = 'item'") > last);
        }
    }
    db.wait_until("each has been seen", &format!("SELECT count(*) >= {written} FROM seen"));
    assert_eq!(db.number("SELECT count(DISTINCT event_id) FROM automation.runs"), written);
    assert_eq!(db.number("SELECT count(*) FROM seen"), written);
    assert_eq!(db.number("SELECT count(*) - count(DISTINCT id) FROM automation_internal.event"), 0);
}
