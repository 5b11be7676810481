//! Triggers by the clock, with workers (G8): a tick fires once, never early, no matter which process is killed and
//! when; missed ticks are made up for as the definition says; runs that must not overlap do not; and nothing is done
//! until the next tick.

use std::thread;
use std::time::{Duration, Instant};

use e2e::{Cluster, Database, Shutdown, Signal, Worker, kill};

/// Points at which a tick, or its run afterwards, can be cut off.
const POINTS: &[&str] =
    &["ticks_taken", "tick", "route_written", "route_advanced", "claimed", "written", "before_commit"];

/// A tick every second, whose runs write down which tick they are of.
const SECOND: &str = "
    CREATE TABLE effect (tick timestamptz NOT NULL, made_up boolean NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
    SELECT automation.define('second', trigger => automation.on_cron('* * * * * *', overlap => 'allow'), steps => ARRAY[
        automation.sql('INSERT INTO effect VALUES (({{ payload.scheduled_at }})::timestamptz, {{ payload.made_up }})')])";

/// Waits until so many more ticks have taken effect.
#[track_caller]
fn wait_for_ticks(db: &Database<'_>, more: i64) {
    let before = db.text("SELECT coalesce(max(tick), '-infinity') FROM effect");
    db.wait_until("it ticks", &format!("SELECT count(*) >= {more} FROM effect WHERE tick > '{before}'"));
}

/// Every second since the first tick was dealt with once, and every tick that started a run had one effect.
#[track_caller]
fn expect_every_tick_once(db: &Database<'_>) {
    db.execute("SELECT automation.pause('second')");
    db.wait_until("the last runs have ended", "SELECT NOT EXISTS (SELECT FROM automation_internal.dispatch)");
    const LEFT_OUT: &str = "
        SELECT s FROM generate_series((SELECT min(tick) FROM automation.ticks), (SELECT max(tick) FROM automation.ticks),
                                      interval '1 second') AS s
        EXCEPT SELECT tick FROM automation.ticks";
    assert_eq!(db.column(LEFT_OUT), [""; 0], "no second is left out");
    let unequal = "SELECT tick FROM automation.ticks WHERE status = 'started' EXCEPT ALL SELECT tick FROM effect";
    assert_eq!(db.column(unequal), [""; 0], "a tick that started had its effect");
    let unequal = "SELECT tick FROM effect EXCEPT ALL SELECT tick FROM automation.ticks WHERE status = 'started'";
    assert_eq!(db.column(unequal), [""; 0], "and no other, and none twice");
    assert_eq!(db.number("SELECT count(*) FROM effect WHERE at < tick"), 0, "a tick was early");
    let status = "SELECT count(*) FROM automation.runs WHERE automation = 'second' AND status <> 'completed'";
    assert_eq!(db.number(status), 0);
    assert_eq!(
        db.number("SELECT count(*) FROM automation.ticks WHERE status NOT IN ('started', 'missed')"),
        0,
        "nothing else became of any"
    );
}

#[test]
fn a_tick_fires_once_whatever_is_killed() {
    let cluster = Cluster::start();
    let db = cluster.database("ticking");
    db.execute(SECOND);
    wait_for_ticks(&db, 2);
    // The conductor alone goes and comes back.
    db.signal_worker(Worker::Conductor, Signal::Term);
    wait_for_ticks(&db, 2);
    // Killed, it takes the server with it.
    let crashes = cluster.crashes();
    db.signal_worker(Worker::Conductor, Signal::Kill);
    cluster.wait_until_back(db.name(), || cluster.crashes() > crashes);
    wait_for_ticks(&db, 2);
    for point in POINTS {
        let crashes = cluster.crashes();
        cluster.set(&[("automation_engine.failpoint", &format!("{point}=kill"))]);
        for worker in [Worker::Conductor, Worker::Executor] {
            db.worker_pids(worker).into_iter().for_each(|pid| kill(pid, Signal::Hup));
        }
        let began = Instant::now();
        while cluster.crashes() == crashes {
            thread::sleep(Duration::from_millis(5));
            assert!(began.elapsed() < Duration::from_secs(30), "nothing passes {point}\n{}", cluster.log_tail());
        }
        cluster.set(&[("automation_engine.failpoint", "")]);
        let back = cluster.wait_until_back(db.name(), || cluster.crashes() > crashes);
        wait_for_ticks(&db, 1);
        println!("{point}: a tick {} ms after the server was back", back.elapsed().as_millis());
    }
    // All of the server at once, with the WAL that it had not flushed.
    cluster.crash();
    cluster.start_again();
    wait_for_ticks(&db, 2);
    expect_every_tick_once(&db);
    // A busy machine may hold up any of them, but not all.
    let late = db.number("SELECT (extract(epoch FROM min(at - tick)) * 1000)::bigint FROM effect WHERE NOT made_up");
    println!("the least that a tick was late: {late} ms");
    assert!(late <= 1000, "every tick was late, the best of them by {late} ms");
}

#[test]
fn what_was_missed_is_made_up_for_as_the_definition_says() {
    let cluster = Cluster::start();
    let db = cluster.database("missing");
    db.execute("CREATE TABLE effect (automation text, tick timestamptz, made_up boolean, missed int)");
    for (name, missed) in [("once", "once"), ("skip", "skip"), ("all", "all"), ("three", "all 3")] {
        db.execute(&format!(
            "SELECT automation.define('{name}', trigger => automation.on_cron('*/2 * * * * *', missed => '{missed}', overlap => 'queue'),
                 steps => ARRAY[automation.sql($$ INSERT INTO effect VALUES ('{name}', ({{{{ payload.scheduled_at }}}})::timestamptz,
                     {{{{ payload.made_up }}}}, {{{{ payload.missed }}}}) $$)])"
        ));
    }
    db.wait_until("all tick", "SELECT count(DISTINCT automation) = 4 FROM effect");
    // Longer than a tick may be late and still count as on time.
    let last = db.text("SELECT min(last) FROM (SELECT max(tick) AS last FROM effect GROUP BY automation) AS l");
    cluster.stop(Shutdown::Fast);
    thread::sleep(Duration::from_secs(14));
    cluster.start_again();
    db.wait_until(
        "all tick again",
        &format!("SELECT count(DISTINCT automation) = 4 FROM effect WHERE tick > '{last}'::timestamptz + interval '16 seconds'"),
    );
    db.execute("SELECT automation.pause(name) FROM automation.automations");
    db.wait_until("the last runs have ended", "SELECT NOT EXISTS (SELECT FROM automation_internal.dispatch)");
    for (name, none_left_out) in [("once", false), ("skip", false), ("all", true), ("three", false)] {
        let missed = db.number(&format!(
            "SELECT count(*) FROM automation.ticks WHERE automation = '{name}' AND status = 'missed'"
        ));
        let told = db.number(&format!("SELECT coalesce(sum(missed), 0) FROM effect WHERE automation = '{name}'"));
        assert_eq!(missed == 0, none_left_out, "{name}: {missed} were missed");
        assert_eq!(missed, told, "{name}: a run is told how many were missed before it");
        let seconds = format!(
            "SELECT count(*) FROM (SELECT tick - lag(tick) OVER (ORDER BY tick) AS d FROM automation.ticks WHERE automation = '{name}') AS t WHERE d <> interval '2 seconds'"
        );
        assert_eq!(db.number(&seconds), 0, "{name}: every tick is recorded");
        let unequal = format!(
            "SELECT tick FROM automation.ticks WHERE automation = '{name}' AND status = 'started'
             EXCEPT ALL SELECT tick FROM effect WHERE automation = '{name}'"
        );
        assert_eq!(db.column(&unequal), [""; 0], "{name}: what started had its effect");
    }
    let together = db.number("SELECT count(*) FROM effect WHERE automation = 'all' AND made_up");
    assert!(together >= 6, "only {together} ticks were made up for");
}

#[test]
fn runs_of_a_schedule_do_not_overlap_unless_they_may() {
    let cluster = Cluster::start();
    let db = cluster.database("slow");
    for overlap in ["skip", "queue", "allow"] {
        db.execute(&format!(
            "SELECT automation.define('{overlap}', trigger => automation.on_interval('1 second', overlap => '{overlap}'),
                 steps => ARRAY[automation.delay('1600 milliseconds')])"
        ));
    }
    db.wait_until(
        "several have ended",
        "SELECT count(*) = 3 FROM (SELECT FROM automation.runs WHERE status = 'completed' GROUP BY automation HAVING count(*) >= 3) AS a",
    );
    const TOGETHER: &str = "
        SELECT DISTINCT a.automation FROM automation.runs AS a
          JOIN automation.runs AS b ON b.automation = a.automation AND b.id > a.id AND b.started_at < coalesce(a.ended_at, 'infinity')";
    assert_eq!(db.column(TOGETHER), ["allow"]);
    const SKIPPED: &str =
        "SELECT DISTINCT automation FROM automation.ticks WHERE status = 'skipped' AND reason LIKE 'overlap: %'";
    assert_eq!(db.column(SKIPPED), ["skip"]);
    const QUEUED: &str = "SELECT DISTINCT automation FROM automation.ticks WHERE status = 'queued'";
    assert_eq!(db.column(QUEUED), ["queue"]);
    const IN_ORDER: &str = "
        SELECT count(*) FROM automation.ticks AS a
          JOIN automation.ticks AS b ON b.automation = a.automation AND b.tick > a.tick AND b.run_id < a.run_id";
    assert_eq!(db.number(IN_ORDER), 0, "ticks start in their order");
}

#[test]
fn nothing_is_done_until_the_next_tick() {
    // Autovacuum has transactions of its own.
    let cluster = Cluster::build().setting("autovacuum", "off").start();
    let db = cluster.database("calm");
    for n in 0..10 {
        db.execute(&format!(
            "SELECT automation.define('yearly_{n}', trigger => automation.on_cron('0 0 1 1 *', timezone => 'Pacific/Chatham'),
                 steps => ARRAY[automation.publish('happy.new.year')])"
        ));
    }
    // One that has ticked a while ago, too.
    db.execute("SELECT automation.define('hourly', trigger => automation.on_interval('1 second'), steps => ARRAY[automation.publish('tick')])");
    db.wait_until("it ticks", "SELECT EXISTS (SELECT FROM automation.runs)");
    db.execute("SELECT automation.define('hourly', trigger => automation.on_interval('1 hour'), steps => ARRAY[automation.publish('tick')])");
    assert_eq!(db.number("SELECT count(*) FROM automation.timers WHERE reason LIKE 'tick of %' AND due_in > '0'"), 11);
    db.disconnect();
    // R000-1, R000-30: the next tick is a timer, not a question that is asked again and again.
    cluster.expect_no_transactions("calm", "no tick is due");
}
