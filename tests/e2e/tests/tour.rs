//! A committed change runs an automation, once, soon; nothing else does.

use std::sync::OnceLock;
use std::time::Duration;

use e2e::{Cluster, Worker};
use postgres::fallible_iterator::FallibleIterator;

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

#[test]
fn creating_the_extension_starts_a_conductor_without_a_restart() {
    let db = shared().database("created");
    db.wait_for_workers(Worker::Conductor, 1);
    assert_eq!(
        db.text("SELECT application_name FROM pg_stat_activity WHERE backend_type = 'automation_engine conductor' AND datname = current_database()"),
        "automation_engine conductor (created)"
    );
}

#[test]
fn a_rolled_back_creation_starts_no_conductor() {
    let db = shared().empty_database("rolled_back");
    db.execute("BEGIN; CREATE EXTENSION automation_engine; ROLLBACK");
    // A second database makes the launcher look again, so that its verdict is in. The conductor that it sends to look
    // whether the extension is there may still be leaving.
    let other = shared().database("rolled_back_other");
    other.wait_for_workers(Worker::Conductor, 1);
    db.wait_for_workers(Worker::Conductor, 0);
}

#[test]
fn a_change_that_matches_is_worked_off_and_recorded() {
    let db = shared().database("matching");
    db.execute("CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric, priority text)");
    db.execute("SELECT automation.watch_table('orders')");
    db.execute(
        "SELECT automation.define('big-order',
            trigger => automation.on_updated('orders', filter => $$ new.status becomes 'paid' and new.total > 100 $$),
            steps   => ARRAY[
                automation.sql($$ UPDATE orders SET priority = 'high' WHERE id = {{ new.id }} $$),
                automation.notify('ops', $$ {\"order\": new.id, \"total\": new.total} $$) ])",
    );
    let mut listener = db.client().expect("a connection");
    listener.batch_execute("LISTEN ops").expect("listening");

    db.execute("INSERT INTO orders VALUES (1, 'new', 250), (2, 'new', 50)");
    db.execute("UPDATE orders SET status = 'paid'");
    db.wait_until("the run has completed", "SELECT status = 'completed' FROM automation.runs");
    assert_eq!(db.column("SELECT priority FROM orders ORDER BY id"), ["high", ""]);
    assert_eq!(db.number("SELECT count(*) FROM automation.runs"), 1, "the small order starts no run");
    assert_eq!(db.column("SELECT status FROM automation.run_steps"), ["completed", "completed"]);

    // R004-4: the action notify.
    let mut notifications = listener.notifications();
    let notification = notifications.timeout_iter(Duration::from_secs(30)).next().expect("a connection");
    let payload = notification.expect("a notification came").payload().to_owned();
    assert_eq!(db.text(&format!("SELECT '{payload}'::jsonb = '{{\"order\": 1, \"total\": 250}}'")), "t");
}

#[test]
fn a_rolled_back_change_starts_nothing() {
    let db = shared().database("nothing");
    db.open_shop();
    db.execute("BEGIN; INSERT INTO job DEFAULT VALUES; ROLLBACK");
    db.execute(
        "BEGIN; SAVEPOINT s; INSERT INTO job DEFAULT VALUES; ROLLBACK TO s; INSERT INTO job DEFAULT VALUES; COMMIT",
    );
    db.expect_each_job_done_once();
    assert_eq!(db.number("SELECT count(*) FROM automation.runs"), 1);
}

#[test]
fn a_prepared_transaction_starts_its_run_when_it_is_committed_by_another_session() {
    let db = shared().database("prepared");
    db.open_shop();
    db.execute("BEGIN; INSERT INTO job DEFAULT VALUES; PREPARE TRANSACTION 'later'");
    db.expect_work_goes_on();
    db.disconnect();
    db.another_session().execute("COMMIT PREPARED 'later'");
    db.wait_until("both jobs are there and done", "SELECT count(*) = 2 FROM effect");
    db.expect_each_job_done_once();
}

#[test]
fn databases_do_not_mix() {
    let (one, two) = (shared().database("one"), shared().database("two"));
    one.open_shop();
    two.open_shop();
    one.add_jobs(20);
    two.add_jobs(30);
    one.expect_each_job_done_once();
    two.expect_each_job_done_once();
    assert_eq!(one.number("SELECT count(*) FROM automation.runs"), 20);
    assert_eq!(two.number("SELECT count(*) FROM automation.runs"), 30);
}
