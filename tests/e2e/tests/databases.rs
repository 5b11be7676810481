//! The extension or the whole database may vanish, move or come back while the engine works.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use e2e::{Cluster, Database, Worker, in_background};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

/// Runs `body` while another session adds jobs as fast as it can.
fn under_load(database: &str, body: impl FnOnce()) {
    // It may meet the extension half gone; what matters is that the server stays.
    let write = || drop(shared().connect(database).try_execute(&"INSERT INTO job DEFAULT VALUES;".repeat(10)));
    in_background(1, write, body);
}

fn timed(db: &Database<'_>, sql: &str) -> Duration {
    let began = Instant::now();
    db.execute(sql);
    began.elapsed()
}

#[test]
fn the_extension_can_be_dropped_under_load_and_created_again() {
    let db = shared().database("recreated");
    db.open_shop();
    for _ in 0..3 {
        under_load("recreated", || {
            db.wait_until("there is work done", "SELECT EXISTS (SELECT FROM effect)");
            let took = timed(&db, "DROP EXTENSION automation_engine CASCADE");
            assert!(took < Duration::from_secs(10), "DROP EXTENSION took {took:?}");
        });
        db.wait_for_workers(Worker::Conductor, 0);
        db.wait_for_workers(Worker::Executor, 0);
        db.execute("TRUNCATE job, effect");
        db.execute("CREATE EXTENSION automation_engine");
        db.reopen_shop();
        db.expect_work_goes_on();
    }
    assert!(!shared().log().contains("terminated by signal"), "{}", shared().log_tail());
}

#[test]
fn a_dropped_and_recreated_extension_is_noticed_even_within_one_transaction() {
    let db = shared().database("swapped");
    db.open_shop();
    db.expect_work_goes_on();
    db.execute("TRUNCATE job, effect");
    db.execute("BEGIN; DROP EXTENSION automation_engine CASCADE; CREATE EXTENSION automation_engine; COMMIT");
    db.reopen_shop();
    db.expect_work_goes_on();
}

#[test]
fn dropping_its_database_is_not_held_up_by_workers() {
    let db = shared().database("dropped");
    db.open_shop();
    db.add_jobs(100);
    db.expect_each_job_done_once();
    db.disconnect();
    let took = timed(&shared().connect("postgres"), "DROP DATABASE dropped");
    assert!(took < Duration::from_secs(5), "DROP DATABASE took {took:?}");
}

#[test]
fn dropping_its_database_by_force_during_a_step_works() {
    let db = shared().database("forced");
    db.open_shop();
    db.set_pace(20);
    db.add_jobs(3);
    db.wait_until_a_step_sleeps();
    db.disconnect();
    let took = timed(&shared().connect("postgres"), "DROP DATABASE forced WITH (FORCE)");
    assert!(took < Duration::from_secs(5), "DROP DATABASE took {took:?}");
}

#[test]
fn dropping_another_database_does_not_wait_for_a_step_here() {
    let db = shared().database("here");
    let other = shared().empty_database("elsewhere");
    db.open_shop();
    db.set_pace(20);
    db.add_jobs(1);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    other.disconnect();
    let took = timed(&shared().connect("postgres"), "DROP DATABASE elsewhere");
    assert!(took < Duration::from_secs(2), "DROP DATABASE took {took:?}");
}

#[test]
fn a_renamed_database_is_served_under_its_new_name() {
    let db = shared().database("old_name");
    db.open_shop();
    db.expect_work_goes_on();
    db.disconnect();
    shared().connect("postgres").execute("ALTER DATABASE old_name RENAME TO new_name");
    let db = shared().connect("new_name");
    db.expect_work_goes_on();
    db.wait_until(
        "the conductor is named after it",
        "SELECT application_name = 'automation_engine conductor (new_name)' FROM pg_stat_activity
          WHERE backend_type = 'automation_engine conductor' AND datname = current_database()",
    );
    db.disconnect();
    shared().connect("postgres").execute("DROP DATABASE new_name WITH (FORCE)");
}
