//! A run that cannot get a lock is tried again as often as it takes, and holds up no other run.

use e2e::{Cluster, Database};

const SHOP: &str = "
    CREATE ROLE clerk LOGIN;
    ALTER ROLE clerk SET lock_timeout = '50ms';
    CREATE TABLE shelf (id int PRIMARY KEY, taken int NOT NULL DEFAULT 0);
    INSERT INTO shelf (id) VALUES (1), (2);
    CREATE TABLE wish (id int PRIMARY KEY, shelf int NOT NULL);
    GRANT SELECT ON wish TO clerk;
    GRANT SELECT, UPDATE ON shelf TO clerk;
    SELECT automation.watch_table('wish');
    SELECT automation.define('take', run_as => 'clerk', trigger => automation.on_created('wish'),
        steps => ARRAY[automation.sql($$ UPDATE shelf SET taken = taken + 1 WHERE id = {{ new.shelf }} $$)])";

#[test]
fn a_lock_that_is_held_for_long_fails_no_run_and_holds_up_no_other() {
    let cluster = Cluster::start();
    let db = cluster.database("locks");
    db.execute(SHOP);
    let holder = db.another_session();
    holder.execute("BEGIN; UPDATE shelf SET taken = taken WHERE id = 1");
    db.execute("INSERT INTO wish VALUES (1, 1)");
    // The entry comes after eight tries in some three seconds: failing that often must not end the run.
    db.wait_until(
        "the log says that the run is tried again",
        "SELECT EXISTS (SELECT FROM automation.log WHERE code = 'tried_again' AND message LIKE '%lock timeout%')",
    );
    assert!(db.boolean("SELECT every(status IN ('pending', 'running')) FROM automation.runs"));
    db.execute("INSERT INTO wish VALUES (2, 2)");
    db.wait_until("the other run is done", "SELECT taken = 1 FROM shelf WHERE id = 2");
    holder.execute("COMMIT");
    db.wait_until("the run gets through", "SELECT taken = 1 FROM shelf WHERE id = 1");
    db.wait_until("both are completed", "SELECT count(*) = 2 FROM automation.runs WHERE status = 'completed'");
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE status = 'failed'"), 0);
    let repeats = cluster.log().lines().filter(|line| line.contains("automation_engine executor: ")).count();
    assert!(repeats <= 2, "{repeats} warnings\n{}", cluster.log_tail());
}

#[test]
fn a_run_with_a_timeout_is_not_tried_for_longer() {
    let cluster = Cluster::start();
    let db = cluster.database("locks");
    db.execute(SHOP);
    db.execute(
        "SELECT automation.define('take', run_as => 'clerk', timeout => '1 second', trigger => automation.on_created('wish'),
             steps => ARRAY[automation.sql($$ UPDATE shelf SET taken = taken + 1 WHERE id = {{ new.shelf }} $$)])",
    );
    let holder = db.another_session();
    holder.execute("BEGIN; UPDATE shelf SET taken = taken WHERE id = 1");
    db.execute("INSERT INTO wish VALUES (1, 1)");
    db.wait_until(
        "the run has timed out",
        "SELECT EXISTS (SELECT FROM automation.runs WHERE status = 'failed' AND ended_reason = 'timed_out')",
    );
    holder.execute("COMMIT");
    assert_eq!(db.number("SELECT taken FROM shelf WHERE id = 1"), 0);
}

/// Adds an automation of the same owner that needs no lock.
fn add_notes(db: &Database<'_>) {
    db.execute(
        "CREATE TABLE note (id int PRIMARY KEY);
         CREATE TABLE copy (id int);
         GRANT SELECT ON note TO clerk;
         GRANT INSERT ON copy TO clerk;
         SELECT automation.watch_table('note');
         SELECT automation.define('copy', run_as => 'clerk', trigger => automation.on_created('note'),
             steps => ARRAY[automation.sql('INSERT INTO copy VALUES ({{ new.id }})')])",
    );
}

fn expect_notes_copied(db: &Database<'_>, count: u32) {
    db.execute(&format!("INSERT INTO note SELECT generate_series(1, {count})"));
    db.wait_until("runs that need no lock are done", &format!("SELECT count(*) = {count} FROM copy"));
}

#[test]
fn a_slow_run_that_waits_for_a_lock_at_the_head_of_the_queue_holds_up_no_other() {
    let cluster = Cluster::start();
    let db = cluster.database("locks");
    db.execute(SHOP);
    add_notes(&db);
    // So long that the automation gets transactions of its own.
    db.execute("ALTER ROLE clerk SET lock_timeout = '300ms'");
    let holder = db.another_session();
    holder.execute("BEGIN; UPDATE shelf SET taken = taken WHERE id = 1");
    db.execute("INSERT INTO wish VALUES (1, 1)");
    db.wait_until(
        "the run was tried several times",
        "SELECT EXISTS (SELECT FROM automation.log WHERE code = 'tried_again')",
    );
    expect_notes_copied(&db, 200);
    assert!(db.boolean("SELECT status IN ('pending', 'running') FROM automation.runs WHERE automation = 'take'"));
    holder.execute("COMMIT");
    db.wait_until("the run gets through", "SELECT taken = 1 FROM shelf WHERE id = 1");
}

#[test]
fn many_changes_of_an_entity_behind_a_run_that_waits_for_a_lock_hide_no_other_run() {
    let cluster = Cluster::start();
    let db = cluster.database("locks");
    db.execute(SHOP);
    add_notes(&db);
    db.execute(
        "SELECT automation.define('take', run_as => 'clerk', trigger => automation.on_changed('wish'),
             steps => ARRAY[automation.sql($$ UPDATE shelf SET taken = taken + 1 WHERE id = 1 $$)])",
    );
    let holder = db.another_session();
    holder.execute("BEGIN; UPDATE shelf SET taken = taken WHERE id = 1");
    db.execute("INSERT INTO wish VALUES (1, 0)");
    for change in 1..=60 {
        db.execute(&format!("UPDATE wish SET shelf = {change} WHERE id = 1"));
    }
    db.wait_until(
        "the run was tried several times",
        "SELECT EXISTS (SELECT FROM automation.log WHERE code = 'tried_again')",
    );
    expect_notes_copied(&db, 5);
    holder.execute("COMMIT");
    db.wait_until("every change gets through", "SELECT taken = 61 FROM shelf WHERE id = 1");
}

#[test]
fn a_run_that_waits_for_a_lock_after_a_start_of_the_server_holds_up_no_other() {
    let cluster = Cluster::start();
    let db = cluster.database("locks");
    db.execute(SHOP);
    add_notes(&db);
    cluster.reload(&[("automation_engine.enabled", "off")]);
    db.execute("INSERT INTO wish VALUES (1, 1)");
    cluster.restart();
    let holder = db.another_session();
    holder.execute("BEGIN; UPDATE shelf SET taken = taken WHERE id = 1");
    cluster.reload(&[("automation_engine.enabled", "on")]);
    db.wait_until(
        "the run was tried several times",
        "SELECT EXISTS (SELECT FROM automation.log WHERE code = 'tried_again')",
    );
    expect_notes_copied(&db, 5);
    holder.execute("COMMIT");
    db.wait_until("the run gets through", "SELECT taken = 1 FROM shelf WHERE id = 1");
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE status = 'failed'"), 0);
}
