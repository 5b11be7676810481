//! Bulk jobs: rows of `stock`, each of which must leave exactly one row in `effect` for every job that is about it.

use std::time::Duration;

use crate::database::Database;

/// Points that only bulk jobs pass.
pub const POINTS: &[&str] = &["bulk_loaded", "bulk_locked", "bulk_tended"];

const SCHEMA: &str = "
    CREATE ROLE clerk LOGIN;
    CREATE TABLE stock (id int PRIMARY KEY, price numeric NOT NULL);
    CREATE TABLE effect (job text NOT NULL, id int NOT NULL, run bigint NOT NULL, by_role name NOT NULL DEFAULT current_user);
    CREATE INDEX ON effect (job, id);
    GRANT SELECT ON stock TO clerk;
    GRANT INSERT ON effect TO clerk;
    SELECT automation.watch_table('stock');
    SELECT automation.define('reprice', run_as => 'clerk', trigger => automation.on_updated('stock', filter => 'new.price > 0'),
        steps => ARRAY[automation.sql('INSERT INTO effect (job, id, run) VALUES (''reprice'', {{ new.id }}, {{ run.id }})')]);
    SELECT automation.define('each', run_as => 'clerk', trigger => automation.on_call(), steps => ARRAY[
        automation.bulk('SELECT id FROM stock WHERE id <= {{ payload.n }} ORDER BY id', ARRAY[
            automation.delay('300 milliseconds', condition => 'item.id % 10 = 0'),
            automation.sql('INSERT INTO effect (job, id, run) VALUES ({{ payload.job }}, {{ item.id }}, {{ run.id }})')], id => 'each'),
        automation.sql('INSERT INTO effect (job, id, run) VALUES ({{ payload.job }}, 0, {{ steps.each.done }})')])";

impl Database<'_> {
    /// Creates the tables and the automations, with so many rows in stock.
    #[track_caller]
    pub fn open_stock(&self, rows: i64) {
        self.execute(SCHEMA);
        self.execute(&format!(
            "BEGIN; SET LOCAL automation_engine.capture = off;
             INSERT INTO stock SELECT g, g FROM generate_series(1, {rows}) AS g; COMMIT"
        ));
        self.execute("VACUUM ANALYZE stock");
    }

    /// Begins a backfill over the whole stock; returns its number.
    #[track_caller]
    pub fn reprice(&self, options: &str) -> i64 {
        self.execute("TRUNCATE effect");
        self.number(&format!("SELECT automation.backfill('reprice', 'SELECT * FROM stock'{options})"))
    }

    /// Waits until a job has ended.
    #[track_caller]
    pub fn wait_for_job(&self, job: i64) {
        let ended = format!("SELECT finished_at IS NOT NULL FROM automation.progress WHERE job = {job}");
        self.wait_at_most(Duration::from_secs(240), "the job has ended", &ended);
    }

    /// Expects that a job has ended well, that each of so many rows has left its effect once, and that its end was told
    /// once.
    #[track_caller]
    pub fn expect_each_row_once(&self, job: i64, name: &str, rows: i64) {
        let lost = self.number(&format!(
            "SELECT count(*) FROM generate_series(1, {rows}) AS g
              WHERE NOT EXISTS (SELECT FROM effect AS e WHERE e.job = '{name}' AND e.id = g)"
        ));
        let doubled = self.number(&format!(
            "SELECT count(*) FROM (SELECT FROM effect AS e WHERE e.job = '{name}' GROUP BY e.id HAVING count(*) > 1) AS x"
        ));
        assert_eq!((lost, doubled), (0, 0), "rows lost and doubled by job {job}\n{}", self.cluster().log_tail());
        let progress = format!(
            "SELECT state || ' ' || total || ' ' || done || ' ' || failed || ' ' || skipped || ' ' || active
               FROM automation.progress WHERE job = {job}"
        );
        assert_eq!(self.text(&progress), format!("finished {rows} {rows} 0 0 0"), "{}", self.cluster().log_tail());
        let items = format!(
            "SELECT count(*) FILTER (WHERE status = 'completed') || ' ' || count(DISTINCT run_id)
               FROM automation.bulk_items WHERE job = {job}"
        );
        assert_eq!(self.text(&items), format!("{rows} {rows}"));
        let told = format!(
            "SELECT count(*) || ' ' || min(payload ->> 'done') FROM automation.events
              WHERE topic = 'automation.bulk.finished' AND (payload ->> 'job')::bigint = {job}"
        );
        assert_eq!(self.text(&told), format!("1 {rows}"));
        assert_eq!(self.number("SELECT count(*) FROM effect WHERE by_role <> 'clerk'"), 0);
    }
}
