//! Every act that ends more than one run, or a run for the sake of another, interrupts the statements that execute:
//! deferred triggers of a batch, cancel_bulk(), drop_automation(), mode restart.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use e2e::{Cluster, Database, Worker};

/// Two executors, so that two runs that sleep hold all of them.
fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::build().setting("automation_engine.executors", "2").start())
}

/// An automation whose run writes and then sleeps for as long as its payload or its row of a backfill says, and one
/// that is quick.
fn open_dormitory(db: &Database<'_>) {
    db.execute(
        "CREATE TABLE effect (run bigint);
         CREATE TABLE quick (run bigint);
         SELECT automation.define('sleep', trigger => automation.on_call(), steps => ARRAY[
             automation.sql('INSERT INTO effect VALUES ({{ run.id }})', id => 'write'),
             automation.sql('SELECT pg_sleep({{ payload.seconds }})', id => 'sleep')]);
         SELECT automation.define('quick', trigger => automation.on_call(), steps => ARRAY[
             automation.sql('INSERT INTO quick VALUES ({{ run.id }})')])",
    );
}

fn wait_for_sleepers(db: &Database<'_>, count: i64) {
    db.wait_until(
        "runs sleep",
        &format!("SELECT count(*) = {count} FROM automation.runs WHERE status = 'running' AND step = 'sleep'"),
    );
}

fn expect_executors_free(db: &Database<'_>) {
    db.execute("SELECT automation.start_run('quick') FROM generate_series(1, 20)");
    db.wait_until("quick runs are done", "SELECT count(*) = 20 FROM quick");
}

fn statuses(db: &Database<'_>, automation: &str) -> Vec<String> {
    db.column(&format!(
        "SELECT concat_ws(' ', status, ended_reason, count(*)) FROM automation.runs WHERE automation = '{automation}'
          GROUP BY status, ended_reason ORDER BY 1"
    ))
}

#[test]
fn deferred_triggers_of_a_batch_are_parted_and_one_of_its_runs_is_cancelled() {
    let db = shared().database("parted");
    db.execute(
        "CREATE TABLE late (id int);
         CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_sleep(CASE NEW.id WHEN 50 THEN 3600 WHEN 60 THEN 0.3 ELSE 0 END); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER doze AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION doze();
         CREATE TABLE item (id int PRIMARY KEY);
         SELECT automation.watch_table('item');
         SELECT automation.define('each', trigger => automation.on_created('item'), ordering => 'none', steps => ARRAY[
             automation.sql('INSERT INTO late VALUES ({{ new.id }})', id => 'write')])",
    );
    // Quick ones first, so that batches are large.
    db.execute("INSERT INTO item SELECT generate_series(1001, 3000)");
    db.execute("INSERT INTO item SELECT generate_series(1, 100)");
    db.wait_until(
        "the run executes its deferred trigger",
        "SELECT EXISTS (SELECT FROM automation.runs WHERE entity = 'item:50' AND status = 'running' AND step = '(commit)')",
    );
    let run = db.number("SELECT id FROM automation.runs WHERE entity = 'item:50'");
    let executors = db.worker_pids(Worker::Executor);
    assert!(db.boolean(&format!("SELECT automation.cancel_run({run})")));
    db.wait_until("the others are done", "SELECT count(*) = 2099 FROM automation.runs WHERE status = 'completed'");
    assert_eq!(db.number("SELECT count(*) FROM late"), 2099);
    assert_eq!(db.number("SELECT count(DISTINCT id) FROM late WHERE id <> 50"), 2099);
    assert_eq!(statuses(&db, "each"), ["cancelled cancelled 1", "completed 2099"]);
    assert_eq!(db.worker_pids(Worker::Executor), executors, "the executors live on");
}

#[test]
fn deferred_triggers_of_a_run_have_the_time_of_a_step() {
    let cluster = Cluster::build().setting("automation_engine.step_timeout", "300ms").start();
    let db = cluster.database("hasty");
    db.execute(
        "CREATE TABLE late (run bigint);
         CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3600); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER doze AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION doze();
         SELECT automation.define('late', trigger => automation.on_call(),
             steps => ARRAY[automation.sql('INSERT INTO late VALUES ({{ run.id }})')])",
    );
    let run = db.number("SELECT automation.start_run('late')");
    db.wait_until("the run fails", &format!("SELECT status = 'failed' FROM automation.runs WHERE id = {run}"));
    assert_eq!(
        db.text(&format!("SELECT ended_reason || ' ' || sqlstate FROM automation.runs WHERE id = {run}")),
        "commit_failed 57014"
    );
    assert_eq!(db.number("SELECT count(*) FROM late"), 0);
}

#[test]
fn cancel_bulk_interrupts_rows_that_hold_all_executors() {
    let db = shared().database("rows");
    open_dormitory(&db);
    let job = db.number("SELECT automation.backfill('sleep', 'SELECT 3600 AS seconds FROM generate_series(1, 50)')");
    wait_for_sleepers(&db, 2);
    let executors = db.worker_pids(Worker::Executor);
    assert_eq!(db.text(&format!("SELECT applied FROM automation.cancel_bulk({job})")), "transitioned");
    db.wait_until(
        "the job has ended",
        &format!("SELECT state = 'cancelled' FROM automation.progress WHERE job = {job}"),
    );
    assert_eq!(db.number(&format!("SELECT cancelled FROM automation.progress WHERE job = {job}")), 50);
    assert_eq!(statuses(&db, "sleep"), ["cancelled cancelled 50"]);
    assert_eq!(db.number("SELECT count(*) FROM effect"), 0, "what cancelled rows did is rolled back");
    expect_executors_free(&db);
    assert_eq!(db.worker_pids(Worker::Executor), executors, "the executors live on");
}

#[test]
fn no_row_begins_while_cancel_bulk_is_not_committed_and_all_go_on_if_it_is_rolled_back() {
    let db = shared().database("undone");
    open_dormitory(&db);
    let job = db.number("SELECT automation.backfill('sleep', 'SELECT 3600 AS seconds FROM generate_series(1, 10)')");
    wait_for_sleepers(&db, 2);
    let other = db.another_session();
    other.execute("BEGIN");
    assert_eq!(other.text(&format!("SELECT applied FROM automation.cancel_bulk({job})")), "transitioned");
    for _ in 0..20 {
        assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE status = 'running'"), 0);
        thread::sleep(Duration::from_millis(20));
    }
    expect_executors_free(&db);
    other.execute("ROLLBACK");
    wait_for_sleepers(&db, 2);
    assert_eq!(db.text(&format!("SELECT applied FROM automation.cancel_bulk({job})")), "transitioned");
    db.wait_until(
        "the job has ended",
        &format!("SELECT state = 'cancelled' FROM automation.progress WHERE job = {job}"),
    );
    assert_eq!(db.number(&format!("SELECT cancelled FROM automation.progress WHERE job = {job}")), 10);
    assert_eq!(db.number("SELECT count(*) FROM effect"), 0);
}

#[test]
fn cancel_bulk_interrupts_the_query_of_a_job() {
    let db = shared().database("query");
    open_dormitory(&db);
    // Only an executor sleeps: the session that begins the job tries the query out.
    db.execute(
        "CREATE FUNCTION doze() RETURNS float LANGUAGE plpgsql AS $$ BEGIN
             IF current_setting('application_name') LIKE 'automation_engine executor%' THEN PERFORM pg_sleep(3600); END IF;
             RETURN 0; END $$",
    );
    let job = db.number("SELECT automation.backfill('sleep', 'SELECT doze() AS seconds')");
    let sleeping = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event = 'PgSleep' AND backend_type LIKE '%executor%'";
    db.wait_until("the query executes", &format!("SELECT ({sleeping}) = 1"));
    assert_eq!(db.text(&format!("SELECT applied FROM automation.cancel_bulk({job})")), "transitioned");
    assert_eq!(db.number(sleeping), 0, "the query was interrupted");
    db.wait_until(
        "the job has ended",
        &format!("SELECT state = 'cancelled' FROM automation.progress WHERE job = {job}"),
    );
    expect_executors_free(&db);
}

#[test]
fn drop_automation_interrupts_runs_that_hold_all_executors() {
    let db = shared().database("dropped");
    open_dormitory(&db);
    db.execute("SELECT automation.start_run('sleep', '{\"seconds\": 3600}') FROM generate_series(1, 5)");
    wait_for_sleepers(&db, 2);
    let executors = db.worker_pids(Worker::Executor);
    db.execute("SELECT automation.drop_automation('sleep')");
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE status IN ('running', 'pending')"), 0);
    assert_eq!(statuses(&db, "sleep"), ["cancelled cancelled 5"]);
    assert_eq!(db.number("SELECT count(*) FROM effect"), 0);
    expect_executors_free(&db);
    assert_eq!(db.worker_pids(Worker::Executor), executors, "the executors live on");
}

#[test]
fn drop_automation_interrupts_the_rows_of_its_jobs() {
    let db = shared().database("dropped_job");
    open_dormitory(&db);
    let job = db.number("SELECT automation.backfill('sleep', 'SELECT 3600 AS seconds FROM generate_series(1, 10)')");
    wait_for_sleepers(&db, 2);
    db.execute("SELECT automation.drop_automation('sleep')");
    db.wait_until(
        "the job has ended",
        &format!("SELECT state = 'cancelled' FROM automation.progress WHERE job = {job}"),
    );
    assert_eq!(db.number(&format!("SELECT cancelled FROM automation.progress WHERE job = {job}")), 10);
    assert_eq!(db.number("SELECT count(*) FROM effect"), 0);
    expect_executors_free(&db);
}

#[test]
fn a_run_that_executes_is_restarted_at_once_by_the_next_event_of_its_entity() {
    let db = shared().database("restarted");
    db.execute(
        "CREATE TABLE effect (v int);
         CREATE TABLE item (id int PRIMARY KEY, v int);
         SELECT automation.watch_table('item');
         SELECT automation.define('last', mode => 'restart', trigger => automation.on_updated('item'), steps => ARRAY[
             automation.sql('INSERT INTO effect VALUES ({{ new.v }})', id => 'write'),
             automation.sql('SELECT pg_sleep(3600) WHERE {{ new.v }} < 5', id => 'sleep')]);
         INSERT INTO item VALUES (1, 0);
         UPDATE item SET v = 7",
    );
    db.wait_until("the first one is done", "SELECT count(*) = 1 FROM automation.runs WHERE status = 'completed'");
    for v in 1..5 {
        db.execute(&format!("UPDATE item SET v = {v}"));
        // Each interrupts the one before it.
        db.wait_until(
            "the run sleeps",
            &format!("SELECT (array_agg(status || coalesce(' ' || step, '') ORDER BY id))[{v} + 1] = 'running sleep' FROM automation.runs"),
        );
        assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE ended_reason = 'restarted'"), v - 1);
    }
    db.execute("UPDATE item SET v = 5");
    db.wait_until("the last one is done", "SELECT count(*) = 2 FROM automation.runs WHERE status = 'completed'");
    assert_eq!(statuses(&db, "last"), ["cancelled restarted 4", "completed 2"]);
    assert_eq!(db.column("SELECT v FROM effect ORDER BY v"), ["5", "7"], "what restarted runs did is rolled back");
}

#[test]
fn a_burst_of_restarts_leaves_the_last_one_alone() {
    let db = shared().database("burst");
    db.execute(
        "CREATE TABLE effect (v int);
         CREATE TABLE item (id int PRIMARY KEY, v int);
         SELECT automation.watch_table('item');
         SELECT automation.define('last', mode => 'restart', trigger => automation.on_updated('item'), steps => ARRAY[
             automation.sql('INSERT INTO effect VALUES ({{ new.v }})', id => 'write'),
             automation.sql('SELECT pg_sleep(CASE WHEN {{ new.v }} < 30 THEN 3600 ELSE 0 END)', id => 'sleep')]);
         INSERT INTO item VALUES (1, 0);
         UPDATE item SET v = 100",
    );
    // The first runs of a database are tried one by one, in their order, as after a crash.
    db.wait_until("the first one is done", "SELECT count(*) = 1 FROM automation.runs WHERE status = 'completed'");
    for v in 1..=30u64 {
        db.execute(&format!("UPDATE item SET v = {v}"));
        thread::sleep(Duration::from_millis(v % 7 * 10));
    }
    db.wait_until("all have ended", "SELECT count(ended_at) = 31 FROM automation.runs");
    assert_eq!(statuses(&db, "last"), ["cancelled restarted 29", "completed 2"]);
    assert_eq!(db.column("SELECT v FROM effect ORDER BY v"), ["30", "100"]);
}

#[test]
fn a_run_that_was_woken_and_executes_is_restarted() {
    let db = shared().database("woken");
    db.execute(
        "CREATE TABLE effect (run bigint);
         SELECT automation.define('wake', mode => 'restart', trigger => automation.on_call(), steps => ARRAY[
             automation.wait_signal('go'),
             automation.sql('INSERT INTO effect VALUES ({{ run.id }})', id => 'write'),
             automation.sql('SELECT pg_sleep(3600)', id => 'sleep')])",
    );
    let first = db.number("SELECT automation.start_run('wake')");
    db.wait_until("the run waits", &format!("SELECT status = 'waiting' FROM automation.runs WHERE id = {first}"));
    db.execute("SELECT automation.signal('go')");
    wait_for_sleepers(&db, 1);
    let second = db.number("SELECT automation.start_run('wake')");
    // Rolled back, the first one has not taken the signal: the second one does.
    db.wait_until(
        "the next one sleeps",
        &format!("SELECT status = 'running' AND step = 'sleep' FROM automation.runs WHERE id = {second}"),
    );
    assert_eq!(statuses(&db, "wake"), ["cancelled restarted 1", "running 1"]);
    assert_eq!(db.number("SELECT count(*) FROM effect"), 0);
    assert!(db.boolean(&format!("SELECT automation.cancel_run({second})")));
}

#[test]
fn an_event_that_starts_nothing_restarts_nothing() {
    let db = shared().database("refused");
    db.execute(
        "CREATE TABLE effect (run bigint);
         CREATE TABLE item (id int PRIMARY KEY, v int);
         SELECT automation.watch_table('item');
         SELECT automation.define('picky', mode => 'restart', key => '''all''', trigger => automation.on_updated('item'),
             ordering => 'none', condition => 'new.v = 1', steps => ARRAY[
             automation.sql('SELECT pg_sleep(3600)', id => 'sleep')]);
         SELECT automation.define('quick', trigger => automation.on_updated('item'), ordering => 'none', steps => ARRAY[
             automation.sql('INSERT INTO effect VALUES ({{ run.id }})')]);
         INSERT INTO item VALUES (1, 0);
         UPDATE item SET v = 1",
    );
    wait_for_sleepers(&db, 1);
    let since = || db.text("SELECT since FROM automation.runs WHERE step = 'sleep'");
    let before = since();
    db.execute("UPDATE item SET v = 2");
    // The runs of the other automation are behind the one that is refused.
    db.wait_until("the event was heard", "SELECT count(*) = 2 FROM effect");
    assert_eq!(since(), before, "the run was not interrupted");
}
