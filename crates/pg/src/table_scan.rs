//! Reading a small table of ours from end to end without going through the executor, whose start-up costs many times
//! as much as reading a few rows. No rights are checked: for the engine's own use alone.
use pgrx::pg_sys;

use super::engine_sql::Row;
use super::names;

/// A snapshot such as a statement that begins now would have; gone when dropped.
pub struct StatementSnapshot(());

impl StatementSnapshot {
    pub fn take() -> Self {
        // SAFETY: inside a transaction; its own writes so far become visible as to its next command.
        unsafe {
            pg_sys::CommandCounterIncrement();
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        }
        StatementSnapshot(())
    }

    pub fn get(&self) -> pg_sys::Snapshot {
        // SAFETY: the one that was pushed last.
        unsafe { pg_sys::GetActiveSnapshot() }
    }
}

impl Drop for StatementSnapshot {
    fn drop(&mut self) {
        // An error's rollback pops it.
        if !std::thread::panicking() {
            // SAFETY: pairs with `take`.
            unsafe { pg_sys::PopActiveSnapshot() }
        }
    }
}

/// Has the table had rows since it was last emptied? Never false if it has.
pub fn has_pages(table: &str) -> bool {
    let Some(relation) = names::internal_relation(table) else { return false };
    // SAFETY: a table of ours, opened as a SELECT would.
    unsafe {
        let opened = pg_sys::table_open(relation, pg_sys::AccessShareLock as i32);
        let pages = pg_sys::RelationGetNumberOfBlocksInFork(opened, pg_sys::ForkNumber::MAIN_FORKNUM);
        pg_sys::table_close(opened, pg_sys::NoLock as i32);
        pages > 0
    }
}

/// Calls `found` with each row of `table`.
pub fn each_row(table: &str, mut found: impl FnMut(&Row<'_>)) {
    let Some(relation) = names::internal_relation(table) else { return };
    let snapshot = StatementSnapshot::take();
    // SAFETY: a table of ours, opened as a SELECT would; a row is read before the scan moves on.
    unsafe {
        let opened = pg_sys::table_open(relation, pg_sys::AccessShareLock as i32);
        let scan =
            pg_sys::systable_beginscan(opened, pg_sys::InvalidOid, false, snapshot.get(), 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            found(&Row::of(tuple, (*opened).rd_att));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(opened, pg_sys::NoLock as i32);
    }
}
