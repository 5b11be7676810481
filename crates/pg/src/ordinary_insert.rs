//! Inserting formed tuples the way a plain INSERT does, for `automation_engine.fast_append = off`.
//!
//! Every step is a function of Postgres' executor: the constraints and the partition's bounds are checked, the table's
//! access method stores the row, and the executor enters it into the indexes, going by the predicates of partial ones.
//! Slower than `insert` (docs/operations.md has figures), and without knowledge of pages, index tuples or predicates.
use pgrx::{GucSetting, pg_sys};

/// The setting `automation_engine.fast_append`, registered with all others by the extension.
pub static FAST_APPEND: GucSetting<bool> = GucSetting::<bool>::new(true);

/// May rows be inserted by other means than Postgres' own?
pub fn fast_append() -> bool {
    FAST_APPEND.get()
}

/// Inserts tuples and their index entries.
///
/// # Safety
/// `relation` is a table of ours, inside a transaction that has locked it as an INSERT would, and the tuples were
/// formed with its descriptor.
pub unsafe fn insert_tuples(relation: pg_sys::Oid, tuples: &[pg_sys::HeapTuple]) {
    // SAFETY: as demanded of the caller. Nothing here has a destructor: after an error the rollback closes the
    // relations and frees the memory. Each call has a guard of its own.
    unsafe {
        let opened = pg_sys::table_open(relation, pg_sys::RowExclusiveLock as i32);
        let state = pg_sys::CreateExecutorState();
        let target: *mut pg_sys::ResultRelInfo =
            pg_sys::MemoryContextAllocZero((*state).es_query_cxt, size_of::<pg_sys::ResultRelInfo>()).cast();
        pg_sys::InitResultRelInfo(target, opened, 0, std::ptr::null_mut(), 0);
        pg_sys::ExecOpenIndices(target, false);
        let slot = pg_sys::MakeSingleTupleTableSlot((*opened).rd_att, &raw const pg_sys::TTSOpsHeapTuple);
        for tuple in tuples {
            pg_sys::ExecStoreHeapTuple(*tuple, slot, false);
            insert_row(target, slot, state);
            pg_sys::ExecClearTuple(slot);
        }
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        pg_sys::ExecCloseIndices(target);
        pg_sys::FreeExecutorState(state);
        pg_sys::table_close(opened, pg_sys::NoLock as i32);
    }
}

/// One row, as ExecSimpleRelationInsert does it for a subscriber of logical replication.
unsafe fn insert_row(
    target: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
) {
    // SAFETY: see `insert_tuples`.
    unsafe {
        let relation = (*target).ri_RelationDesc;
        if !(*(*relation).rd_att).constr.is_null() {
            pg_sys::ExecConstraints(target, slot, state);
        }
        if (*(*relation).rd_rel).relispartition {
            pg_sys::ExecPartitionCheck(target, slot, state, true);
        }
        pg_sys::simple_table_tuple_insert(relation, slot);
        let (update, no_error_for_duplicates) = (false, false);
        pg_sys::ExecInsertIndexTuples(
            target,
            slot,
            state,
            update,
            no_error_for_duplicates,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            #[cfg(any(feature = "pg16", feature = "pg17", feature = "pg18"))]
            false,
        );
        // Predicates and constraints are evaluated there.
        let context = (*state).es_per_tuple_exprcontext;
        if !context.is_null() {
            pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
        }
    }
}
