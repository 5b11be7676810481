//! A session that holds a snapshot keeps every dead row alive: nothing that the engine looks at again and again may grow
//! with what it has already done.

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
    // The workers report what they have read once a second while they have something to do, and when they leave.
    db.execute("SELECT automation.stop_workers()");
    db.wait_until("what was read is known", &format!("SELECT ({READ}) > {runs}"));
    let read = db.number(READ);
    println!("{} index entries read for each run", read / runs);
    assert!(read < 60 * runs, "{} index entries were read for each of {runs} runs", read / runs);
    holder.execute("ROLLBACK");
}
