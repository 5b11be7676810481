//! Transactions of workers: one failure path for an error, a panic and a failed commit.
#![allow(unsafe_code)]
use std::panic::AssertUnwindSafe;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use crate::pg::catch::{PgError, catch};
use crate::pg::raw::unguarded;
use crate::pg::report::ErrorContexts;

/// Why a transaction did not commit.
#[derive(Debug)]
pub enum Failure {
    /// The work itself raised the error.
    Work(PgError),
    /// The work was done, the commit refused it (a deferred constraint, a full NOTIFY queue).
    Commit(PgError),
}

impl Failure {
    pub fn error(&self) -> &PgError {
        match self {
            Failure::Work(error) | Failure::Commit(error) => error,
        }
    }
}

/// Runs `work` in a transaction of its own and commits it.
pub fn in_transaction<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    in_transaction_until(work, |_| Ok(()))
}

/// Executes the deferred triggers of the transaction under way, as its commit would. The commit finds none left.
pub fn fire_deferred_triggers() -> Result<(), PgError> {
    // SAFETY: at the end of a worker's transaction, outside of any query; after an ERROR the caller rolls the
    // transaction back.
    unsafe { catch(|| unguarded::AfterTriggerFireDeferred()) }
}

/// The same with something to be done at the end of the transaction, without raising an ERROR; its failure is one of
/// the commit.
pub fn in_transaction_until<R>(
    work: impl FnOnce() -> R,
    at_end: impl FnOnce(&R) -> Result<(), PgError>,
) -> Result<R, Failure> {
    // SAFETY: a worker between transactions; everything begun here is ended below on every path.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        // A worker asks the catalog whether it may write, see `pg::read_only`. Its own session has the setting of the
        // moment at which it logged in.
        pg_sys::XactReadOnly = false;
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        // The subject of the transaction is not known yet.
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, c"".as_ptr());
    }
    // A callback of an error's report must not outlive the error.
    let contexts = ErrorContexts::keep();
    let mut work = Some(AssertUnwindSafe(work));
    let outcome = PgTryBuilder::new(AssertUnwindSafe(|| match work.take() {
        Some(work) => Ok((work.0)()),
        None => Err(PgError::new("XX000", "automation_engine bug: work ran twice")),
    }))
    .catch_others(|error: CaughtError| Err(PgError::from_caught(error)))
    .catch_rust_panic(|error: CaughtError| Err(PgError::from_caught(error)))
    .execute();
    drop(contexts);
    // SAFETY: as above; after a failure AbortCurrentTransaction cleans up all state that is left.
    let result = unsafe {
        match outcome {
            Ok(value) => {
                pg_sys::PopActiveSnapshot();
                match at_end(&value).and_then(|()| catch(|| unguarded::CommitTransactionCommand())) {
                    Ok(()) => Ok(value),
                    Err(error) => {
                        pg_sys::AbortCurrentTransaction();
                        Err(Failure::Commit(error))
                    }
                }
            }
            Err(error) => {
                pg_sys::AbortCurrentTransaction();
                Err(Failure::Work(error))
            }
        }
    };
    // SAFETY: outside a transaction; a worker must report its own statistics.
    unsafe {
        pg_sys::pgstat_report_stat(false);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
    result
}
