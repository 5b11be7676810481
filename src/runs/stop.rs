//! Getting hold of a run's row while an executor may execute the run.
use std::time::{Duration, Instant};

use crate::pg::settings::{self, Pinned};
use crate::pg::subtransaction::in_subtransaction;
use crate::signal::running::Request;

/// How long to wait for the row before the executor is interrupted again: a step may have caught the first interruption.
const AGAIN: &std::ffi::CStr = c"50ms";
/// An executor whose step goes on for so long after it was interrupted is ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// A run that is to be stopped. No executor begins it while this lives.
pub struct Stop {
    request: Request,
    since: Instant,
}

impl Stop {
    pub fn new(run: i64) -> Stop {
        Stop { request: Request::new(run), since: Instant::now() }
    }

    /// Locks a row of the run by `look`, which waits for it. An executor that executes the run is interrupted until it has
    /// rolled back; a session that drives the run by hand is waited for.
    pub fn lock<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let limit = settings::lock_timeout();
        let is_over = || limit.is_some_and(|limit| self.since.elapsed() >= limit);
        while self.request.interrupt(self.since.elapsed() >= PATIENCE) {
            let found = in_subtransaction(|| {
                let pinned = Pinned::new();
                pinned.set(c"lock_timeout", AGAIN);
                let found = look();
                drop(pinned);
                Ok(found)
            });
            match found {
                Ok(found) => return found,
                Err(error) if error.sqlstate == "55P03" && !is_over() => {}
                Err(error) => error.raise(),
            }
        }
        look()
    }
}
