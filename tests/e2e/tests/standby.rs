//! A standby is idle; promoted, it takes over.

use std::time::Duration;

use e2e::{Cluster, Shutdown, Worker};

#[test]
fn a_standby_is_idle_and_takes_over_when_promoted() {
    let primary = Cluster::start();
    let db = primary.database("followed");
    db.open_shop();
    db.expect_work_goes_on();

    let standby = primary.standby();
    let copy = standby.connect("followed");
    assert!(copy.worker_pids(Worker::Conductor).is_empty());
    assert!(copy.worker_pids(Worker::Executor).is_empty());

    // Work that the primary had no time for.
    db.set_pace(20);
    db.add_jobs(3);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    copy.wait_until(
        "the standby has it all",
        "SELECT (SELECT count(*) = 4 FROM job) AND (SELECT seconds = 0 FROM pace)",
    );
    assert!(copy.worker_pids(Worker::Conductor).is_empty(), "a standby runs nothing");
    primary.stop(Shutdown::Immediate);

    standby.promote();
    let took = copy.wait_at_most(
        Duration::from_secs(30),
        "the new primary has done the rest",
        "SELECT count(*) = 4 FROM effect",
    );
    assert!(took < Duration::from_secs(5), "work resumed {took:?} after the promotion");
    copy.expect_work_goes_on();
}
