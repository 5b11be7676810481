//! A clock that was ahead for a moment, and is right again: nothing stands still until the time that it showed, and
//! nothing was dropped because it seemed to be old.

use e2e::{Cluster, Signal, Worker};

const TICKING: &str = "
    CREATE TABLE beat (automation text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
    SELECT automation.define('cron', trigger => automation.on_cron('* * * * * *'),
        steps => ARRAY[automation.sql('INSERT INTO beat VALUES (''cron'')')]);
    SELECT automation.define('interval', trigger => automation.on_interval('1 second'),
        steps => ARRAY[automation.sql('INSERT INTO beat VALUES (''interval'')')])";

const BOTH_TICK: &str = "SELECT count(DISTINCT automation) = 2 FROM beat WHERE at > ";

#[test]
fn a_clock_that_was_ten_years_ahead_for_a_moment_silences_and_drops_nothing() {
    let cluster = Cluster::start();
    let db = cluster.database("ahead");
    db.open_shop();
    db.execute(TICKING);
    db.expect_work_goes_on();
    db.wait_until("both tick", &format!("{BOTH_TICK} '-infinity'"));
    let (events, runs) = ("SELECT count(*) FROM automation.events", "SELECT count(*) FROM automation.runs");
    let days = "SELECT count(*) FROM pg_inherits WHERE inhparent IN
                    ('automation_internal.event'::regclass, 'automation_internal.run_history'::regclass)";
    let before = (db.number(events), db.number(runs), db.number(days));

    cluster.reload(&[("automation_engine.failpoint", "clock=ahead:315360000")]);
    // New workers begin with the settings that the postmaster has read.
    let known = "SELECT current_setting('automation_engine.failpoint') LIKE 'clock%'";
    db.wait_until("the setting has arrived", known);
    // A new conductor keeps house by that clock, if not at once then a minute later.
    db.signal_worker(Worker::Conductor, Signal::Term);
    db.wait_until(
        "a schedule was dealt with by the wrong clock",
        "SELECT count(*) = 2 FROM automation_internal.schedule WHERE last_tick > now() + interval '9 years'",
    );
    db.add_jobs(1);
    db.expect_each_job_done_once();

    cluster.reload(&[("automation_engine.failpoint", "")]);
    let right = db.text("SELECT clock_timestamp()");
    db.wait_until("both go on to tick", &format!("{BOTH_TICK} '{right}'"));
    db.expect_work_goes_on();
    // COMMIT PREPARED tells nothing: it is noticed because the conductor looks once a second.
    for no in 1..=3 {
        db.execute(&format!("BEGIN; INSERT INTO job (note) VALUES ('prepared'); PREPARE TRANSACTION 'p{no}'"));
        db.another_session().execute(&format!("COMMIT PREPARED 'p{no}'"));
        db.expect_each_job_done_once();
    }
    assert!(db.number(events) >= before.0, "events of the present were dropped");
    assert!(db.number(runs) >= before.1, "runs of the present were dropped");
    assert!(db.number(days) >= before.2, "partitions of the present were dropped");
}
