//! A run that executes shows itself, and cancel_run() stops it: the statement is interrupted, the run's writes are
//! rolled back, and the executor lives on.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use e2e::{Cluster, Database, Signal, Worker, kill};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

/// The run that sleeps in an executor.
fn sleeper(db: &Database<'_>) -> i64 {
    db.wait_until(
        "a run executes",
        "SELECT EXISTS (SELECT FROM automation.runs WHERE status = 'running' AND step = 'sleep')",
    );
    db.number("SELECT id FROM automation.runs WHERE status = 'running' AND step = 'sleep'")
}

/// Automations whose step writes and then sleeps for as long as the payload says.
fn open_dormitory(db: &Database<'_>) {
    db.execute(
        "CREATE TABLE effect (run bigint);
         SELECT automation.define('sleep', trigger => automation.on_call(), steps => ARRAY[
             automation.sql('INSERT INTO effect VALUES ({{ run.id }})', id => 'write'),
             automation.sql('SELECT pg_sleep({{ payload.seconds }})', id => 'sleep')],
             on_failure => ARRAY[automation.sql('INSERT INTO effect VALUES (-({{ run.id }}::bigint))')])",
    );
}

#[test]
fn a_run_that_executes_is_cancelled_at_once_and_its_executor_lives_on() {
    let db = shared().database("sleeper");
    open_dormitory(&db);
    db.execute("SELECT automation.start_run('sleep', '{\"seconds\": 3600}')");
    let run = sleeper(&db);
    let executor = db.worker_pid(Worker::Executor);
    assert_eq!(db.number(&format!("SELECT pid FROM automation.runs WHERE id = {run}")), i64::from(executor));
    assert!(db.boolean(&format!("SELECT since <= now() AND started_at = since FROM automation.runs WHERE id = {run}")));
    assert_eq!(
        db.text(&format!("SELECT query FROM pg_stat_activity WHERE pid = {executor}")),
        format!("automation \"sleep\" run {run} step \"sleep\"")
    );
    let began = Instant::now();
    assert!(db.boolean(&format!("SELECT automation.cancel_run({run})")));
    let took = began.elapsed();
    assert_eq!(
        db.rows(&format!("SELECT status, ended_reason, error, pid, step, since FROM automation.runs WHERE id = {run}")),
        [[Some("cancelled".to_owned()), Some("cancelled".to_owned()), None, None, None, None]]
    );
    assert_eq!(db.number("SELECT count(*) FROM effect"), 0, "what a cancelled run did is rolled back");
    db.execute("SELECT automation.start_run('sleep', '{\"seconds\": 0}')");
    db.wait_until("the next run is done", "SELECT count(*) = 1 FROM effect WHERE run > 0");
    assert_eq!(db.worker_pids(Worker::Executor), [executor], "the executor lives on");
    assert_eq!(db.number("SELECT count(*) FROM effect WHERE run < 0"), 0, "on_failure is not for what was cancelled");
    // It would take an hour otherwise; how long it takes on a busy machine is not promised.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_cancellation_that_is_rolled_back_lets_the_run_begin_again() {
    let db = shared().database("undone");
    open_dormitory(&db);
    db.execute("SELECT automation.start_run('sleep', '{\"seconds\": 3600}')");
    let run = sleeper(&db);
    let other = db.another_session();
    other.execute("BEGIN");
    assert!(other.boolean(&format!("SELECT automation.cancel_run({run})")));
    assert_eq!(db.text(&format!("SELECT status FROM automation.runs WHERE id = {run}")), "pending");
    other.execute("ROLLBACK");
    assert_eq!(sleeper(&db), run);
    assert!(db.boolean(&format!("SELECT automation.cancel_run({run})")));
}

#[test]
fn a_step_that_catches_the_interruption_is_stopped_all_the_same() {
    let db = shared().database("stubborn");
    open_dormitory(&db);
    db.execute(
        "SELECT automation.define('stubborn', trigger => automation.on_call(), steps => ARRAY[automation.sql($sql$
             DO $do$ BEGIN LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $do$
         $sql$, id => 'sleep')])",
    );
    db.execute("SELECT automation.start_run('stubborn')");
    let run = sleeper(&db);
    assert!(db.boolean(&format!("SELECT automation.cancel_run({run})")));
    db.execute("SELECT automation.start_run('sleep', '{\"seconds\": 0}')");
    db.wait_until("the next run is done", "SELECT count(*) = 1 FROM effect");
}

#[test]
fn a_run_whose_deferred_trigger_executes_at_commit_shows_itself_and_is_cancelled() {
    let db = shared().database("deferred");
    open_dormitory(&db);
    db.execute(
        "CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3600); RETURN NULL; END $$;
         CREATE TABLE late (run bigint);
         CREATE CONSTRAINT TRIGGER doze AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION doze();
         SELECT automation.define('late', trigger => automation.on_call(),
             steps => ARRAY[automation.sql('INSERT INTO late VALUES ({{ run.id }})')])",
    );
    db.execute("SELECT automation.start_run('late')");
    db.wait_until(
        "the run is being committed",
        "SELECT EXISTS (SELECT FROM automation.runs WHERE status = 'running' AND step = '(commit)')",
    );
    let run = db.number("SELECT id FROM automation.runs WHERE status = 'running'");
    let executor = db.worker_pid(Worker::Executor);
    assert!(db.boolean(&format!("SELECT automation.cancel_run({run})")));
    assert_eq!(db.text(&format!("SELECT status FROM automation.runs WHERE id = {run}")), "cancelled");
    assert_eq!(db.number("SELECT count(*) FROM late"), 0);
    db.execute("SELECT automation.start_run('sleep', '{\"seconds\": 0}')");
    db.wait_until("the next run is done", "SELECT count(*) = 1 FROM effect");
    assert_eq!(db.worker_pids(Worker::Executor), [executor], "the executor lives on");
}

#[test]
fn a_last_step_that_catches_the_interruption_and_ends_is_rolled_back() {
    let db = shared().database("caught");
    open_dormitory(&db);
    db.execute(
        "CREATE FUNCTION doze() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO effect VALUES (77); PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN INSERT INTO effect VALUES (78); END $$;
         SELECT automation.define('doze', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT doze()', id => 'sleep')])",
    );
    db.execute("SELECT automation.start_run('doze')");
    let run = sleeper(&db);
    assert!(db.boolean(&format!("SELECT automation.cancel_run({run})")));
    assert_eq!(db.text(&format!("SELECT status FROM automation.runs WHERE id = {run}")), "cancelled");
    assert_eq!(db.number("SELECT count(*) FROM effect"), 0);
}

#[test]
fn the_others_of_a_batch_do_not_notice() {
    let db = shared().database("batch");
    db.execute(
        "CREATE TABLE effect (id int);
         CREATE TABLE item (id int PRIMARY KEY);
         SELECT automation.watch_table('item');
         SELECT automation.define('each', trigger => automation.on_created('item'), ordering => 'none', steps => ARRAY[
             automation.sql('INSERT INTO effect VALUES ({{ new.id }})', id => 'write'),
             automation.sql('SELECT pg_sleep(3600) WHERE {{ new.id }} = 50', id => 'sleep')])",
    );
    // Quick ones first, so that batches are large.
    db.execute("INSERT INTO item SELECT generate_series(1001, 3000)");
    db.execute("INSERT INTO item SELECT generate_series(1, 100)");
    db.wait_until(
        "the slow one executes",
        "SELECT EXISTS (SELECT FROM automation.runs WHERE entity = 'item:50' AND status = 'running' AND step = 'sleep')",
    );
    let run = db.number("SELECT id FROM automation.runs WHERE entity = 'item:50'");
    assert!(db.boolean(&format!("SELECT automation.cancel_run({run})")));
    db.wait_until("the others are done", "SELECT count(*) = 2099 FROM effect");
    assert_eq!(db.number("SELECT count(DISTINCT id) FROM effect WHERE id <> 50"), 2099);
    assert_eq!(
        db.column("SELECT status || ' ' || count(*) FROM automation.runs GROUP BY status ORDER BY status"),
        ["cancelled 1", "completed 2099"]
    );
}

#[test]
fn quick_runs_that_are_cancelled_at_random_have_their_effect_or_are_cancelled() {
    let db = shared().database("random");
    db.execute(
        "CREATE TABLE effect (id int);
         CREATE TABLE item (id int PRIMARY KEY);
         SELECT automation.watch_table('item');
         SELECT automation.define('each', trigger => automation.on_created('item'), ordering => 'none', steps => ARRAY[
             automation.sql('INSERT INTO effect VALUES ({{ new.id }})'),
             automation.sql('SELECT pg_sleep(0.03)'),
             automation.sql('SELECT pg_sleep(0.03)')])",
    );
    const RUNS: i64 = 100;
    db.execute(&format!("INSERT INTO item SELECT generate_series(1, {RUNS})"));
    let begun = Instant::now();
    let cancelled: i64 = thread::scope(|scope| {
        let cancellers: Vec<_> = (0..3)
            .map(|_| {
                let session = db.another_session();
                scope.spawn(move || {
                    let mut cancelled = 0;
                    loop {
                        let running = session.column("SELECT id FROM automation.runs WHERE status = 'running'");
                        for run in running {
                            // Too late is an error; the run has ended then.
                            let done = session.try_rows(&format!("SELECT automation.cancel_run({run})"));
                            match done {
                                Ok(rows) => cancelled += i64::from(rows[0][0].as_deref() == Some("t")),
                                Err(error) => assert_eq!(error.sqlstate, "55000", "{error}"),
                            }
                        }
                        let ended = "SELECT count(*) FROM automation.runs WHERE status IN ('completed', 'cancelled')";
                        if session.number(ended) == RUNS || begun.elapsed() > Duration::from_secs(60) {
                            return cancelled;
                        }
                    }
                })
            })
            .collect();
        cancellers.into_iter().map(|canceller| canceller.join().expect("no canceller panics")).sum()
    });
    db.wait_until(
        "every run has ended",
        &format!("SELECT count(*) = {RUNS} FROM automation.runs WHERE status IN ('completed', 'cancelled')"),
    );
    let of = |status: &str| db.number(&format!("SELECT count(*) FROM automation.runs WHERE status = '{status}'"));
    assert_eq!(of("cancelled"), cancelled);
    assert!(cancelled > 0, "none was ever cancelled while it ran");
    assert_eq!(
        db.rows(
            "SELECT r.entity, r.status FROM automation.runs AS r
              WHERE (r.status = 'completed') <> ((SELECT count(*) FROM effect AS e WHERE 'item:' || e.id = r.entity) = 1)"
        ),
        Vec::<Vec<Option<String>>>::new(),
        "completed with its effect, or cancelled without"
    );
}

#[test]
fn a_server_that_crashes_before_the_cancellation_is_done_has_not_cancelled() {
    let cluster = Cluster::start();
    let db = cluster.database("crash");
    open_dormitory(&db);
    db.execute("SELECT automation.start_run('sleep', '{\"seconds\": 3600}')");
    let run = sleeper(&db);
    let executor = db.worker_pid(Worker::Executor);
    // Stopped, it cannot answer: the request stays without effect.
    kill(executor, Signal::Stop);
    thread::scope(|scope| {
        let canceller = db.another_session();
        let asked = scope.spawn(move || canceller.try_execute(&format!("SELECT automation.cancel_run({run})")));
        db.wait_until(
            "the cancellation waits",
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT automation.cancel_run%' AND wait_event_type = 'Lock')",
        );
        kill(executor, Signal::Kill);
        assert!(asked.join().expect("the canceller does not panic").is_err(), "the caller is told");
    });
    assert_eq!(sleeper(&db), run);
    assert!(db.boolean(&format!("SELECT automation.cancel_run({run})")));
    assert_eq!(db.number("SELECT count(*) FROM effect"), 0);
}

#[test]
fn transactions_that_stay_open_after_cancel_run_and_drain_hold_up_nobody() {
    let db = shared().database("open");
    db.open_shop();
    db.execute("SELECT automation.define('called', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')])");
    let (canceller, drainer) = (db.another_session(), db.another_session());
    canceller.execute("BEGIN");
    let run = canceller.number("SELECT automation.start_run('called')");
    assert!(canceller.boolean(&format!("SELECT automation.cancel_run({run})")));
    drainer.execute("BEGIN");
    drainer.execute("INSERT INTO job (note) VALUES ('own')");
    assert_eq!(drainer.number("SELECT automation.drain()"), 1);
    assert_eq!(drainer.number("SELECT count(*) FROM effect"), 1, "the transaction's own event was routed and run");
    db.expect_work_goes_on();
    drainer.execute("INSERT INTO job (note) VALUES ('late')");
    drainer.execute("COMMIT");
    canceller.execute("COMMIT");
    db.expect_work_goes_on();
    db.wait_until(
        "the cancelled run is told of",
        &format!("SELECT status = 'cancelled' FROM automation.runs WHERE id = {run}"),
    );
}
