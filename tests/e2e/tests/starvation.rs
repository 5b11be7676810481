//! Steps that never end hold executors of their owner; they do not hold up other owners.

use e2e::{Cluster, Database, Worker};

/// An automation whose steps last until `release` is called, and count how often they came to their end.
fn hostile<'c>(db: &Database<'c>, role: &str, runs: u32) -> Database<'c> {
    let owner = author(db, role);
    owner.execute("CREATE TABLE ended (run bigint)");
    owner.execute(
        "SELECT automation.define('hold-' || current_user, trigger => automation.on_event('hold.' || current_user),
            steps => ARRAY[
                automation.sql($$ DO $do$ BEGIN
                    WHILE NOT EXISTS (SELECT FROM pg_class WHERE relname = 'let_go' AND relnamespace = current_user::regnamespace) LOOP
                        PERFORM pg_sleep(0.02);
                    END LOOP;
                END $do$ $$),
                automation.sql($$ INSERT INTO ended VALUES ({{ run.id }}) $$)])",
    );
    owner.execute(&format!("SELECT automation.start_run('hold-' || current_user) FROM generate_series(1, {runs})"));
    owner
}

fn author<'c>(db: &Database<'c>, role: &str) -> Database<'c> {
    db.execute(&format!(
        "CREATE ROLE {role} LOGIN;
         CREATE SCHEMA AUTHORIZATION {role};
         SELECT automation.grant_usage('{role}', tier => 'author')"
    ));
    db.as_role(role)
}

/// An owner whose runs take no time.
fn quick<'c>(db: &Database<'c>, role: &str) -> Database<'c> {
    let owner = author(db, role);
    owner.execute("CREATE TABLE ended (run bigint)");
    owner.execute(
        "SELECT automation.define('quick-' || current_user, trigger => automation.on_event('quick.' || current_user),
            steps => ARRAY[automation.sql($$ INSERT INTO ended VALUES ({{ run.id }}) $$)])",
    );
    owner
}

/// Starts five runs and waits until `total` have ended.
#[track_caller]
fn expect_quick_runs(owner: &Database<'_>, total: u32) {
    owner.execute("SELECT automation.emit('quick.' || current_user) FROM generate_series(1, 5)");
    expect_all_ended(owner, total);
}

fn release(owner: &Database<'_>) {
    owner.execute("CREATE TABLE let_go ()");
}

/// Every executor of the database is inside a step that does not end.
fn wait_until_held(db: &Database<'_>, count: u32) {
    db.wait_until(
        "all executors are held",
        &format!(
            "SELECT count(*) >= {count} FROM pg_stat_activity
              WHERE backend_type = 'automation_engine executor' AND datname = current_database()
                AND clock_timestamp() - xact_start > interval '1 second'"
        ),
    );
}

#[track_caller]
fn expect_all_ended(owner: &Database<'_>, runs: u32) {
    owner.wait_until("every run has ended", &format!("SELECT count(*) >= {runs} FROM ended"));
    assert_eq!(owner.number("SELECT count(*) FROM ended"), i64::from(runs), "each run ended once");
}

#[test]
fn eight_endless_steps_of_one_owner_do_not_stop_another_owner() {
    let cluster = Cluster::start();
    let db = cluster.database("endless");
    let mallory = hostile(&db, "mallory", 8);
    wait_until_held(&db, 4);
    db.wait_until(
        "status() says that work waits and which role holds the executors",
        "SELECT EXISTS (SELECT FROM automation.status()
                         WHERE item = 'executors' AND status = 'starved' AND detail LIKE '%mallory%')",
    );
    let alice = author(&db, "alice");
    let told = alice.text("SELECT detail FROM automation.status() WHERE item = 'executors'");
    assert!(!told.contains("mallory"), "a role that is no member does not learn the name: {told}");
    // R002-7: each owner has executors of its own.
    alice.open_shop();
    alice.add_jobs(5);
    alice.expect_each_job_done_once();

    release(&mallory);
    expect_all_ended(&mallory, 8);
    alice.expect_work_goes_on();
    db.wait_until(
        "the pool has its usual size again",
        "SELECT count(*) <= 4 FROM pg_stat_activity
          WHERE backend_type = 'automation_engine executor' AND datname = current_database()",
    );
    db.wait_until("status() is content", "SELECT status = 'ok' FROM automation.status() WHERE item = 'executors'");
    mallory.execute("SELECT automation.start_run('hold-mallory') FROM generate_series(1, 3)");
    expect_all_ended(&mallory, 11);
}

#[test]
fn hostile_owners_together_do_not_stop_another_owner() {
    for executors in [1, 2, 4] {
        let cluster = Cluster::build().setting("automation_engine.executors", &executors.to_string()).start();
        let db = cluster.database("together");
        let first = hostile(&db, "mallory", 8);
        wait_until_held(&db, executors);
        // Both at once: an executor that is being started for one must not be sent home for the other.
        let second = hostile(&db, "trudy", 8);
        let third = hostile(&db, "oscar", 8);
        wait_until_held(&db, executors + 2);
        let (alice, bob) = (quick(&db, "alice"), quick(&db, "bob"));
        expect_quick_runs(&alice, 5);
        expect_quick_runs(&bob, 5);
        expect_quick_runs(&alice, 10);
        let held = db.worker_pids(Worker::Executor).len();
        assert!(held <= executors as usize * 3 + 2, "the processes do not pile up: {held} with {executors} executors");

        for owner in [&first, &second, &third] {
            release(owner);
            expect_all_ended(owner, 8);
        }
        expect_quick_runs(&alice, 15);
    }
}

#[test]
fn with_all_worker_processes_used_up_an_owner_gets_one_of_the_surplus() {
    // The launcher, one conductor and four executors fit.
    let cluster =
        Cluster::build().setting("max_worker_processes", "6").setting("max_logical_replication_workers", "0").start();
    let db = cluster.database("used_up");
    let mallory = hostile(&db, "mallory", 8);
    wait_until_held(&db, 4);
    let alice = author(&db, "alice");
    alice.open_shop();
    alice.add_jobs(5);
    alice.expect_each_job_done_once();
    release(&mallory);
    expect_all_ended(&mallory, 8);
    alice.expect_work_goes_on();
}

#[test]
fn a_step_without_a_timeout_of_its_own_has_the_one_of_the_setting() {
    let cluster = Cluster::build().setting("automation_engine.step_timeout", "500ms").start();
    let db = cluster.database("step_timeout");
    let alice = author(&db, "alice");
    alice.execute(
        "SELECT automation.define('endless', trigger => automation.on_event('a'),
            steps => ARRAY[automation.sql('SELECT pg_sleep(3600)')]);
         CREATE FUNCTION endless(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT to_jsonb(true) FROM pg_sleep(3600)';
         SELECT automation.define('endless-call', trigger => automation.on_event('a'),
            steps => ARRAY[automation.call('endless')]);
         SELECT automation.define('patient', trigger => automation.on_event('a'),
            steps => ARRAY[automation.sql('SELECT pg_sleep(1.5)', timeout => '1 hour')])",
    );
    alice.execute("SELECT automation.start_run(name) FROM unnest('{endless,endless-call,patient}'::text[]) AS name");
    alice.wait_until(
        "all have ended",
        "SELECT count(*) = 3 FROM automation.runs WHERE status IN ('failed', 'completed')",
    );
    // R000-33: a step that does not end keeps its executor no longer than this.
    let rows = alice.rows("SELECT automation, status, sqlstate FROM automation.runs ORDER BY automation");
    let expected = |name: &str, status: &str, state: Option<&str>| {
        vec![Some(name.to_owned()), Some(status.to_owned()), state.map(str::to_owned)]
    };
    assert_eq!(
        rows,
        [
            expected("endless", "failed", Some("57014")),
            expected("endless-call", "failed", Some("57014")),
            expected("patient", "completed", None),
        ]
    );
}
