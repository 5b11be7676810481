//! Leaving no trace of a step in the session: as DISCARD ALL does, from inside a transaction.
use pgrx::pg_sys;

use super::raw;

/// Drops the session state that a run may have left behind and that a rollback of settings does not cover. Called
/// inside the run's own subtransaction, after its last step. Cheap when there is nothing to undo.
pub fn forget() {
    // SAFETY: each call only drops session state of this process that user SQL could have made; we hold no portal,
    // prepared statement, advisory lock or temporary table of our own.
    unsafe {
        let (mut temporary, mut toast) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        pg_sys::GetTempNamespaceState(&mut temporary, &mut toast);
        if temporary != pg_sys::InvalidOid {
            pg_sys::ResetTempTableNamespace();
        }
        pg_sys::LockReleaseSession(pg_sys::USER_LOCKMETHOD as u16);
        pg_sys::DropAllPreparedStatements();
        pg_sys::PortalHashTableDeleteAll();
        raw::ResetSequenceCaches();
    }
}

/// Queues UNLISTEN * behind any LISTEN of this transaction, so that its commit leaves the process listening to nothing.
pub fn stop_listening() {
    // SAFETY: inside a transaction; does nothing if no LISTEN was ever issued.
    unsafe { raw::Async_UnlistenAll() }
}

/// Lets the current statement run for at most `milliseconds`, then cancels it.
pub struct StatementTimeout(());

impl StatementTimeout {
    pub fn start(milliseconds: i64) -> Self {
        // SAFETY: InitPostgres registered this timeout in every process with a database.
        unsafe { raw::enable_timeout_after(raw::STATEMENT_TIMEOUT, milliseconds.clamp(1, i32::MAX as i64) as i32) }
        StatementTimeout(())
    }
}

impl Drop for StatementTimeout {
    fn drop(&mut self) {
        // SAFETY: disabling a timeout that has fired already is allowed. If it fired just as the statement ended, the
        // cancellation it asked for is still pending and would hit the next statement.
        unsafe {
            raw::disable_timeout(raw::STATEMENT_TIMEOUT, true);
            if raw::get_timeout_indicator(raw::STATEMENT_TIMEOUT, true) {
                std::ptr::write_volatile(&raw mut pg_sys::QueryCancelPending, 0);
            }
        }
    }
}
