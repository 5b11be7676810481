//! The gates between an event and a run, with workers: counts and exclusions are exact with any number of executors and
//! any process killed; an automation that feeds itself is stopped; no tenant waits for another tenant's backlog.

use std::thread;
use std::time::Duration;

use e2e::{Cluster, Database, Signal, Worker};

const PATIENCE: Duration = Duration::from_secs(60);

fn prepared<'c>(cluster: &'c Cluster, sql: &str) -> Database<'c> {
    let db = cluster.database("gates");
    db.execute(sql);
    db
}

/// 400 partitions, each crossed once, by four executors that are killed now and then.
#[test]
fn a_window_fires_once_per_crossing_whatever_is_killed() {
    let cluster = Cluster::start();
    let db = prepared(
        &cluster,
        "CREATE TABLE login (id int PRIMARY KEY, who int);
         CREATE TABLE alarm (who int);
         SELECT automation.watch_table('login');
         SELECT automation.define('guess', trigger => automation.on_created('login', window_count => 5,
                window_within => '1 hour', window_per => 'new.who', refire => 'once'),
                steps => ARRAY[automation.sql('INSERT INTO alarm VALUES ({{ new.who }})')])",
    );
    for round in 0..10 {
        let first = round * 400;
        db.execute(&format!("INSERT INTO login SELECT g, g % 400 FROM generate_series({first}, {first} + 399) AS g"));
        if round % 3 == 1
            && let Some(pid) = db.worker_pids(Worker::Executor).first()
        {
            e2e::kill(*pid, Signal::Kill);
            cluster.wait_until_back(db.name(), || true);
        }
    }
    db.wait_until_drained(PATIENCE);
    // G9, R000-43, R000-46, R000-47: each emission is counted once, whichever executor counts it and however often.
    assert_eq!(db.number("SELECT count(*) FROM automation_internal.window_event"), 4000);
    // R000-42: `once` fires when the threshold is crossed.
    assert_eq!(db.number("SELECT count(*) FROM alarm"), 400);
    assert_eq!(db.number("SELECT count(DISTINCT who) FROM alarm"), 400);
}

/// D13, G5: commits that take 30 ms, so that runs end in one executor while the next ones of their keys join the queue
/// in others.
#[test]
fn no_queued_run_loses_its_turn_to_a_slow_commit() {
    let cluster = Cluster::build().setting("automation_engine.executors", "4").start();
    let db = prepared(
        &cluster,
        "CREATE TABLE task (id int PRIMARY KEY, line int);
         CREATE TABLE step (n bigserial, id int, line int);
         CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.03); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON step DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION slow_commit();
         SELECT automation.watch_table('task');
         SELECT automation.define('line', mode => 'queued', key => 'new.line', max_runs => 1000,
             trigger => automation.on_created('task'),
             steps => ARRAY[
                 automation.delay('20 milliseconds'),
                 automation.sql('INSERT INTO step (id, line) VALUES ({{ new.id }}, {{ new.line }})')])",
    );
    for task in 0..200 {
        db.execute(&format!("INSERT INTO task VALUES ({task}, {task} % 5)"));
        thread::sleep(Duration::from_millis(15));
    }
    db.wait_at_most(PATIENCE, "all have ended", "SELECT count(*) = 200 FROM step");
    let wrong = "SELECT count(*) FROM (SELECT id, lag(id) OVER (PARTITION BY line ORDER BY n) AS before FROM step) AS s
                  WHERE id <= before";
    assert_eq!(db.number(wrong), 0, "{:?}", db.rows("SELECT * FROM step ORDER BY line, n LIMIT 40"));
    db.expect_nothing_rescued();
}

/// D13: one run of a key at a time, in the order in which they came, through kills.
#[test]
fn queued_runs_of_a_key_go_one_after_the_other_in_order() {
    let cluster = Cluster::start();
    let db = prepared(
        &cluster,
        "CREATE TABLE task (id int PRIMARY KEY, line int);
         CREATE TABLE step (n bigserial, id int, line int, what text);
         SELECT automation.watch_table('task');
         SELECT automation.define('line', mode => 'queued', key => 'new.line', max_runs => 1000,
             trigger => automation.on_created('task'),
             steps => ARRAY[
                 automation.sql('INSERT INTO step (id, line, what) VALUES ({{ new.id }}, {{ new.line }}, ''begin'')'),
                 automation.delay('20 milliseconds'),
                 automation.sql('INSERT INTO step (id, line, what) VALUES ({{ new.id }}, {{ new.line }}, ''end'')')])",
    );
    for round in 0..10 {
        let first = round * 20;
        db.execute(&format!("INSERT INTO task SELECT g, g % 5 FROM generate_series({first}, {first} + 19) AS g"));
        thread::sleep(Duration::from_millis(30));
        if round == 3 {
            db.signal_worker(Worker::Conductor, Signal::Term);
        }
        if round == 6 {
            cluster.crash();
            cluster.start_again();
        }
    }
    db.wait_at_most(PATIENCE, "all have ended", "SELECT count(*) = 400 FROM step");
    // Within a line: begin and end of one before begin of the next, in the order of the tasks.
    let wrong = "SELECT count(*)
          FROM (SELECT id, what, row_number() OVER (PARTITION BY line ORDER BY n) AS place FROM step) AS s
         WHERE (id / 5) <> (place - 1) / 2 OR what <> CASE WHEN place % 2 = 1 THEN 'begin' ELSE 'end' END";
    assert_eq!(db.number(wrong), 0, "{:?}", db.rows("SELECT * FROM step ORDER BY line, n LIMIT 40"));
    db.expect_nothing_rescued();
}

/// An automation that updates the rows that it reacts to, and a pair that plays ping-pong, are paused by the
/// system after one hot run each; an innocent one goes on.
#[test]
fn what_feeds_itself_is_paused_and_nothing_else() {
    let cluster = Cluster::build().setting("automation_engine.max_chain_depth", "1000").start();
    let db = prepared(
        &cluster,
        "CREATE TABLE item (id int PRIMARY KEY, n int);
         CREATE TABLE effect (id int);
         INSERT INTO item VALUES (1, 0);
         SELECT automation.watch_table('item');
         SELECT automation.define('self', trigger => automation.on_updated('item'),
             steps => ARRAY[automation.sql('UPDATE item SET n = n + 1 WHERE id = {{ new.id }}')]);
         SELECT automation.define('ping', trigger => automation.on_event('table.ping'),
             steps => ARRAY[automation.publish('table.pong')]);
         SELECT automation.define('pong', trigger => automation.on_event('table.pong'),
             steps => ARRAY[automation.publish('table.ping')]);
         SELECT automation.define('innocent', trigger => automation.on_created('item'),
             steps => ARRAY[automation.sql('INSERT INTO effect VALUES ({{ new.id }})')]);",
    );
    db.execute("UPDATE item SET n = 1; SELECT automation.emit('table.ping')");
    db.execute("INSERT INTO item SELECT g, 0 FROM generate_series(2, 1000) AS g");
    db.wait_at_most(
        PATIENCE,
        "both loops are stopped",
        "SELECT count(*) = 2 FROM automation.automations WHERE status = 'paused'",
    );
    db.wait_until_drained(PATIENCE);
    // R002-12, R002-15: paused, by the system.
    let shown = "SELECT name || ' ' || coalesce(disabled_by, '-') || ' ' || coalesce(disable_details ->> 'check', '-')
                   FROM automation.automations ORDER BY name";
    let told = db.column(shown);
    assert!(told.contains(&"self system own_writes".to_owned()), "{told:?}");
    assert!(told.contains(&"innocent - -".to_owned()), "{told:?}");
    // R002-16, R002-17: one hot execution each, of which nothing was executed.
    let hot = "SELECT automation FROM automation.runs WHERE status = 'hot' ORDER BY 1";
    assert_eq!(db.column(hot).len(), 2, "{:?}", db.column(hot));
    // The first run was caused by a person, twenty by the automation itself; nothing was executed after that.
    assert_eq!(db.number("SELECT n FROM item WHERE id = 1"), 22);
    assert_eq!(db.number("SELECT count(*) FROM effect"), 999);
}

/// One tenant with a long queue delays another's by little: about half of the runs that are served meanwhile are its
/// own.
#[test]
fn a_tenant_does_not_wait_for_anothers_backlog() {
    let cluster = Cluster::build().setting("automation_engine.executors", "2").start();
    let db = prepared(
        &cluster,
        "CREATE TABLE item (id int PRIMARY KEY, who text);
         CREATE TABLE effect (n bigserial, who text);
         SELECT automation.watch_table('item', tenant_column => 'who');
         SELECT automation.define('serve', trigger => automation.on_created('item'),
             steps => ARRAY[automation.sql('INSERT INTO effect (who) VALUES ({{ new.who }})')])",
    );
    // All of it is queued before the small one comes.
    cluster.reload(&[("automation_engine.executors", "0")]);
    db.execute("INSERT INTO item SELECT g, 'big' FROM generate_series(1, 50000) AS g");
    db.wait_at_most(PATIENCE, "all is queued", "SELECT count(*) = 50000 FROM automation_internal.dispatch");
    db.execute("INSERT INTO item SELECT g, 'small' FROM generate_series(100001, 101000) AS g");
    db.wait_at_most(PATIENCE, "all is queued", "SELECT count(*) = 51000 FROM automation_internal.dispatch");
    cluster.reload(&[("automation_engine.executors", "2")]);
    db.wait_until_drained(PATIENCE);
    let before = db.number(
        "SELECT count(*) FROM effect WHERE who = 'big' AND n < (SELECT max(n) FROM effect WHERE who = 'small')",
    );
    // Two executors have claimed batches of a hundred each.
    assert!(before <= 1500, "{before} of the big tenant's were served before the last of the small one's");
    assert_eq!(db.number("SELECT count(*) FROM effect"), 51000);
}
