//! `kill -9`, and an error, at every named point of the engine: nothing is lost, nothing is done twice.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use e2e::{Cluster, Database, is_alive};

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

/// Points that are passed only by the careful work after a crash.
const AFTER_A_CRASH: &[&str] = &["attempt_counted"];

/// Lets the server run into its death at `point`. It stays down, so that the point strikes once.
fn die_at(cluster: &Cluster, db: &Database<'_>, point: &str) {
    let postmaster = cluster.postmaster_pid();
    cluster.reload(&[("automation_engine.failpoint", &format!("{point}=kill"))]);
    // One after the other, because a worker learns of the setting only between two of them.
    let began = Instant::now();
    while is_alive(postmaster) {
        let _ = db.try_execute("INSERT INTO job DEFAULT VALUES");
        thread::sleep(Duration::from_millis(20));
        assert!(began.elapsed() < Duration::from_secs(30), "nothing passes {point}\n{}", cluster.log_tail());
    }
    cluster.set(&[("automation_engine.failpoint", "")]);
}

#[test]
fn a_kill_at_any_point_loses_and_doubles_nothing() {
    let cluster = Cluster::build().setting("restart_after_crash", "off").start();
    let db = cluster.database("killed");
    db.open_shop();
    db.expect_work_goes_on();
    for point in ORDINARY {
        die_at(&cluster, &db, point);
        cluster.start_again();
        db.expect_each_job_done_once();
    }
    for point in AFTER_A_CRASH {
        die_at(&cluster, &db, "claimed");
        cluster.set(&[("automation_engine.failpoint", &format!("{point}=kill"))]);
        cluster.start_again();
        die_at(&cluster, &db, point);
        cluster.start_again();
        db.expect_each_job_done_once();
    }
}

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

#[test]
fn every_point_of_the_source_is_struck_here() {
    fn names(directory: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).expect("the sources").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                names(&entry, found);
            } else {
                let text = fs::read_to_string(&entry).expect("a source");
                let calls = text.split("failpoint(\"").skip(1);
                found.extend(calls.filter_map(|call| Some(call.split_once('"')?.0.to_owned())));
            }
        }
    }

    let mut found = BTreeSet::new();
    names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src"), &mut found);
    let listed: BTreeSet<String> = ORDINARY.iter().chain(AFTER_A_CRASH).map(|name| (*name).to_owned()).collect();
    assert_eq!(found, listed);
}
