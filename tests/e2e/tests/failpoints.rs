//! An error at every named point of the engine: nothing is lost, nothing is done twice. Kills are in crash.rs.

use std::thread;
use std::time::{Duration, Instant};

use e2e::Cluster;

/// Points that any job passes.
const ORDINARY: &[&str] = &[
    "route_taken",
    "route_read",
    "route_written",
    "route_advanced",
    "claimed",
    "ran",
    "written",
    "before_commit",
    "after_commit",
];

#[test]
fn an_error_at_any_point_loses_and_doubles_nothing() {
    let cluster = Cluster::start();
    let db = cluster.database("erring");
    db.open_shop();
    db.expect_work_goes_on();
    for point in ORDINARY {
        cluster.reload(&[("automation_engine.failpoint", &format!("{point}=error"))]);
        let message = format!("failpoint \"{point}\"");
        let began = Instant::now();
        while !cluster.log().contains(&message) {
            db.add_jobs(1);
            thread::sleep(Duration::from_millis(20));
            assert!(began.elapsed() < Duration::from_secs(30), "nothing passes {point}\n{}", cluster.log_tail());
        }
        cluster.reload(&[("automation_engine.failpoint", "")]);
        db.expect_each_job_done_once();
    }
}
