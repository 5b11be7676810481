//! Stopping the server, in every way, is quick and loses nothing.

use e2e::{AT_ONCE, Cluster, Shutdown};

#[test]
fn a_fast_stop_does_not_wait_for_a_long_step() {
    let cluster = Cluster::start();
    let db = cluster.database("fast");
    db.open_shop();
    db.set_pace(3600);
    db.add_jobs(3);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    let took = cluster.stop(Shutdown::Fast);
    assert!(took < AT_ONCE, "the stop took {took:?}");
    cluster.start_again();
    db.expect_each_job_done_once();
}

#[test]
fn an_idle_engine_does_not_hold_up_a_smart_stop() {
    let cluster = Cluster::start();
    let db = cluster.database("smart");
    db.open_shop();
    db.expect_work_goes_on();
    db.disconnect();
    let took = cluster.stop(Shutdown::Smart);
    assert!(took < AT_ONCE, "the stop took {took:?}");
    cluster.start_again();
    db.expect_work_goes_on();
}

#[test]
fn an_immediate_stop_during_a_step_loses_nothing() {
    let cluster = Cluster::build().setting("fsync", "on").start();
    let db = cluster.database("immediate");
    db.open_shop();
    db.set_pace(20);
    db.add_jobs(3);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    cluster.stop(Shutdown::Immediate);
    cluster.start_again();
    db.expect_each_job_done_once();
}

#[test]
fn a_killed_postmaster_loses_nothing() {
    let cluster = Cluster::build().setting("fsync", "on").start();
    let db = cluster.database("crashed");
    db.open_shop();
    db.set_pace(20);
    db.add_jobs(3);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    cluster.crash();
    cluster.start_again();
    db.expect_each_job_done_once();
}
