//! Subtransactions: a unit of work whose failure leaves the transaction around it intact.
use std::sync::OnceLock;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use super::catch::PgError;
use super::report::ErrorContexts;

/// Says of an error whether it is a request to give up the whole transaction, not a failure of the work that raised it.
type GivesUpTransaction = fn(&PgError) -> bool;

static GIVES_UP_TRANSACTION: OnceLock<GivesUpTransaction> = OnceLock::new();

/// Called once when the library is loaded.
pub fn set_interruption_check(check: GivesUpTransaction) {
    // A second call can only come from loading the library twice, with the same function.
    let _ = GIVES_UP_TRANSACTION.set(check);
}

fn gives_up_transaction(error: &PgError) -> bool {
    GIVES_UP_TRANSACTION.get().is_some_and(|check| check(error))
}

/// Runs `work` in a subtransaction: released if it returns Ok, rolled back if it returns Err, raises an ERROR or
/// panics. An error that gives up the whole transaction, see `set_interruption_check`, is raised again after the
/// rollback. Savepoints cannot be used from inside a function; PL/pgSQL's EXCEPTION uses the same calls.
pub fn in_subtransaction<R>(work: impl FnOnce() -> Result<R, PgError>) -> Result<R, PgError> {
    // SAFETY: the memory context and resource owner are saved before and restored after, as PL/pgSQL does.
    let (memory, owner) = unsafe {
        let saved = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(saved.0);
        saved
    };
    // A callback of an error's report must not outlive the error.
    let contexts = ErrorContexts::keep();
    let mut work = Some(std::panic::AssertUnwindSafe(work));
    let outcome = PgTryBuilder::new(std::panic::AssertUnwindSafe(|| match work.take() {
        Some(work) => (work.0)(),
        None => Err(PgError::new("XX000", "automation_engine bug: work ran twice")),
    }))
    .catch_others(|error: CaughtError| Err(PgError::from_caught(error)))
    .catch_rust_panic(|error: CaughtError| Err(PgError::from_caught(error)))
    .execute();
    drop(contexts);
    // SAFETY: ends exactly the subtransaction begun above.
    unsafe {
        match outcome {
            Ok(_) => pg_sys::ReleaseCurrentSubTransaction(),
            Err(_) => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
        }
        pg_sys::MemoryContextSwitchTo(memory);
        pg_sys::CurrentResourceOwner = owner;
    }
    match outcome {
        Err(error) if gives_up_transaction(&error) => error.raise(),
        outcome => outcome,
    }
}
