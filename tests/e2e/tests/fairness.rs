//! No role stops the others: filters, however dear, hold up neither other owners' automations nor the end of a worker.

use std::sync::OnceLock;

use e2e::{Cluster, Database, Worker, is_alive};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

fn author<'c>(db: &Database<'c>, role: &str) -> Database<'c> {
    db.execute(&format!(
        "CREATE ROLE {role} LOGIN;
         CREATE SCHEMA AUTHORIZATION {role};
         SELECT automation.grant_usage('{role}', tier => 'author')"
    ));
    db.as_role(role)
}

/// Has a role listen with a filter that would take minutes if it were let, and gives it something to filter.
fn set_trap(mallory: &Database<'_>) {
    let dear = "matches(payload.t, '(?:[ab]{0,500}a[ab]{500})[^a-b]')";
    let filter = vec![dear; 20].join(" or ");
    mallory.execute(&format!(
        "SELECT automation.define('trap', steps => ARRAY[automation.sql('SELECT 1')],
             trigger => automation.on_event('trap', filter => $f$ {filter} $f$));
         SELECT automation.emit('trap', jsonb_build_object('t', repeat('ab', 500000))) FROM generate_series(1, 20)"
    ));
}

#[test]
fn a_dear_filter_is_paused_while_the_automations_of_others_go_on() {
    let db = shared().database("dear_filter");
    db.open_shop();
    let mallory = author(&db, "dear_mallory");
    set_trap(&mallory);
    db.expect_work_goes_on();
    db.wait_until(
        "the automation is paused with its reason",
        "SELECT status = 'paused' AND disabled_by = 'system' AND disable_details ->> 'reason' = 'filter_too_slow'
           FROM automation.automations WHERE name = 'trap'",
    );
}

#[test]
fn a_conductor_that_asks_dear_filters_obeys_pg_terminate_backend() {
    let db = shared().database("dear_and_ended");
    db.open_shop();
    let mallory = author(&db, "dear_oscar");
    let pid = db.worker_pid(Worker::Conductor);
    set_trap(&mallory);
    db.execute(&format!("SELECT pg_terminate_backend({pid})"));
    db.wait_until(
        "the process is gone",
        &format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})"),
    );
    assert!(!is_alive(pid) || db.worker_pid(Worker::Conductor) != pid);
    db.expect_work_goes_on();
}

#[test]
fn a_pause_that_another_session_prevents_stops_the_filter_all_the_same() {
    let db = shared().database("dear_and_locked");
    db.open_shop();
    let mallory = author(&db, "dear_eve");
    mallory.execute("SELECT automation.define('trap', trigger => automation.on_event('other'), steps => ARRAY[automation.sql('SELECT 1')])");
    set_trap(&mallory);
    // A session that has the row of the automation locked: the engine cannot pause it, and must not wait either.
    let mut holder = db.client().expect("a session");
    let mut held = holder.transaction().expect("a transaction");
    held.batch_execute("SELECT FROM automation_internal.automation WHERE name = 'trap' FOR UPDATE").expect("the lock");
    mallory.execute(
        "SELECT automation.emit('trap', jsonb_build_object('t', repeat('ab', 500000))) FROM generate_series(1, 500)",
    );
    db.expect_work_goes_on();
    held.rollback().expect("the end of the lock");
    mallory.execute("SELECT automation.emit('trap', '{\"t\": \"a\"}')");
    db.wait_until("it is paused now", "SELECT status = 'paused' FROM automation.automations WHERE name = 'trap'");
}
