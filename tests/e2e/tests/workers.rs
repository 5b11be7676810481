//! Workers come and go: terminated, reconfigured, without room, without preload.

use std::sync::OnceLock;

use e2e::{Cluster, Signal, Worker, is_alive};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

#[test]
fn a_terminated_conductor_is_replaced() {
    let db = shared().database("conductor");
    db.open_shop();
    db.expect_work_goes_on();
    let pid = db.signal_worker(Worker::Conductor, Signal::Term);
    db.add_jobs(10);
    db.expect_each_job_done_once();
    assert_ne!(db.worker_pid(Worker::Conductor), pid);
}

#[test]
fn a_conductor_terminated_through_sql_is_replaced() {
    let db = shared().database("conductor_sql");
    db.open_shop();
    let pid = db.worker_pid(Worker::Conductor);
    db.execute(&format!("SELECT pg_terminate_backend({pid})"));
    db.expect_work_goes_on();
}

#[test]
fn the_step_of_a_terminated_executor_is_done_once_by_the_next() {
    let db = shared().database("executor");
    db.open_shop();
    db.set_pace(20);
    db.add_jobs(3);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    db.signal_worker(Worker::Executor, Signal::Term);
    db.expect_each_job_done_once();
}

#[test]
fn cancelling_the_query_of_an_executor_loses_no_other_run() {
    let db = shared().database("cancelled");
    db.open_shop();
    db.set_pace(20);
    db.add_jobs(1);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    db.signal_worker(Worker::Executor, Signal::Int);
    db.wait_until(
        "the run has ended",
        "SELECT count(*) = 1 FROM automation.runs WHERE status IN ('failed', 'completed')",
    );
    db.add_jobs(1);
    db.wait_until("the next is done", "SELECT EXISTS (SELECT FROM effect WHERE job_id = 2)");
}

#[test]
fn a_terminated_launcher_is_replaced_and_serves_new_databases() {
    let cluster = Cluster::start();
    let db = cluster.database("before");
    db.open_shop();
    let pid = db.signal_worker(Worker::Launcher, Signal::Term);
    db.wait_until(
        "there is a new launcher",
        &format!("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'automation_engine launcher' AND pid <> {pid})"),
    );
    db.expect_work_goes_on();
    let after = cluster.database("after");
    after.open_shop();
    after.expect_work_goes_on();
    assert_eq!(db.worker_pids(Worker::Conductor).len(), 1, "the old conductor was kept, not doubled");
}

#[test]
fn a_reload_changes_the_number_of_executors() {
    let cluster = Cluster::build().setting("automation_engine.executors", "1").start();
    let db = cluster.database("pool");
    db.open_shop();
    db.set_pace(1);
    db.add_jobs(200);
    db.wait_for_workers(Worker::Executor, 1);
    cluster.reload(&[("automation_engine.executors", "3")]);
    db.wait_for_workers(Worker::Executor, 3);
    cluster.reload(&[("automation_engine.executors", "1")]);
    db.wait_for_workers(Worker::Executor, 1);
    cluster.reload(&[("automation_engine.executors", "0")]);
    db.wait_for_workers(Worker::Executor, 0);
    db.set_pace(0);
    cluster.reload(&[("automation_engine.executors", "4")]);
    db.expect_each_job_done_once();
}

#[test]
fn switched_off_the_engine_captures_and_works_it_off_when_on_again() {
    let cluster = Cluster::build().start();
    let db = cluster.database("switched");
    db.open_shop();
    db.expect_work_goes_on();
    cluster.reload(&[("automation_engine.enabled", "off")]);
    db.wait_until("the setting has arrived", "SELECT current_setting('automation_engine.enabled') = 'off'");
    db.wait_for_workers(Worker::Executor, 0);
    db.add_jobs(5);
    assert_eq!(db.number("SELECT count(*) FROM effect"), 1);
    cluster.reload(&[("automation_engine.enabled", "on")]);
    db.expect_each_job_done_once();
}

#[test]
fn without_preload_start_workers_starts_them_until_the_next_restart() {
    let cluster = Cluster::build().without_library().start();
    let db = cluster.database("unloaded");
    // The setting is the server's own; without preload it is known only once the library is loaded.
    db.execute("CREATE ROLE author LOGIN SUPERUSER");
    assert!(db.worker_pids(Worker::Conductor).is_empty());
    db.execute("CREATE ROLE shopkeeper LOGIN; GRANT CREATE ON SCHEMA public TO shopkeeper");
    db.execute("SELECT automation.grant_usage('shopkeeper', tier => 'author')");
    let shopkeeper = db.as_role("shopkeeper");
    shopkeeper.open_shop();
    shopkeeper.add_jobs(3);
    db.execute("SELECT automation.start_workers()");
    shopkeeper.expect_each_job_done_once();
    shopkeeper.expect_work_goes_on();

    cluster.restart();
    assert!(db.worker_pids(Worker::Conductor).is_empty());
    shopkeeper.add_jobs(2);
    db.execute("SELECT automation.start_workers()");
    shopkeeper.expect_each_job_done_once();
}

#[test]
fn without_room_for_workers_status_says_so_and_work_resumes_by_itself() {
    // The launcher, one conductor and one executor fit.
    let cluster =
        Cluster::build().setting("max_worker_processes", "3").setting("max_logical_replication_workers", "0").start();
    let first = cluster.database("first");
    first.open_shop();
    first.expect_work_goes_on();
    first.wait_for_workers(Worker::Executor, 1);
    let second = cluster.database("second");
    second.open_shop();
    second.add_jobs(3);
    second.wait_until(
        "status says what is missing",
        "SELECT EXISTS (SELECT FROM automation.status() AS s WHERE s::text LIKE '%max_worker_processes%')",
    );
    drop(first);
    second.expect_each_job_done_once();
}

#[test]
fn a_killed_executor_takes_no_effect_with_it() {
    let cluster = Cluster::start();
    let db = cluster.database("killed");
    db.open_shop();
    db.set_pace(20);
    db.add_jobs(3);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    let pid = db.signal_worker(Worker::Executor, Signal::Kill);
    db.expect_each_job_done_once();
    assert!(!is_alive(pid));
}
