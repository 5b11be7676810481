//! The extension or the whole database may vanish, move or come back while the engine works.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use e2e::{AT_ONCE, Cluster, Database, Worker, in_background};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

/// Runs `body` while another session adds jobs as fast as it can.
fn under_load(database: &str, body: impl FnOnce()) {
    // The INSERT may fail because the extension is half gone; the test is that the server stays up.
    let write = || drop(shared().connect(database).try_execute(&"INSERT INTO job DEFAULT VALUES;".repeat(10)));
    in_background(1, write, body);
}

fn timed(db: &Database<'_>, sql: &str) -> Duration {
    let began = Instant::now();
    db.execute(sql);
    began.elapsed()
}

#[test]
fn the_extension_can_be_dropped_under_load_and_created_again() {
    let db = shared().database("recreated");
    db.open_shop();
    for _ in 0..3 {
        under_load("recreated", || {
            db.wait_until("there is work done", "SELECT EXISTS (SELECT FROM effect)");
            let took = timed(&db, "DROP EXTENSION automation_engine CASCADE");
            assert!(took < AT_ONCE, "DROP EXTENSION took {took:?}");
        });
        db.wait_for_workers(Worker::Conductor, 0);
        db.wait_for_workers(Worker::Executor, 0);
        db.execute("TRUNCATE job, effect");
        db.execute("CREATE EXTENSION automation_engine");
        db.reopen_shop();
        db.expect_work_goes_on();
    }
    assert!(!shared().log().contains("terminated by signal"), "{}", shared().log_tail());
}

#[test]
fn a_dropped_and_recreated_extension_is_noticed_even_within_one_transaction() {
    let db = shared().database("swapped");
    db.open_shop();
    db.expect_work_goes_on();
    db.execute("TRUNCATE job, effect");
    db.execute("BEGIN; DROP EXTENSION automation_engine CASCADE; CREATE EXTENSION automation_engine; COMMIT");
    db.reopen_shop();
    db.expect_work_goes_on();
}

#[test]
fn dropping_its_database_is_not_held_up_by_workers() {
    let db = shared().database("dropped");
    db.open_shop();
    db.add_jobs(100);
    db.expect_each_job_done_once();
    db.disconnect();
    let took = timed(&shared().connect("postgres"), "DROP DATABASE dropped");
    assert!(took < AT_ONCE, "DROP DATABASE took {took:?}");
}

#[test]
fn dropping_its_database_by_force_during_a_step_works() {
    let db = shared().database("forced");
    db.open_shop();
    db.set_pace(3600);
    db.add_jobs(3);
    db.wait_until_a_step_sleeps();
    db.disconnect();
    let took = timed(&shared().connect("postgres"), "DROP DATABASE forced WITH (FORCE)");
    assert!(took < AT_ONCE, "DROP DATABASE took {took:?}");
}

#[test]
fn dropping_another_database_does_not_wait_for_a_step_here() {
    let db = shared().database("here");
    let other = shared().empty_database("elsewhere");
    db.open_shop();
    db.set_pace(3600);
    db.add_jobs(1);
    db.wait_until_a_step_sleeps();
    db.set_pace(0);
    other.disconnect();
    let took = timed(&shared().connect("postgres"), "DROP DATABASE elsewhere");
    assert!(took < AT_ONCE, "DROP DATABASE took {took:?}");
}

#[test]
fn a_renamed_database_is_served_under_its_new_name() {
    let db = shared().database("old_name");
    db.open_shop();
    db.expect_work_goes_on();
    db.disconnect();
    shared().connect("postgres").execute("ALTER DATABASE old_name RENAME TO new_name");
    let db = shared().connect("new_name");
    db.expect_work_goes_on();
    db.wait_until(
        "the conductor is named after it",
        "SELECT application_name = 'automation_engine conductor (new_name)' FROM pg_stat_activity
          WHERE backend_type = 'automation_engine conductor' AND datname = current_database()",
    );
    db.disconnect();
    shared().connect("postgres").execute("DROP DATABASE new_name WITH (FORCE)");
}

/// Creates databases without the extension, each a copy of an empty one.
fn fill_with_databases(cluster: &Cluster, prefix: &str, count: usize) {
    let db = cluster.connect("postgres");
    for number in 0..count {
        db.execute(&format!("CREATE DATABASE {prefix}{number} TEMPLATE template0"));
    }
}

#[test]
fn seventy_databases_come_and_go_and_the_last_one_works() {
    let cluster = Cluster::start();
    // As a role with CREATEDB would, and with the launcher looking at them meanwhile.
    fill_with_databases(&cluster, "crowd", 70);
    let postgres = cluster.connect("postgres");
    // The first ones have lost their slots to the later ones by now; they get the extension all the same.
    for name in ["crowd0", "crowd69"] {
        let db = cluster.connect(name);
        db.execute("CREATE EXTENSION automation_engine");
        db.open_shop();
        db.expect_work_goes_on();
        db.disconnect();
    }
    for number in 1..69 {
        postgres.execute(&format!("DROP DATABASE crowd{number}"));
    }
    let last = cluster.database("last");
    last.open_shop();
    last.expect_work_goes_on();
    for name in ["crowd0", "crowd69"] {
        cluster.connect(name).expect_work_goes_on();
    }
    assert!(!cluster.log().contains("slots are taken"), "{}", cluster.log_tail());
}

#[test]
fn a_database_without_a_slot_says_so_and_works_once_there_is_one() {
    // Leaves three slots of all.
    let cluster = Cluster::build().setting("automation_engine.failpoint", "slots=skip").start();
    fill_with_databases(&cluster, "bystander", 4);
    let served: Vec<_> = ["one", "two", "three"].map(|name| cluster.database(name)).into();
    for db in &served {
        db.open_shop();
        db.expect_work_goes_on();
    }
    let fourth = cluster.database("four");
    fourth.open_shop();
    fourth.wait_until(
        "status() says why nothing runs",
        "SELECT EXISTS (SELECT FROM automation.status() WHERE item = 'conductor' AND status = 'no slot'
                           AND detail LIKE '%DROP EXTENSION%')",
    );
    // The launcher says it when it looks, which is at most ten seconds later.
    let began = Instant::now();
    while !cluster.log().contains("cannot look at database \"four\"") {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", cluster.log_tail());
        std::thread::sleep(Duration::from_millis(20));
        // Its looks follow transactions.
        fourth.execute("SELECT pg_current_xact_id()");
    }
    fourth.add_jobs(3);
    served[1].execute("DROP EXTENSION automation_engine CASCADE");
    fourth.expect_each_job_done_once();
    for db in [&served[0], &served[2]] {
        db.expect_work_goes_on();
    }
}

#[test]
fn an_open_change_of_a_databases_options_keeps_no_worker_away() {
    let cluster = Cluster::start();
    let db = cluster.database("limited");
    db.open_shop();
    db.expect_work_goes_on();
    let conductor = db.worker_pid(Worker::Conductor);
    for option in ["CONNECTION LIMIT 100", "IS_TEMPLATE false", "ALLOW_CONNECTIONS true", "OWNER TO postgres"] {
        let owner = db.another_session();
        owner.execute(&format!("BEGIN; ALTER DATABASE limited {option}"));
        db.expect_work_goes_on();
        owner.execute("ROLLBACK");
    }
    assert_eq!(db.worker_pid(Worker::Conductor), conductor);
    // This one does need the database alone, and cannot stay open.
    db.disconnect();
    let space = cluster.socket_directory().join("space");
    let space = space.to_str().expect("a path in UTF-8");
    let postgres = cluster.connect("postgres");
    postgres.execute(&format!("COPY (SELECT 1) TO PROGRAM 'mkdir {space}'"));
    postgres.execute(&format!("CREATE TABLESPACE elsewhere LOCATION '{space}'"));
    postgres.execute("ALTER DATABASE limited SET TABLESPACE elsewhere");
    db.expect_work_goes_on();
    db.disconnect();
    postgres.execute("ALTER DATABASE limited SET TABLESPACE pg_default");
    db.expect_work_goes_on();
}
