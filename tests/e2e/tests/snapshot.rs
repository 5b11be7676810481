//! A session that holds a snapshot keeps every dead row alive: nothing that the engine looks at again and again may
//! grow with the work that it has already done.

use e2e::Cluster;

/// Index entries that the engine has read so far, by index.
const READ: &str = "SELECT sum(idx_tup_read)::bigint FROM pg_stat_all_indexes WHERE schemaname = 'automation_internal'
                       AND indexrelname IN ('timer_due_at_idx', 'dispatch_pkey', 'router_cursor_pkey')";

#[test]
fn a_held_snapshot_does_not_make_every_look_longer() {
    let cluster = Cluster::build().setting("autovacuum", "off").start();
    let db = cluster.database("pinned");
    db.execute(
        "CREATE TABLE item (id int PRIMARY KEY);
         CREATE TABLE effect (id int);
         SELECT automation.watch_table('item');
         SELECT automation.define('later', trigger => automation.on_created('item'), steps => ARRAY[
             automation.delay('20 milliseconds'),
             automation.sql($$ INSERT INTO effect VALUES ({{ new.id }}) $$)])",
    );
    let holder = db.another_session();
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM item");
    let runs = 1500;
    for id in 1..=runs {
        db.execute(&format!("INSERT INTO item VALUES ({id})"));
        if id % 50 == 0 {
            db.wait_until("they are done", &format!("SELECT count(*) = {id} FROM effect"));
        }
    }
    assert_eq!(holder.number("SELECT count(*) FROM effect"), 0, "the snapshot is not held");
    // The workers report their reads once a second while they have something to do, and when they leave.
    db.execute("SELECT automation.stop_workers()");
    db.wait_until("what was read is known", &format!("SELECT ({READ}) > {runs}"));
    let read = db.number(READ);
    println!("{} index entries read for each run", read / runs);
    assert!(read < 60 * runs, "{} index entries were read for each of {runs} runs", read / runs);
    holder.execute("ROLLBACK");
}

/// Index entries that were read so far to tend bulk jobs.
const READ_FOR_JOBS: &str = "SELECT sum(idx_tup_read)::bigint FROM pg_stat_all_indexes
                              WHERE schemaname = 'automation_internal'
                                AND relname IN ('bulk_job', 'bulk_look', 'bulk_tally')";

#[test]
fn a_held_snapshot_does_not_make_every_look_at_a_bulk_job_longer_r002_21() {
    // Batches of one: every row is a batch, with its own tally and its own order to tend the job.
    let cluster = Cluster::build().setting("autovacuum", "off").setting("automation_engine.batch_size", "1").start();
    let db = cluster.database("pinned_job");
    db.execute(
        "CREATE TABLE effect (n int);
         SELECT automation.define('each', trigger => automation.on_call(), steps => ARRAY[
             automation.sql($$ SELECT pg_sleep(0.2) WHERE {{ payload.n }} % 500 = 499 $$),
             automation.sql($$ INSERT INTO effect VALUES ({{ payload.n }}) $$)])",
    );
    let holder = db.another_session();
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM effect");
    let rows = 2500;
    let query = format!("SELECT n FROM generate_series(1, {rows}) AS n");
    let job = db.number(&format!("SELECT automation.backfill('each', '{query}')"));
    db.wait_for_job(job);
    assert_eq!(db.number("SELECT count(*) FROM effect"), rows);
    assert_eq!(holder.number("SELECT count(*) FROM effect"), 0, "the snapshot is not held");
    // The workers report their reads once a second while they have something to do, and when they leave.
    db.execute("SELECT automation.stop_workers()");
    db.wait_until("what was read is known", &format!("SELECT ({READ_FOR_JOBS}) > {rows}"));
    let read = db.number(READ_FOR_JOBS);
    println!("{} index entries read for each row of a job", read / rows);
    assert!(read < 20 * rows, "{} index entries were read for each of {rows} rows", read / rows);
    holder.execute("ROLLBACK");
}
