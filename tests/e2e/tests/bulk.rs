//! Bulk jobs with live workers, killed in every way (R002-21): no row is skipped, none is done twice, the end is told
//! once.

use std::thread;
use std::time::{Duration, Instant};

use e2e::bulk::POINTS;
use e2e::{Cluster, Database, Signal, Worker, kill};

fn poll() {
    thread::sleep(Duration::from_millis(5));
}

/// The whole server goes down by the death of one of its processes, or of the postmaster, and comes back.
#[track_caller]
fn strike(db: &Database<'_>, victim: Option<Worker>) {
    let cluster = db.cluster();
    match victim {
        Some(worker) => {
            let crashes = cluster.crashes();
            kill(db.worker_pid(worker), Signal::Kill);
            cluster.wait_until_back(db.name(), || cluster.crashes() > crashes);
        }
        None => {
            cluster.crash();
            cluster.start_again();
        }
    }
}

#[test]
fn a_backfill_of_a_hundred_thousand_rows_that_is_killed_ten_times_does_every_row_once() {
    const ROWS: i64 = 100_000;
    let cluster = Cluster::start();
    let db = cluster.database("stock");
    db.open_stock(ROWS);
    let job = db.reprice("");
    for (kills, victim) in
        [Some(Worker::Executor), Some(Worker::Conductor), None].into_iter().cycle().take(10).enumerate()
    {
        // Within the first half, so that the job is still under way when its progress is read.
        let so_far = kills as i64 * ROWS / 20;
        let far = format!("SELECT done >= {so_far} FROM automation.progress WHERE job = {job}");
        db.wait_at_most(Duration::from_secs(120), "the job has come so far", &far);
        assert!(!db.boolean(&format!("SELECT finished_at IS NOT NULL FROM automation.progress WHERE job = {job}")));
        println!("kill {} of {victim:?} after {so_far} rows", kills + 1);
        strike(&db, victim);
    }
    db.wait_for_job(job);
    // R002-21: read bit by bit, worked off in batches, each row an item of its own, one summary at the end.
    db.expect_each_row_once(job, "reprice", ROWS);
}

#[test]
fn a_kill_at_any_point_of_a_job_skips_and_doubles_nothing() {
    const ROWS: i64 = 3000;
    let cluster = Cluster::start();
    let db = cluster.database("stock");
    db.open_stock(ROWS);
    for point in POINTS {
        for round in 0..3 {
            let crashes = cluster.crashes();
            db.execute("SELECT automation.start_run('each', '{\"n\": 1, \"job\": \"warm\"}')");
            // so that there is an executor, and nothing left to do for it
            db.wait_until("the first is done", "SELECT EXISTS (SELECT FROM effect WHERE job = 'warm' AND id = 0)");
            db.wait_until_drained(Duration::from_secs(10));
            cluster.set(&[("automation_engine.failpoint", &format!("{point}=kill"))]);
            // Only the executors that are there learn of the point, not those of the restarted server.
            db.worker_pids(Worker::Executor).into_iter().for_each(|pid| kill(pid, Signal::Hup));
            let (backfill, step) = (round == 0, format!("{point} {round}"));
            let mut job = 0;
            if backfill {
                job = db.reprice("");
            } else {
                let order = format!("{{\"n\": {ROWS}, \"job\": \"{step}\"}}");
                db.execute(&format!("SELECT automation.start_run('each', '{order}')"));
            }
            let began = Instant::now();
            while cluster.crashes() == crashes {
                poll();
                assert!(began.elapsed() < Duration::from_secs(60), "nothing passes {point}\n{}", cluster.log_tail());
            }
            cluster.set(&[("automation_engine.failpoint", "")]);
            cluster.wait_until_back(db.name(), || true);
            if backfill {
                db.wait_for_job(job);
                db.expect_each_row_once(job, "reprice", ROWS);
            } else {
                let after = format!("SELECT run = {ROWS} FROM effect WHERE job = '{step}' AND id = 0");
                db.wait_at_most(Duration::from_secs(60), "the step has ended", &after);
                job = db.number(&format!("SELECT max(job) FROM automation.progress WHERE total = {ROWS}"));
                db.expect_each_row_once(job, &step, ROWS);
            }
        }
    }
}

#[test]
fn a_paced_job_keeps_its_pace_and_leaves_the_workers_to_others() {
    let cluster = Cluster::start();
    let db = cluster.database("stock");
    db.open_stock(60);
    // Ten seconds, so that another run is done meanwhile on a busy machine as well.
    let job = db.reprice(", rate => 6");
    db.execute("SELECT automation.start_run('each', '{\"n\": 3, \"job\": \"quick\"}')");
    db.wait_until("another run is done meanwhile", "SELECT EXISTS (SELECT FROM effect WHERE job = 'quick' AND id = 0)");
    assert!(db.boolean(&format!("SELECT finished_at IS NULL FROM automation.progress WHERE job = {job}")));
    db.wait_for_job(job);
    db.expect_each_row_once(job, "reprice", 60);
    let took = format!(
        "SELECT (extract(epoch FROM finished_at - started_at) * 1000)::bigint FROM automation.progress WHERE job = {job}"
    );
    let took = db.number(&took);
    // 60 rows, 6 in a second, the first at once: never quicker, and slower only as far as the machine is.
    assert!((9_700..30_000).contains(&took), "it took {took} ms");
}

#[test]
fn a_job_that_is_cancelled_under_way_stops_and_says_so_once() {
    const ROWS: i64 = 20_000;
    let cluster = Cluster::start();
    let db = cluster.database("stock");
    db.open_stock(ROWS);
    let job = db.reprice("");
    db.wait_until("some rows are done", &format!("SELECT done > 500 FROM automation.progress WHERE job = {job}"));
    db.execute(&format!("SELECT automation.cancel_bulk({job})"));
    db.wait_for_job(job);
    let counts = format!(
        "SELECT state = 'cancelled' AND done + cancelled = {ROWS} AND active = 0
            AND done = (SELECT count(*) FROM effect) FROM automation.progress WHERE job = {job}"
    );
    assert!(db.boolean(&counts), "{:?}", db.rows(&format!("SELECT * FROM automation.progress WHERE job = {job}")));
    let told = format!(
        "SELECT count(*) FROM automation.events WHERE topic = 'automation.bulk.finished' AND (payload ->> 'job')::bigint = {job}"
    );
    assert_eq!(db.number(&told), 1);
    db.wait_until_drained(Duration::from_secs(10));
}

#[test]
fn a_pause_under_way_holds_the_job_and_no_row_is_lost_by_it() {
    const ROWS: i64 = 20_000;
    let cluster = Cluster::start();
    let db = cluster.database("stock");
    db.open_stock(ROWS);
    let job = db.reprice("");
    for _ in 0..5 {
        let before = db.number(&format!("SELECT done FROM automation.progress WHERE job = {job}"));
        let on = format!("SELECT done > {before} OR state = 'finished' FROM automation.progress WHERE job = {job}");
        db.wait_until("some more rows are done", &on);
        db.execute("SELECT automation.pause('reprice')");
        let held =
            format!("SELECT state IN ('paused', 'finished') AND active = 0 FROM automation.progress WHERE job = {job}");
        db.wait_until("nothing is under way", &held);
        db.execute("SELECT automation.resume('reprice')");
    }
    db.wait_for_job(job);
    db.expect_each_row_once(job, "reprice", ROWS);
}
