//! A slow step gets a transaction of its own; the quick runs after it share theirs again.

use e2e::{Cluster, Database};

/// Transactions with work in them that executors have committed so far.
fn batches(db: &Database<'_>) -> i64 {
    db.number("SELECT sum(batches)::bigint FROM automation.stat_workers WHERE worker = 'executor'")
}

#[test]
fn one_slow_step_does_not_give_every_later_run_a_transaction_of_its_own() {
    const RUNS: i64 = 2_000;
    let cluster = Cluster::build().setting("automation_engine.executors", "1").start();
    let db = cluster.database("slow_once");
    db.execute(
        "CREATE TABLE job (id bigint PRIMARY KEY);
         CREATE TABLE effect (id bigint);
         SELECT automation.watch_table('job');
         SELECT automation.define('work', trigger => automation.on_created('job'), steps => ARRAY[
             automation.sql($$ SELECT pg_sleep(0.3) WHERE {{ new.id }} % 1000 = 990 $$),
             automation.sql($$ INSERT INTO effect VALUES ({{ new.id }}) $$)])",
    );
    let run = |from: i64, to: i64| {
        db.execute(&format!("INSERT INTO job SELECT n FROM generate_series({from}, {to}) AS n"));
        db.wait_until(
            "the runs are done",
            &format!("SELECT count(*) = {to} - {from} + 1 FROM effect WHERE id BETWEEN {from} AND {to}"),
        );
        db.wait_until(
            "the executor rests",
            "SELECT bool_and(state = 'idle') FROM automation.stat_workers WHERE worker = 'executor'",
        );
    };
    // Quick ones first, so that batches are large when the slow one comes.
    run(1, 980);
    let quick = batches(&db);
    run(981, 1_100);
    let slow = batches(&db) - quick;
    println!("{quick} batches for 980 quick runs, {slow} for 120 with a slow one");
    assert!(slow > 20, "the slow step was not cut short: {slow} batches");
    let before = batches(&db);
    run(2_001, 2_000 + RUNS - 100);
    let used = batches(&db) - before;
    println!("{used} batches for {} runs afterwards", RUNS - 100);
    assert!(used < RUNS / 4, "{used} batches for {RUNS} quick runs");
}
