//! `max_worker_processes` is used up: idle executors, or those of the owner that has most, make room for an owner, a
//! database or a courier without a process.

use std::time::Duration;

use e2e::receiver::Receiver;
use e2e::{Cluster, Database, Worker};

/// An executor that is not asked to leave stays for a minute after its last work.
const SOON: Duration = Duration::from_secs(20);

/// A role with an automation whose steps take a tenth of a second.
fn owner_in<'c>(db: &Database<'c>, role: &str) -> Database<'c> {
    db.execute(&format!(
        "CREATE ROLE {role} LOGIN;
         CREATE SCHEMA AUTHORIZATION {role};
         SELECT automation.grant_usage('{role}', tier => 'author')"
    ));
    let owner = db.as_role(role);
    owner.execute(
        "CREATE TABLE ended (run bigint);
         SELECT automation.define('work-' || current_user, trigger => automation.on_call(), steps => ARRAY[
             automation.sql($$ SELECT pg_sleep(0.1) $$),
             automation.sql($$ INSERT INTO ended VALUES ({{ run.id }}) $$)])",
    );
    owner
}

/// Starts so many runs.
fn order(owner: &Database<'_>, runs: u32) {
    owner.execute(&format!("SELECT automation.start_run('work-' || current_user) FROM generate_series(1, {runs})"));
}

/// Runs of an owner that have not ended.
fn left(owner: &Database<'_>) -> i64 {
    owner.number("SELECT count(*) FROM automation.runs WHERE status NOT IN ('completed', 'failed')")
}

#[test]
fn a_second_database_is_served_while_four_busy_owners_use_up_the_worker_processes() {
    // Postgres' default. The launcher, the launcher of logical replication, two conductors and four executors use them
    // up.
    let cluster = Cluster::build().setting("max_worker_processes", "8").start();
    let one = cluster.database("one");
    let two = cluster.database("two");
    two.open_shop();
    let owners: Vec<_> = (1..=4).map(|n| owner_in(&one, &format!("busy{n}"))).collect();
    owners.iter().for_each(|owner| order(owner, 1_000));
    one.wait_for_workers(Worker::Executor, 4);
    two.add_jobs(1);
    two.wait_at_most(SOON, "the row of the second database is served", "SELECT count(*) = 1 FROM effect");
    let done = "SELECT count(*) FROM ended";
    let before: Vec<i64> = owners.iter().map(|owner| owner.number(done)).collect();
    for (owner, before) in owners.iter().zip(before) {
        assert!(left(owner) > 0, "the owners of the first database are busy all the time");
        owner.wait_until("each of them gets on", &format!("SELECT count(*) > {before} + 5 FROM ended"));
    }
    two.add_jobs(1);
    two.wait_at_most(SOON, "and the next row as well", "SELECT count(*) = 2 FROM effect");
}

#[test]
fn idle_executors_give_way_at_once_to_other_databases() {
    let cluster = Cluster::build().setting("max_worker_processes", "8").start();
    let one = cluster.database("one");
    let two = cluster.database("two");
    two.open_shop();
    let owners: Vec<_> = (1..=4).map(|n| owner_in(&one, &format!("idle{n}"))).collect();
    for owner in &owners {
        order(owner, 1);
        owner.wait_until("its run has ended", "SELECT count(*) = 1 FROM ended");
    }
    one.wait_for_workers(Worker::Executor, 4);
    two.add_jobs(1);
    two.wait_at_most(SOON, "the row of the second database is served", "SELECT count(*) = 1 FROM effect");
    // A third database needs a conductor before anything else.
    let three = cluster.database("three");
    three.open_shop();
    three.add_jobs(1);
    three.wait_at_most(SOON, "the row of the third database is served", "SELECT count(*) = 1 FROM effect");
}

#[test]
fn a_second_owner_is_served_with_five_worker_processes() {
    let cluster = Cluster::build().setting("max_worker_processes", "5").start();
    let db = cluster.database("five");
    let (busy, other) = (owner_in(&db, "busy"), owner_in(&db, "other"));
    order(&busy, 1_000);
    db.wait_for_workers(Worker::Executor, 2);
    order(&other, 1);
    other.wait_at_most(SOON, "the run of the other owner has ended", "SELECT count(*) = 1 FROM ended");
    assert!(left(&busy) > 0);
}

#[test]
fn a_message_is_delivered_although_executors_use_up_the_worker_processes() {
    // The launcher, the launcher of logical replication, a conductor and one executor.
    let cluster = Cluster::plain().setting("max_worker_processes", "4").start();
    cluster.give_key();
    let db = cluster.database("post");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}', id => 'post'", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 1);
    // The courier gives its process back in turn.
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 2);
}
