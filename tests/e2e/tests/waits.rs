//! Runs that wait, with workers: they survive kills at every point, restarts and their owner's end; timers are never
//! early; nothing is done while nothing happens; a wake-up that was lost is found by the sweep.

use std::thread;
use std::time::{Duration, Instant};

use e2e::patience::{KINDS, POINTS};
use e2e::{Cluster, Database};

/// Points that every run passes, and that are worth a death while runs wait.
const ORDINARY: &[&str] = &["route_written", "claimed", "written", "before_commit", "after_commit"];

fn waiting_room(cluster: &Cluster) -> Database<'_> {
    let db = cluster.database("waiting_room");
    db.open_waiting_room();
    db
}

#[test]
fn a_kill_at_any_point_of_a_wait_loses_and_doubles_nothing() {
    let cluster = Cluster::start();
    let db = waiting_room(&cluster);
    // A thousand runs that wait through all of it.
    let patient = db.ask(1, 150);
    db.wait_until_all_wait(patient);
    let mut next = patient;
    for point in POINTS.iter().chain(ORDINARY) {
        let crashes = cluster.crashes();
        cluster.set(&[("automation_engine.failpoint", &format!("{point}=kill"))]);
        let (began, first) = (Instant::now(), next);
        while cluster.crashes() == crashes {
            // Only workers that are there learn of the point; the restarted server knows nothing of it.
            db.tell_workers();
            // Each of these statements that was committed before the end counts.
            let _ = db.try_ask(next, 2);
            let _ = db.try_release(first, next);
            next += 2 * KINDS.len() as i64;
            thread::sleep(Duration::from_millis(5));
            assert!(began.elapsed() < Duration::from_secs(30), "nothing passes {point}\n{}", cluster.log_tail());
        }
        cluster.set(&[("automation_engine.failpoint", "")]);
        let back = cluster.wait_until_back(db.name(), || cluster.crashes() > crashes);
        // An event wakes only runs that wait already.
        db.wait_until_all_have_begun();
        db.release(first, next);
        db.wait_at_most(
            Duration::from_secs(30),
            "what was released has ended",
            &format!(
                "SELECT NOT EXISTS (SELECT FROM automation_internal.run AS r
                                     WHERE r.kind = 'asked' AND r.entity_id::int >= {patient})
                    AND NOT EXISTS (SELECT FROM automation_internal.dispatch)"
            ),
        );
        println!("{point}: all done {} ms after the server was back", back.elapsed().as_millis());
    }
    // R000-14: a wait and the rows by which it can be ended are written together or not at all, so no run is left
    // waiting for ever.
    db.release(1, next);
    let took = db.expect_all_ended();
    println!("{} runs that had waited ended within {} ms", patient - 1, took.as_millis());
    db.expect_nothing_rescued();
}

#[test]
fn runs_wait_through_restarts_and_nothing_is_done_meanwhile() {
    // Autovacuum has transactions of its own.
    let cluster = Cluster::build().setting("autovacuum", "off").start();
    let db = waiting_room(&cluster);
    let next = db.ask(1, 150);
    db.wait_until_all_wait(next);
    cluster.restart();
    db.wait_until_all_wait(next);
    // Runs whose step is tried again are active every three seconds, so they are let go on first.
    db.execute("UPDATE lamp SET lit = true FROM asked WHERE asked.id = lamp.id AND asked.kind = 'retry'");
    db.wait_until("no run tries again", "SELECT NOT EXISTS (SELECT FROM automation.waiting WHERE kind = 'sql')");
    db.disconnect();

    // R000-1, R000-25, R000-37: no state is polled, no run has a heartbeat, nothing is swept.
    cluster.expect_no_transactions("waiting_room", "a thousand runs wait");

    db.release(1, next);
    db.expect_all_ended();
    db.expect_nothing_rescued();
}

#[test]
fn a_timer_is_never_early_and_waits_for_no_later_one() {
    let cluster = Cluster::start();
    let db = cluster.database("timers");
    db.execute(
        "CREATE TABLE alarm (id int PRIMARY KEY, due timestamptz NOT NULL);
         CREATE TABLE rung (due timestamptz NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
         SELECT automation.watch_table('alarm');
         SELECT automation.define('ring', trigger => automation.on_created('alarm'), steps => ARRAY[
             automation.delay(until => 'new.due'), automation.sql('INSERT INTO rung (due) VALUES ({{ new.due }})')])",
    );
    db.execute("INSERT INTO alarm VALUES (0, clock_timestamp() + interval '1 hour')");
    db.wait_until("the conductor knows of a timer", "SELECT EXISTS (SELECT FROM automation.waiting)");
    // In falling order, so that each alarm is earlier than those that the conductor knows of.
    for n in (1..=20).rev() {
        db.execute(&format!("INSERT INTO alarm VALUES ({n}, clock_timestamp() + {n} * interval '150 milliseconds' + interval '1 second')"));
    }
    db.wait_until("every alarm has rung", "SELECT count(*) = 20 FROM rung");
    assert_eq!(db.number("SELECT count(*) FROM rung WHERE at < due"), 0, "a timer was early");
    // On an idle machine none is more than a second late (G8). A busy one may hold up any of them, but hardly all
    // twenty.
    let late = db.rows("SELECT (extract(epoch FROM min(at - due)) * 1000)::bigint, max(at - due) FROM rung");
    println!("the least and the most that a timer was late: {late:?}");
    let least: i64 = late[0][0].as_deref().and_then(|least| least.parse().ok()).expect("a number");
    assert!(least <= 1000, "every timer was late, the best of them by {least} ms");
}

#[test]
fn a_cancellation_that_is_not_committed_yet_keeps_nobody_busy() {
    let cluster = Cluster::start();
    let db = cluster.database("hesitant");
    db.execute(
        "CREATE TABLE effect (note text);
         SELECT automation.define('nap', trigger => automation.on_call(), steps => ARRAY[
             automation.delay('1 second'), automation.sql('INSERT INTO effect VALUES (''awake'')')])",
    );
    let run = db.number("SELECT automation.start_run('nap')");
    db.wait_until("it naps", "SELECT EXISTS (SELECT FROM automation.waiting)");
    let other = db.another_session();
    other.execute("BEGIN");
    other.execute(&format!("SELECT automation.cancel_run({run})"));
    db.wait_until("its time has come", "SELECT now() > deadline + interval '200 milliseconds' FROM automation.waiting");
    let turns = || db.number("SELECT batches FROM automation.stat_workers WHERE worker = 'conductor'");
    let before = turns();
    thread::sleep(Duration::from_secs(2));
    let turned = turns() - before;
    other.execute("ROLLBACK");
    db.wait_until("the nap is over", "SELECT EXISTS (SELECT FROM effect)");
    assert!(turned <= 20, "the conductor looked {turned} times in two seconds");
}

#[test]
fn work_that_is_routed_by_hand_finds_its_executor() {
    let cluster = Cluster::start();
    let db = cluster.database("by_hand");
    db.open_shop();
    let other = db.another_session();
    other.execute("BEGIN");
    other.execute("SELECT automation.route()");
    db.add_jobs(1);
    other.execute("SELECT automation.route()");
    other.execute("COMMIT");
    db.expect_each_job_done_once();
}

#[test]
fn the_sweep_finds_what_was_lost() {
    let cluster = Cluster::start();
    let db = waiting_room(&cluster);
    let next = db.ask(1, 3);
    db.wait_until_all_wait(next);
    db.execute("ALTER TABLE lamp DISABLE TRIGGER USER");
    db.execute("UPDATE lamp SET lit = true");
    db.execute("ALTER TABLE lamp ENABLE TRIGGER USER");
    db.execute("DELETE FROM automation_internal.timer");
    db.execute("SELECT automation.sweep()");
    // R000-28: timers that were lost and changes that were not captured.
    db.wait_until("the untold have gone on", "SELECT count(*) = 3 FROM effect WHERE automation = 'until'");
    db.release(1, next);
    db.wait_until("all have ended", "SELECT NOT EXISTS (SELECT FROM automation_internal.run)");
    assert!(db.number("SELECT status FROM automation.status() WHERE item = 'rescued_wakeups'") >= 4);
    assert!(db.boolean("SELECT EXISTS (SELECT FROM automation.log WHERE code = 'rescued_wakeup')"));
}

#[test]
fn the_owner_of_waiting_runs_is_dropped() {
    let cluster = Cluster::start();
    let db = waiting_room(&cluster);
    let next = db.ask(1, 3);
    db.wait_until_all_wait(next);
    db.execute("DROP OWNED BY patient");
    db.execute("DROP ROLE patient");
    db.release(1, next);
    db.wait_until("no run waits", "SELECT NOT EXISTS (SELECT FROM automation_internal.run)");
    db.wait_until("nothing is queued", "SELECT NOT EXISTS (SELECT FROM automation_internal.dispatch)");
    assert_eq!(db.number("SELECT count(*) FROM automation_internal.timer"), 0);
    assert_eq!(db.number("SELECT count(*) FROM automation_internal.wake_index"), 0);
    assert!(db.number("SELECT count(*) FROM automation.runs WHERE ended_reason = 'owner_dropped'") > 0);
}

#[test]
fn the_extension_is_dropped_while_runs_wait() {
    let cluster = Cluster::start();
    let db = waiting_room(&cluster);
    let next = db.ask(1, 10);
    db.wait_until_all_wait(next);
    db.execute("DROP EXTENSION automation_engine CASCADE");
    db.execute("CREATE EXTENSION automation_engine");
    assert_eq!(db.number("SELECT count(*) FROM automation.waiting"), 0);
}

#[test]
fn waits_hold_whatever_the_isolation_of_a_session_is() {
    let cluster = Cluster::build().setting("default_transaction_isolation", "serializable").start();
    let db = waiting_room(&cluster);
    let next = db.ask(1, 20);
    db.wait_until_all_wait(next);
    db.release(1, next);
    db.expect_all_ended();
    db.expect_nothing_rescued();
}
