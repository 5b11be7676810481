//! Locks a row of a run while an executor may be executing the run.
use std::time::{Duration, Instant};

use crate::pg::catch::PgError;
use crate::pg::settings::{self, Pinned};
use crate::pg::subtransaction::in_subtransaction;
use crate::signal::running::Request;

/// How long to wait for the row before the executor is interrupted again: a step may have caught the first
/// interruption.
const AGAIN: &std::ffi::CStr = c"50ms";
/// An executor whose step goes on for so long after it was interrupted is ended.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before checking again an executor that was interrupted.
const NAP: Duration = Duration::from_millis(2);

/// A run that is to be stopped. No executor begins it while this value exists.
pub struct Stop {
    request: Request,
    since: Instant,
}

/// Another transaction holds the row: the error of the wait that timed out.
pub struct Held(PgError);

impl Stop {
    pub fn new(run: i64) -> Stop {
        Stop { request: Request::new(run), since: Instant::now() }
    }

    /// Locks a row of the run by `look`, which waits for it. An executor that executes the run is interrupted until it
    /// has rolled back; for a session that drives the run by hand, this waits.
    pub fn lock<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let limit = settings::lock_timeout();
        while self.request.interrupt(self.since.elapsed() >= PATIENCE) {
            match soon(&look) {
                Ok(found) => return found,
                Err(Held(error)) if limit.is_some_and(|limit| self.since.elapsed() >= limit) => error.raise(),
                Err(Held(_)) => {}
            }
        }
        look()
    }

    /// Like `lock`, but does not wait for a transaction that holds the row without executing the run.
    pub fn lock_soon<T>(&self, look: impl Fn() -> Option<T>) -> Result<Option<T>, Held> {
        loop {
            let executes = self.request.interrupt(self.since.elapsed() >= PATIENCE);
            match soon(&look) {
                Err(Held(_)) if executes => {}
                found => return found,
            }
        }
    }

    /// Interrupts the executors that execute runs of this job or automation, and calls `end` for each of these runs,
    /// until none executes any more. `end` locks the rows of a run, so that the run does not begin again when this
    /// value is dropped.
    pub fn end_executing(&self, end: impl Fn(i64)) {
        loop {
            let executing = self.request.executing();
            if executing.is_empty() {
                return;
            }
            // While the query of a job executes, shared memory shows the job itself as a run.
            self.request.interrupt(self.since.elapsed() >= PATIENCE);
            executing.into_iter().for_each(&end);
            pgrx::check_for_interrupts!();
            std::thread::sleep(NAP);
        }
    }
}

/// Calls `look`, which waits for a row, with a short lock timeout.
fn soon<T>(look: &impl Fn() -> Option<T>) -> Result<Option<T>, Held> {
    let found = in_subtransaction(|| {
        let pinned = Pinned::open();
        pinned.set(c"lock_timeout", AGAIN);
        let found = look();
        drop(pinned);
        Ok(found)
    });
    match found {
        Ok(found) => Ok(found),
        Err(error) if error.sqlstate == "55P03" => Err(Held(error)),
        Err(error) => error.raise(),
    }
}
