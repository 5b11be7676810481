//! Questions and commands that several tests have for the engine as a whole.

use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::database::Database;
use crate::process::{Signal, kill};

impl Database<'_> {
    /// Lets the workers read their settings again, if the server is up.
    pub fn tell_workers(&self) {
        const WORKERS: &str = "SELECT pid FROM pg_stat_activity
             WHERE backend_type IN ('automation_engine conductor', 'automation_engine executor',
                                    'automation_engine courier')";
        for row in self.try_rows(WORKERS).unwrap_or_default() {
            let pid = row.first().and_then(|pid| pid.as_deref()?.parse().ok());
            pid.into_iter().for_each(|pid| kill(pid, Signal::Hup));
        }
    }

    /// The sweep has found nothing to put right.
    #[track_caller]
    pub fn expect_nothing_rescued(&self) {
        assert_eq!(self.text("SELECT status FROM automation.status() WHERE item = 'rescued_wakeups'"), "0");
    }
}

impl Cluster {
    /// No transaction in a database for five seconds, once the engine has come to rest.
    #[track_caller]
    pub fn expect_no_transactions(&self, database: &str, when: &str) {
        let outside = self.connect("postgres");
        let statement =
            format!("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{database}'");
        let count = || outside.number(&statement);
        let mut last = count();
        let began = Instant::now();
        // Counters arrive late: wait for two equal readings first.
        loop {
            thread::sleep(Duration::from_secs(2));
            let now = count();
            if now == last {
                break;
            }
            last = now;
            assert!(began.elapsed() < Duration::from_secs(30), "the engine does not come to rest");
        }
        thread::sleep(Duration::from_secs(5));
        assert_eq!(count(), last, "transactions while {when}");
    }
}
