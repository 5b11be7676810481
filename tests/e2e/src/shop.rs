//! The smallest job there is: every row of `job` must leave exactly one row in `effect`.
//!
//! How long a step takes is in the table `pace`, so that a test can hold a step up and let it go.

use crate::database::{Database, Worker};

const SCHEMA: &str = "
    CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text);
    CREATE TABLE effect (job_id bigint NOT NULL, by_role name NOT NULL DEFAULT current_user);
    CREATE TABLE pace (seconds float NOT NULL);
    INSERT INTO pace VALUES (0)";

const DEFINE: &str = "
    SELECT automation.watch_table('job');
    SELECT automation.define('work',
        trigger => automation.on_created('job'),
        steps   => ARRAY[
            automation.sql($$ SELECT pg_sleep(seconds) FROM pace WHERE seconds > 0 $$),
            automation.sql($$ INSERT INTO effect (job_id) VALUES ({{ new.id }}) $$) ])";

impl Database<'_> {
    /// Creates the tables and the automation, owned by the role of this session.
    #[track_caller]
    pub fn open_shop(&self) {
        self.execute(SCHEMA);
        self.execute(DEFINE);
    }

    /// Defines the automation again, after the extension was created anew.
    #[track_caller]
    pub fn reopen_shop(&self) {
        self.execute(DEFINE);
    }

    /// Commits `count` new jobs in one transaction.
    #[track_caller]
    pub fn add_jobs(&self, count: u32) {
        self.execute(&format!("INSERT INTO job (note) SELECT 'job ' || n FROM generate_series(1, {count}) AS n"));
    }

    /// From now on a step takes this long; a step that has begun keeps its time.
    #[track_caller]
    pub fn set_pace(&self, seconds: u32) {
        self.execute(&format!("UPDATE pace SET seconds = {seconds}"));
    }

    /// Waits until every job has its effect, then checks that it has only one.
    #[track_caller]
    pub fn expect_each_job_done_once(&self) {
        self.wait_until(
            "every job is done",
            "SELECT NOT EXISTS (SELECT FROM job WHERE id NOT IN (SELECT job_id FROM effect))",
        );
        let surplus = self.rows("SELECT job_id FROM effect EXCEPT ALL SELECT id FROM job");
        assert!(surplus.is_empty(), "done more than once, or without a committed job: {surplus:?}");
    }

    /// Adds a job and expects it to be done, like all before it.
    #[track_caller]
    pub fn expect_work_goes_on(&self) {
        self.add_jobs(1);
        self.expect_each_job_done_once();
    }

    /// Waits until an executor is inside the step.
    #[track_caller]
    pub fn wait_until_a_step_sleeps(&self) {
        self.wait_until(
            "an executor is inside the slow step",
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'automation_engine executor'
                AND datname = current_database() AND wait_event = 'PgSleep')",
        );
    }

    /// Waits until the number of processes of the kind in this database is `count`.
    #[track_caller]
    pub fn wait_for_workers(&self, worker: Worker, count: usize) {
        self.wait_until(
            &format!("there are {count} of {worker:?} in {}", self.name()),
            &format!(
                "SELECT count(*) = {count} FROM pg_stat_activity
                  WHERE backend_type = '{}' AND datname = current_database()",
                worker.backend_type()
            ),
        );
    }
}
