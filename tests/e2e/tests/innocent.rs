//! A run is given up when it crashes the server, and not because it was under way when the power failed or a process
//! was ended.

use e2e::{Cluster, Database, Signal, Worker, kill};

fn open_shop_with_slow_step<'c>(cluster: &'c Cluster, seconds: u32) -> Database<'c> {
    let db = cluster.database("slow");
    db.open_shop();
    db.expect_work_goes_on();
    db.set_pace(seconds);
    db.add_jobs(1);
    // Routing does not wait for the disk: without this a crash might undo it.
    db.wait_until_a_step_sleeps();
    db.execute("CHECKPOINT");
    db
}

fn expect_done_and_nothing_given_up(db: &Database<'_>) {
    db.expect_each_job_done_once();
    assert_eq!(db.number("SELECT count(*) FROM automation_internal.dead_letter"), 0);
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE status <> 'completed'"), 0);
}

#[test]
fn a_run_that_meets_three_power_cuts_is_done() {
    let cluster = Cluster::start();
    let db = open_shop_with_slow_step(&cluster, 3);
    for _ in 0..4 {
        cluster.cut_power();
        cluster.start_again();
        db.wait_until_a_step_sleeps();
    }
    expect_done_and_nothing_given_up(&db);
}

#[test]
fn a_run_whose_executor_is_terminated_again_and_again_is_done() {
    let cluster = Cluster::start();
    let db = open_shop_with_slow_step(&cluster, 2);
    for _ in 0..4 {
        let executor = db.worker_pid(Worker::Executor);
        db.execute(&format!("SELECT pg_terminate_backend({executor}, 10000)"));
        db.wait_until_a_step_sleeps();
    }
    expect_done_and_nothing_given_up(&db);
}

#[test]
fn a_run_that_meets_three_restarts_is_done() {
    let cluster = Cluster::start();
    let db = open_shop_with_slow_step(&cluster, 2);
    for _ in 0..3 {
        cluster.restart();
        db.wait_until_a_step_sleeps();
    }
    expect_done_and_nothing_given_up(&db);
}

#[test]
fn a_run_whose_own_executor_is_killed_each_time_is_given_up() {
    let cluster = Cluster::start();
    let db = open_shop_with_slow_step(&cluster, 60);
    for crash in 1..=3 {
        db.wait_until_a_step_sleeps();
        let crashes = cluster.crashes();
        kill(db.worker_pid(Worker::Executor), Signal::Kill);
        cluster.wait_until_back(db.name(), || cluster.crashes() > crashes);
        println!("crash {crash}");
    }
    db.wait_until(
        "the run is given up",
        "SELECT EXISTS (SELECT FROM automation.runs WHERE status = 'failed' AND ended_reason = 'crashed_server')",
    );
}

#[test]
fn a_step_that_ends_its_own_process_is_given_up_in_the_end() {
    let cluster = Cluster::start();
    let db = cluster.database("suicide");
    db.open_shop();
    db.execute(
        "SELECT automation.define('suicide', trigger => automation.on_created('job'),
             steps => ARRAY[automation.sql($$ SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(10) $$)])",
    );
    db.add_jobs(1);
    db.wait_until(
        "the run is given up",
        "SELECT EXISTS (SELECT FROM automation.runs
                         WHERE automation = 'suicide' AND status = 'failed' AND ended_reason = 'crashed_server')",
    );
    db.expect_work_goes_on();
}
