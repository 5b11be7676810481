//! `kill -9` of everything there is, at every named point of the engine: afterwards the effects are those of the
//! committed changes, each once, and work has gone on without waiting for a sweep.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use e2e::bulk::POINTS as BULK;
use e2e::invariants::change_sql;
use e2e::patience::POINTS as WAITING;
use e2e::{AT_ONCE, Cluster, Database, Shutdown, Signal, Worker, is_alive, kill};

/// Points that any change passes.
const ORDINARY: &[&str] = &[
    "route_taken",
    "route_read",
    "route_written",
    "route_advanced",
    "claimed",
    "ran",
    "written",
    "before_commit",
    "after_commit",
];

/// Points that only the careful work after a crash passes.
const CAREFUL: &[&str] = &["attempt_picked", "attempt_counted"];

fn poll() {
    thread::sleep(Duration::from_millis(5));
}

fn open_ledger(cluster: &Cluster) -> Database<'_> {
    let db = cluster.database("ledger");
    db.open_ledger();
    db.make_changes(10);
    db.expect_ledger_settled();
    db
}

/// Expects new and old work to be done soon after `back`, the moment the server accepted connections.
#[track_caller]
fn expect_resumed(db: &Database<'_>, what: &str, back: Instant) {
    db.make_changes(3);
    db.wait_until_drained(Duration::from_secs(30));
    let took = back.elapsed();
    println!("{what}: all done {} ms after the server was back", took.as_millis());
    db.expect_invariants();
    assert!(took <= AT_ONCE, "{what}: it took {took:?} until work had resumed\n{}", db.cluster().log_tail());
}

/// Waits until the whole server has crashed once more and is back; returns the moment it was.
#[track_caller]
fn wait_for_restart(db: &Database<'_>, crashes: usize) -> Instant {
    db.cluster().wait_until_back(db.name(), || db.cluster().crashes() > crashes)
}

/// Lets a worker run into its death at `point`. Only the workers that are there learn of the point: those of the
/// restarted server are started by the postmaster, which knows nothing of it.
#[track_caller]
fn die_at(db: &Database<'_>, point: &str) -> Instant {
    let cluster = db.cluster();
    let crashes = cluster.crashes();
    cluster.set(&[("automation_engine.failpoint", &format!("{point}=kill"))]);
    for worker in [Worker::Conductor, Worker::Executor] {
        db.worker_pids(worker).into_iter().for_each(|pid| kill(pid, Signal::Hup));
    }
    // Again and again, because a worker may learn of the point only after it has done this piece.
    let began = Instant::now();
    while cluster.crashes() == crashes {
        let _ = db.try_make_changes(3);
        poll();
        assert!(began.elapsed() < Duration::from_secs(30), "nothing passes {point}\n{}", cluster.log_tail());
    }
    cluster.set(&[("automation_engine.failpoint", "")]);
    wait_for_restart(db, crashes)
}

#[test]
fn a_kill_at_any_point_loses_and_doubles_nothing() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    for point in ORDINARY {
        for _ in 0..3 {
            let back = die_at(&db, point);
            // R000-32, R000-34: no lease has to run out; work that the dead process had claimed is done by another
            // process, once.
            expect_resumed(&db, point, back);
        }
    }
}

#[test]
fn a_kill_in_the_careful_work_after_a_crash_loses_and_doubles_nothing() {
    // Stays down after a crash, so that each start can be given its point.
    let cluster = Cluster::build().setting("restart_after_crash", "off").start();
    let db = open_ledger(&cluster);
    for point in CAREFUL {
        for _ in 0..3 {
            db.close_gate();
            db.make_changes(10);
            db.wait_until_a_run_is_held();
            // Routing does not wait for the disk: without this the crash might undo it, and the run would be a new one.
            db.execute("CHECKPOINT");
            // Any death but the executor's own: the held run is not to blame.
            kill(db.worker_pid(Worker::Conductor), Signal::Kill);
            wait_until_down(&cluster);
            // Up first, and only then into the point: a server that dies while it starts is no start.
            cluster.set(&[("automation_engine.enabled", "off")]);
            cluster.start_again();
            let strike = format!("{point}=kill");
            cluster.reload(&[("automation_engine.failpoint", &strike), ("automation_engine.enabled", "on")]);
            wait_until_down(&cluster);
            cluster.set(&[("automation_engine.failpoint", "")]);
            cluster.start_again();
            let back = Instant::now();
            db.open_gate();
            expect_resumed(&db, point, back);
        }
    }
}

#[test]
fn whoever_chooses_after_a_crash_leaves_the_rest_to_others() {
    let cluster = Cluster::build().setting("automation_engine.executors", "4").start();
    let db = open_ledger(&cluster);
    db.execute("SELECT automation.pause('audit')");
    cluster.reload(&[("automation_engine.enabled", "off")]);
    db.wait_until(
        "the workers rest",
        "SELECT NOT EXISTS (SELECT FROM automation.stat_workers WHERE worker = 'executor')",
    );
    db.make_changes(20);
    db.execute("SELECT automation.route(1000)");
    cluster.crash();
    let stay = ("automation_engine.failpoint", "attempt_picked=sleep:600000");
    cluster.set(&[("automation_engine.enabled", "on"), stay]);
    cluster.start_again();
    db.wait_until(
        "each of four executors has chosen one of the twenty, and holds no other",
        "WITH free AS MATERIALIZED (SELECT id FROM automation_internal.dispatch FOR UPDATE SKIP LOCKED)
         SELECT count(*) - (SELECT count(*) FROM free) = 4 FROM automation_internal.dispatch",
    );
    cluster.stop(Shutdown::Immediate);
    cluster.set(&[("automation_engine.failpoint", "")]);
    cluster.start_again();
    db.execute("SELECT automation.resume('audit')");
    db.wait_until_drained(Duration::from_secs(30));
    assert_eq!(db.number("SELECT count(*) FROM effect WHERE automation = 'book'"), 30);
}

#[track_caller]
fn wait_until_down(cluster: &Cluster) {
    let began = Instant::now();
    while fs::exists(cluster.data().join("postmaster.pid")).expect("a directory of ours") {
        poll();
        assert!(began.elapsed() < Duration::from_secs(30), "the server stays up\n{}", cluster.log_tail());
    }
}

#[test]
fn every_point_of_the_source_is_struck_here_or_while_runs_wait_or_in_bulk() {
    /// In holds.rs, schedules.rs and webhook_faults.rs.
    const ELSEWHERE: &[&str] =
        &["held", "hold_over", "tick", "ticks_taken", "delivery_claimed", "delivery_answered", "delivery_recorded"];
    fn names(directory: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).expect("the sources").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                names(&entry, found);
            } else {
                let text = fs::read_to_string(&entry).expect("a source");
                let calls = text.split("failpoint(\"").skip(1);
                found.extend(calls.filter_map(|call| Some(call.split_once('"')?.0.to_owned())));
            }
        }
    }

    let mut found = BTreeSet::new();
    names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src"), &mut found);
    let listed: BTreeSet<String> = ORDINARY
        .iter()
        .chain(CAREFUL)
        .chain(WAITING)
        .chain(BULK)
        .chain(ELSEWHERE)
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(found, listed);
}

#[test]
fn a_kill_of_any_process_loses_and_doubles_nothing() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    for victim in [
        "automation_engine executor",
        "automation_engine conductor",
        "automation_engine launcher",
        "checkpointer",
        "walwriter",
        "background writer",
    ] {
        for _ in 0..3 {
            db.close_gate();
            db.make_changes(20);
            let held = db.wait_until_a_run_is_held();
            let pid = match victim {
                "automation_engine executor" => held,
                _ => db.number(&format!("SELECT pid FROM pg_stat_activity WHERE backend_type = '{victim}'")) as i32,
            };
            let crashes = cluster.crashes();
            kill(pid, Signal::Kill);
            let back = wait_for_restart(&db, crashes);
            db.open_gate();
            expect_resumed(&db, victim, back);
        }
    }
}

#[test]
fn a_writer_killed_in_its_transaction_leaves_no_event() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    for change in [1001, 1002, 1003] {
        let events = db.number("SELECT count(*) FROM automation_internal.event");
        let writer = db.another_session();
        writer.execute("BEGIN");
        writer.execute(&change_sql(1, change));
        let pid = writer.number("SELECT pg_backend_pid()") as i32;
        let crashes = cluster.crashes();
        kill(pid, Signal::Kill);
        let back = wait_for_restart(&db, crashes);
        assert_eq!(db.number(&format!("SELECT count(*) FROM made_change WHERE change = {change}")), 0);
        assert_eq!(db.number("SELECT count(*) FROM automation_internal.event"), events);
        expect_resumed(&db, "writer", back);
    }
}

#[test]
fn a_prepared_change_is_carried_through_a_crash() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    for (change, verdict) in [(1001, "COMMIT"), (1002, "ROLLBACK"), (1003, "COMMIT")] {
        db.execute("BEGIN");
        db.execute(&change_sql(1, change));
        db.execute("PREPARE TRANSACTION 'change'");
        // Later ones are routed before it, then the cursor itself goes through a crash.
        for _ in 0..5 {
            db.execute(&change_sql(2, change));
        }
        db.wait_until_drained(Duration::from_secs(30));
        let crashes = cluster.crashes();
        kill(db.worker_pid(Worker::Conductor), Signal::Kill);
        wait_for_restart(&db, crashes);
        db.execute(&change_sql(2, change));
        db.wait_until_drained(Duration::from_secs(30));
        db.execute(&format!("{verdict} PREPARED 'change'"));
        expect_resumed(&db, "a prepared change", Instant::now());
        let made = format!("SELECT count(*) FROM made_change WHERE change = {change} AND account = 1");
        assert_eq!(db.number(&made), i64::from(verdict == "COMMIT"));
    }
}

#[test]
fn a_run_started_by_hand_outlives_a_crash() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    db.execute(
        "CREATE TABLE greeting (run bigint NOT NULL);
         GRANT INSERT ON greeting TO bookkeeper;
         SELECT automation.define('greet', run_as => 'bookkeeper', trigger => automation.on_call(),
             steps => ARRAY[automation.sql($$ INSERT INTO greeting VALUES ({{ run.id }}) $$)])",
    );
    let mut started = Vec::new();
    for victim in [Worker::Conductor, Worker::Executor, Worker::Launcher] {
        let crashes = cluster.crashes();
        started.extend(db.column("SELECT automation.start_run('greet') FROM generate_series(1, 20)"));
        kill(db.worker_pid(victim), Signal::Kill);
        let back = wait_for_restart(&db, crashes);
        expect_resumed(&db, "runs started by hand", back);
        let greeted = db.column("SELECT run FROM greeting ORDER BY run");
        assert_eq!(greeted, started);
    }
}

#[test]
fn a_server_killed_or_stopped_at_once_goes_on_when_it_is_started() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    for _ in 0..3 {
        for what in ["kill -9 of the postmaster", "immediate stop"] {
            db.close_gate();
            db.make_changes(20);
            let held = db.wait_until_a_run_is_held();
            if what == "immediate stop" {
                cluster.stop(Shutdown::Immediate);
            } else {
                cluster.crash();
            }
            assert!(!is_alive(held));
            cluster.start_again();
            let back = Instant::now();
            db.open_gate();
            expect_resumed(&db, what, back);
        }
    }
}

#[test]
fn a_run_is_not_blamed_for_crashes_of_others() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    db.close_gate();
    db.make_changes(20);
    db.wait_until_a_run_is_held();
    // Routing does not wait for the disk: without this the crash might undo it, and the run would be a new one.
    db.execute("CHECKPOINT");
    for victim in ["checkpointer", "walwriter", "automation_engine conductor", "checkpointer"] {
        db.wait_until_a_run_is_held();
        let crashes = cluster.crashes();
        kill(
            db.number(&format!("SELECT pid FROM pg_stat_activity WHERE backend_type = '{victim}'")) as i32,
            Signal::Kill,
        );
        wait_for_restart(&db, crashes);
    }
    db.wait_until_a_run_is_held();
    db.open_gate();
    db.expect_ledger_settled();
    assert_eq!(db.number("SELECT count(*) FROM automation_internal.dead_letter"), 0);
}

#[test]
fn a_slow_run_holds_up_nobody_else_after_a_crash() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    db.close_gate();
    db.execute(&change_sql(1, 1001));
    db.wait_until_a_run_is_held();
    // Routing does not wait for the disk: without this the crash might undo it, and the run would be a new one.
    db.execute("CHECKPOINT");
    let crashes = cluster.crashes();
    kill(db.worker_pid(Worker::Conductor), Signal::Kill);
    let back = wait_for_restart(&db, crashes);
    db.wait_until_a_run_is_held();
    // Of another owner, and of the same one.
    db.execute(&change_sql(2, 1002));
    db.wait_until(
        "others have gone on",
        "SELECT count(*) = 2 FROM effect WHERE change = 1002 AND automation IN ('audit', 'confirm')",
    );
    let took = back.elapsed();
    assert!(took <= AT_ONCE, "it took {took:?} until others had resumed\n{}", cluster.log_tail());
    db.open_gate();
    db.expect_ledger_settled();
}

#[test]
fn a_long_queue_at_a_crash_is_worked_off_by_everyone() {
    // Time for others to look at a run between the counting of its attempt and the attempt.
    let settings = Cluster::build().setting("automation_engine.executors", "8");
    let cluster = settings.setting("automation_engine.failpoint", "attempt_counted=sleep:10").start();
    let db = open_ledger(&cluster);
    db.close_gate();
    db.make_changes(1000);
    db.wait_until_a_run_is_held();
    db.wait_until("all is queued", "SELECT count(*) >= 1000 FROM automation_internal.dispatch");
    // Routing does not wait for the disk: without this the crash might undo it, and the runs would be new ones.
    db.execute("CHECKPOINT");
    let crashes = cluster.crashes();
    kill(db.worker_pid(Worker::Conductor), Signal::Kill);
    wait_for_restart(&db, crashes);
    db.make_changes(10);
    db.open_gate();
    // Far less than it takes until an executor leaves because it has nothing to do.
    let took = db.wait_until_drained(Duration::from_secs(30));
    println!("over 1000 runs took {took:?}");
    db.expect_invariants();
    let most = db.number("SELECT max(attempt) FROM automation_internal.run_history");
    assert!(most <= 1, "one crash was counted {most} times against a run");
}

#[test]
fn a_step_that_takes_the_server_down_is_given_up_and_the_rest_goes_on() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    // The owner of the bomb has honest automations as well, and they wait in the same queue.
    db.execute(
        "GRANT pg_execute_server_program TO bookkeeper;
         CREATE TABLE bomb (id int PRIMARY KEY);
         CREATE TABLE ash (line text);
         GRANT SELECT ON bomb TO bookkeeper;
         GRANT INSERT ON ash TO bookkeeper;
         SELECT automation.watch_table('bomb');
         SELECT automation.define('explode', run_as => 'bookkeeper',
             trigger => automation.on_created('bomb'),
             steps   => ARRAY[automation.sql($$ COPY ash FROM PROGRAM 'kill -9 $PPID' $$)])",
    );
    for bomb in 1..=3 {
        let crashes = cluster.crashes();
        db.close_gate();
        db.make_changes(20);
        db.execute(&format!("INSERT INTO bomb VALUES ({bomb})"));
        db.make_changes(20);
        db.open_gate();
        db.wait_until(
            "the run is given up",
            &format!(
                "SELECT EXISTS (SELECT FROM automation.runs
                   WHERE automation = 'explode' AND entity = 'bomb:{bomb}' AND status = 'failed'
                     AND ended_reason = 'crashed_server')"
            ),
        );
        let back = Instant::now();
        expect_resumed(&db, "the bomb", back);
        // Twice alone; before that the bomb may have gone off in a batch, where it cannot be told which run it was.
        // Routing does not wait for the disk: that crash may have undone it, and then the run is a new one, which goes
        // off in a batch once more.
        let crashes = cluster.crashes() - crashes;
        println!("{crashes} crashes until the run was given up");
        assert!((2..=4).contains(&crashes), "{crashes} crashes until the run was given up");
    }
    // R000-4, R002-11: a run that was given up is kept as a dead letter.
    let letters = db.rows("SELECT reason, count(*) FROM automation_internal.dead_letter GROUP BY reason");
    assert_eq!(letters, [[Some("crashed_server".to_owned()), Some("3".to_owned())]]);
    // No other run was blamed, and nothing is tried again after the next start.
    let crashes = cluster.crashes();
    cluster.restart();
    expect_resumed(&db, "a restart", Instant::now());
    assert_eq!(cluster.crashes(), crashes);
}

#[test]
fn a_step_that_takes_an_idle_server_down_is_given_up() {
    // Nothing else is committed, so nothing flushes the routing of the run before its step kills the server.
    let cluster = Cluster::build().setting("wal_writer_delay", "10s").start();
    let db = cluster.database("idle");
    db.execute(
        "CREATE TABLE bomb (id int PRIMARY KEY);
         CREATE TABLE ash (line text);
         SELECT automation.watch_table('bomb');
         SELECT automation.define('explode', trigger => automation.on_created('bomb'),
             steps => ARRAY[automation.sql($$ COPY ash FROM PROGRAM 'kill -9 $PPID' $$)])",
    );
    let crashes = cluster.crashes();
    db.execute("INSERT INTO bomb VALUES (1)");
    db.wait_at_most(
        Duration::from_secs(120),
        "the run is given up",
        "SELECT status = 'failed' AND ended_reason = 'crashed_server' FROM automation.runs",
    );
    let crashes = cluster.crashes() - crashes;
    println!("{crashes} crashes until the run was given up");
    assert!((2..=3).contains(&crashes), "{crashes} crashes until the run was given up");
}

#[test]
fn a_commit_that_fails_ends_its_own_run_and_no_other() {
    // Between a failed commit and the executor's reaction to it, others have time to take the same run.
    let cluster = Cluster::build().setting("automation_engine.failpoint", "after_commit=sleep:20").start();
    let db = open_ledger(&cluster);
    // The constraint speaks up only at COMMIT, when a batch of runs is already done.
    db.execute(
        "CREATE TABLE box (id int PRIMARY KEY);
         INSERT INTO box SELECT n FROM generate_series(1, 400) AS n WHERE n % 8 <> 0;
         CREATE TABLE parcel (id int PRIMARY KEY);
         CREATE TABLE packed (parcel int NOT NULL REFERENCES box DEFERRABLE INITIALLY DEFERRED);
         GRANT SELECT ON parcel TO bookkeeper;
         GRANT INSERT ON packed TO bookkeeper;
         SELECT automation.watch_table('parcel');
         SELECT automation.define('pack', run_as => 'bookkeeper',
             trigger => automation.on_created('parcel'),
             steps   => ARRAY[
                 automation.sql($$ SELECT pg_sleep(0.001) $$),
                 automation.sql($$ INSERT INTO packed VALUES ({{ new.id }}) $$)])",
    );
    db.execute("INSERT INTO parcel SELECT generate_series(1, 400)");
    db.wait_until_drained(Duration::from_secs(60));
    let wrong = db.rows(
        "SELECT id FROM parcel WHERE id % 8 <> 0 EXCEPT ALL SELECT parcel FROM packed
          UNION ALL
         SELECT * FROM (SELECT parcel FROM packed EXCEPT ALL SELECT id FROM box) AS surplus",
    );
    assert!(wrong.is_empty(), "not packed once: {wrong:?}");
    let failed = "SELECT count(*), count(DISTINCT entity) FROM automation.runs
                   WHERE automation = 'pack' AND status = 'failed' AND ended_reason = 'commit_failed'";
    assert_eq!(db.rows(failed), [[Some("50".to_owned()), Some("50".to_owned())]]);
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE automation = 'pack'"), 400);
    db.expect_invariants();
}

#[test]
fn the_invariants_notice_what_is_wrong() {
    let cluster = Cluster::start();
    let db = open_ledger(&cluster);
    cluster.reload(&[("automation_engine.enabled", "off")]);
    db.wait_for_workers(Worker::Executor, 0);
    let queued = "INSERT INTO automation_internal.dispatch
                         (owner, id, run_id, event_id, event_at, created_at, automation_id, version_id, trigger_no, reason)
                  SELECT h.owner, 999999, h.id + 999999, h.event_id, h.event_at, now(), h.automation_id, h.version_id,
                         h.trigger_no, 't'
                    FROM automation_internal.run_history AS h LIMIT 1;";
    for (break_it, noticed) in [
        ("UPDATE automation_internal.event SET cause_run = 0 WHERE kind = 'mirror'", &["I5 what a run changed"][..]),
        ("DELETE FROM effect WHERE seq = 3", &["I1 every expected effect", "I5 a completed run has"]),
        (
            "INSERT INTO effect (automation, account, version, change, run, by_role)
             SELECT automation, account, version, change, run, by_role FROM effect WHERE version = 2 LIMIT 1",
            &["I1 no effect is there twice", "I6 the effects on one account"],
        ),
        (
            "UPDATE automation_internal.event SET occurred_at = occurred_at - interval '6 seconds';
             UPDATE automation_internal.router_cursor SET from_snapshot = '10:10:'",
            &["I2 no event older than"],
        ),
        ("UPDATE automation_internal.router_cursor SET from_floor = 1000000", &["I2 the cursor is one row"]),
        ("UPDATE automation_internal.router_cursor SET to_floor = 1", &["I2 the cursor is one row"]),
        ("DELETE FROM automation_internal.router_cursor", &["I2 the cursor is one row"]),
        (&format!("{queued} UPDATE automation_internal.dispatch SET event_id = 0"), &["I3 every queued dispatch"]),
        (&format!("{queued} UPDATE automation_internal.dispatch SET version_id = 0"), &["I3 every queued dispatch"]),
        (
            &format!("{queued} UPDATE automation_internal.dispatch SET run_id = run_id - 999999"),
            &["I3 no run is both queued and ended"],
        ),
        (
            "INSERT INTO automation_internal.dwell
             SELECT h.id + 999999, h.automation_id, 't', 'k', h.owner, h.version_id, 0, 0, 0, now(), now(), now(), '{}'
               FROM automation_internal.run_history AS h LIMIT 1",
            &["I3 what is held has its timer"],
        ),
        (
            "INSERT INTO automation_internal.run_history SELECT * FROM automation_internal.run_history LIMIT 1",
            &["I5 no run ended twice", "I5 no event made a trigger"],
        ),
        (
            "UPDATE automation_internal.run_history SET status = 'failed'",
            &["I5 a completed run has", "I5 what a run changed"],
        ),
        (
            "UPDATE effect AS e SET version = 3 - e.version, change = other.change
               FROM effect AS other
              WHERE e.account = 1 AND other.account = 1 AND other.automation = e.automation
                AND other.version = 3 - e.version",
            &["I6 the effects on one account"],
        ),
        ("UPDATE effect SET by_role = 'postgres' WHERE seq = 1", &["I8 every effect was written by"]),
    ] {
        db.execute("BEGIN");
        db.execute(break_it);
        let broken = db.broken_invariants();
        db.execute("ROLLBACK");
        let as_expected = broken.len() == noticed.len()
            && noticed.iter().all(|name| broken.iter().any(|text| text.starts_with(name)));
        assert!(as_expected, "after: {break_it}\nexpected: {noticed:?}\nnoticed: {broken:?}");
    }
    db.expect_invariants();
}
