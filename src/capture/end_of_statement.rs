//! Inserts the events that a statement has captured into the log when the statement ends. Called by hooks rather
//! than by a trigger for each statement: queueing and calling one costs a lone UPDATE more than inserting its
//! event's index entry.
//!
//! A process that loads the library in the middle of a statement hears of the end of the next one only; then the
//! waiting events are inserted with that, or at the transaction's commit.
#![allow(unsafe_code)]
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::moved;
use crate::event_log::events;
use crate::pg::raw::unguarded;

static mut PREVIOUS: pg_sys::ExecutorFinish_hook_type = None;

/// Called from _PG_init. Utility statements have a hook already, see `workers::quiesce`.
pub fn install_hook() {
    // SAFETY: hooks are chained when the library is loaded.
    unsafe {
        PREVIOUS = pg_sys::ExecutorFinish_hook;
        pg_sys::ExecutorFinish_hook = Some(executor_finish);
    }
}

/// Runs the triggers of the statement, and then inserts the events that they captured. Every statement of every session
/// passes here, so there is no guard around the work of Postgres itself: an error of its own leaves nothing of ours
/// behind.
unsafe extern "C-unwind" fn executor_finish(query: *mut pg_sys::QueryDesc) {
    // SAFETY: the argument is passed on as it came; no value with a destructor is alive meanwhile.
    unsafe {
        match PREVIOUS {
            Some(previous) => previous(query),
            None => unguarded::standard_ExecutorFinish(query),
        }
        if moved::any() && writes(query) {
            flush_moved((*(*query).estate).es_output_cid);
        }
        if events::any_buffered() && trigger_depth() == 0 {
            insert_captured();
        }
    }
}

/// Can the statement have moved rows? A statement that only reads has no command number of its own.
unsafe fn writes(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: the statement that has just run, with its plan.
    unsafe { (*query).operation != pg_sys::CmdType::CMD_SELECT || (*(*query).plannedstmt).hasModifyingCTE }
}

/// Records rows that the statement has taken out of one partition and that have not arrived in another as deleted:
/// they will not arrive any more. Done here, in the subtransaction that moved them: later, the rollback of another
/// could undo their events.
#[pg_guard]
unsafe extern "C-unwind" fn flush_moved(command: pg_sys::CommandId) {
    moved::flush_command(command);
}

#[pg_guard]
unsafe extern "C-unwind" fn insert_captured() {
    events::insert_at_end_of_statement();
}

/// A COPY has ended: it has no executor.
pub fn after_copy() {
    if trigger_depth() == 0 {
        events::insert_buffered();
    }
}

/// How many triggers deep we are. A statement that a trigger runs leaves its captured events to the statement that
/// fired the trigger.
fn trigger_depth() -> i32 {
    // SAFETY: a built-in function without arguments, which looks at nothing it is passed.
    unsafe { unguarded::pg_trigger_depth(std::ptr::null_mut()).value() as i32 }
}
