//! Statistics and planner settings of the server do not reach the engine's own statements.

use std::fs;

use e2e::{Cluster, Database, Worker};

/// Runs a chain of three automations, each caused by the one before, without any statement of a user.
fn run_a_chain(db: &Database<'_>, chains: i64) {
    db.execute("SELECT automation.emit('link.first')");
    db.wait_until(
        "the chain has run",
        &format!("SELECT count(*) = 3 * {chains} FROM automation.runs WHERE status = 'completed'"),
    );
}

/// Does the process have Postgres' just-in-time compiler in its memory?
fn has_loaded_jit(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process of ours").contains("llvmjit")
}

#[test]
fn engine_statements_are_not_compiled_after_autovacuum_has_analyzed_the_partitions() {
    // Every statement that is planned under the server's settings is compiled.
    let cluster = Cluster::build().setting("jit", "on").setting("jit_above_cost", "0").start();
    let db = cluster.database("compiled");
    assert_eq!(db.text("SELECT pg_jit_available()"), "t", "the server has no just-in-time compiler to keep out");
    db.execute(
        "CREATE ROLE chained LOGIN;
         SELECT automation.define(link, run_as => 'chained', trigger => automation.on_event('link.' || link),
                                  steps => ARRAY[automation.publish('link.' || next)])
           FROM (VALUES ('first', 'second'), ('second', 'third'), ('third', 'end')) AS l (link, next)",
    );
    db.execute("SELECT automation.grant_usage('chained', 'author')");
    let chained = db.as_role("chained");
    run_a_chain(&chained, 1);
    run_a_chain(&chained, 2);
    // As autovacuum does: the partitions, never their parents. That makes kept plans invalid.
    for partition in db.column(
        "SELECT c.oid::regclass FROM pg_class AS c
          WHERE c.relnamespace = 'automation_internal'::regnamespace AND c.relispartition AND c.relkind = 'r'",
    ) {
        db.execute(&format!("ANALYZE {partition}"));
    }
    run_a_chain(&chained, 3);
    for worker in [Worker::Conductor, Worker::Executor] {
        let pids = db.worker_pids(worker);
        assert!(!pids.is_empty(), "no {worker:?} is there to be looked at");
        for pid in pids {
            assert!(!has_loaded_jit(pid), "{worker:?} {pid} has compiled a statement");
        }
    }
}
