//! Holds, with workers: a hold survives kills at every point and fires once, never early; one that was broken
//! meanwhile does not fire.

use std::thread;
use std::time::{Duration, Instant};

use e2e::{Cluster, Database, Signal, Worker};

/// How long doors must stay open: longer than a busy machine needs to hold three hundred of them and to close some.
const HOLD: &str = "15 seconds";

/// Points that only holds pass, and some that all work passes.
const POINTS: &[&str] = &["held", "hold_over", "timers_taken", "route_written", "before_commit"];

fn porter<'c>(cluster: &'c Cluster, hold: &str) -> Database<'c> {
    let db = cluster.database("porter");
    db.execute(&format!(
        "CREATE ROLE porter LOGIN;
         CREATE TABLE door (id int PRIMARY KEY, state text NOT NULL DEFAULT 'closed', note int);
         CREATE TABLE opened (id int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
         CREATE TABLE rang (id int NOT NULL, run bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
         GRANT SELECT ON door TO porter;
         GRANT INSERT ON rang TO porter;
         SELECT automation.watch_table('door');
         SELECT automation.define('ring', run_as => 'porter',
             trigger => automation.on_state('door', 'state', to_value => 'open', hold_for => '{hold}'),
             steps => ARRAY[automation.sql('INSERT INTO rang VALUES ({{{{ new.id }}}}, {{{{ run.id }}}})')])"
    ));
    db
}

fn crash(cluster: &Cluster, db: &Database<'_>) {
    let crashes = cluster.crashes();
    db.signal_worker(Worker::Conductor, Signal::Kill);
    cluster.wait_until_back(db.name(), || cluster.crashes() > crashes);
}

/// Nothing is held, queued or timed any more.
const SETTLED: &str = "SELECT NOT EXISTS (SELECT FROM automation_internal.dwell)
                          AND NOT EXISTS (SELECT FROM automation_internal.dispatch)
                          AND NOT EXISTS (SELECT FROM automation_internal.timer)";

#[test]
fn what_is_held_survives_kills_and_fires_once_and_not_early() {
    let cluster = Cluster::start();
    let db = porter(&cluster, HOLD);
    db.execute("INSERT INTO door SELECT generate_series(1, 300)");
    db.execute("INSERT INTO opened SELECT id FROM door");
    db.execute("UPDATE door SET state = 'open'");
    db.wait_until("all are held", "SELECT count(*) = 300 FROM automation.waiting WHERE kind = 'hold_for'");
    // A third is closed again, a third is touched.
    db.execute("UPDATE door SET state = 'closed' WHERE id % 3 = 0");
    db.execute("UPDATE door SET note = 1 WHERE id % 3 = 1");
    let written = db.text(&format!("SELECT max(at) + interval '{HOLD}' > clock_timestamp() FROM opened"));
    assert_eq!(written, "t", "the machine is too slow for this test");
    for _ in 0..3 {
        crash(&cluster, &db);
    }
    cluster.crash();
    cluster.start_again();
    db.wait_at_most(Duration::from_secs(60), "all is settled", SETTLED);
    let wrong = db.column(&format!(
        "SELECT 'not once: ' || id FROM door LEFT JOIN rang USING (id) WHERE id % 3 <> 0 GROUP BY id HAVING count(run) <> 1
          UNION ALL
         SELECT 'though closed: ' || id FROM rang WHERE id % 3 = 0
          UNION ALL
         SELECT 'early: ' || id FROM rang JOIN opened USING (id) WHERE rang.at < opened.at + interval '{HOLD}'",
    ));
    assert!(wrong.is_empty(), "{wrong:?}");
    let broken = "SELECT count(DISTINCT entity), count(*) FROM automation.runs WHERE ended_reason = 'hold_broken'";
    assert_eq!(db.rows(broken), [[Some("100".to_owned()), Some("100".to_owned())]]);
    assert_eq!(db.number("SELECT held FROM automation.stat_automations WHERE automation = 'ring'"), 300);
}

#[test]
fn a_kill_at_any_point_of_a_hold_loses_and_doubles_nothing() {
    let cluster = Cluster::start();
    let db = porter(&cluster, "100 milliseconds");
    let mut door = 0;
    for point in POINTS {
        let crashes = cluster.crashes();
        cluster.set(&[("automation_engine.failpoint", &format!("{point}=kill"))]);
        let began = Instant::now();
        while cluster.crashes() == crashes {
            db.tell_workers();
            door += 1;
            // Each of these statements that was committed before the end counts.
            let _ = db.try_execute(&format!(
                "WITH new AS (INSERT INTO door (id) VALUES ({door}) RETURNING id) INSERT INTO opened SELECT id FROM new"
            ));
            let _ = db.try_execute(&format!("UPDATE door SET state = 'open' WHERE id = {door}"));
            thread::sleep(Duration::from_millis(20));
            assert!(began.elapsed() < Duration::from_secs(30), "nothing passes {point}\n{}", cluster.log_tail());
        }
        cluster.set(&[("automation_engine.failpoint", "")]);
        cluster.wait_until_back(db.name(), || cluster.crashes() > crashes);
        cluster.reload(&[("automation_engine.failpoint", "")]);
        let missing = "EXISTS (SELECT FROM door LEFT JOIN rang USING (id) WHERE state = 'open' AND run IS NULL)";
        let done = format!("SELECT NOT {missing} AND ({SETTLED})");
        db.wait_at_most(Duration::from_secs(30), "every door has rung", &done);
        let twice = db.column("SELECT id FROM rang GROUP BY id HAVING count(*) > 1");
        assert!(twice.is_empty(), "{point}: rang twice: {twice:?}");
        println!("{point}: {door} doors so far");
    }
}

#[test]
fn a_commit_that_fails_ends_what_was_held() {
    let cluster = Cluster::start();
    let db = porter(&cluster, "300 milliseconds");
    db.execute(
        "CREATE TABLE key (id int PRIMARY KEY);
         INSERT INTO key SELECT generate_series(1, 20, 2);
         ALTER TABLE rang ADD FOREIGN KEY (id) REFERENCES key DEFERRABLE INITIALLY DEFERRED;
         INSERT INTO door SELECT generate_series(1, 20)",
    );
    db.execute("UPDATE door SET state = 'open'");
    db.wait_until(
        "all are over",
        "SELECT count(*) = 20 FROM automation.runs WHERE automation = 'ring' AND ended_at IS NOT NULL",
    );
    db.wait_until("all is settled", SETTLED);
    assert_eq!(db.number("SELECT count(DISTINCT id) FROM rang"), 10);
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE ended_reason = 'commit_failed'"), 10);
}

#[test]
fn the_owner_of_what_is_held_is_dropped() {
    let cluster = Cluster::start();
    let db = porter(&cluster, "1 hour");
    db.execute("INSERT INTO door SELECT generate_series(1, 5)");
    db.execute("UPDATE door SET state = 'open'");
    db.wait_until("all are held", "SELECT count(*) = 5 FROM automation_internal.dwell");
    db.execute("DROP OWNED BY porter");
    db.execute("DROP ROLE porter");
    db.execute("SELECT automation.sweep()");
    db.wait_until("all is settled", SETTLED);
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE ended_reason = 'owner_dropped'"), 5);
}
