//! A standby is idle; promoted, it takes over.

use e2e::{AT_ONCE, Cluster, Shutdown, Worker};

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
    db.set_pace(3600);
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
    copy.wait_at_most(AT_ONCE, "the new primary has done the rest", "SELECT count(*) = 4 FROM effect");
    copy.expect_work_goes_on();
}
