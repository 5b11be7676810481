//! Rows that an UPDATE moves to another partition. They reach us as a DELETE there and an INSERT here. The DELETE's
//! tuple says that it moved; the row is kept until the INSERT of the same key arrives, and both become one update.
//!
//! A kept row is finished bytes, made when the DELETE is captured, as the writer and in the writer's sandbox. The end
//! of the transaction, which may be another role's, only inserts them.
#![allow(unsafe_code)]
use std::cell::RefCell;
use std::rc::Rc;

use pgrx::pg_sys;

use super::image::{self, Fields, Written};
use super::plan::Plan;
use crate::event_log::events::{NewEvent, Op, buffer_event};
use crate::gucs;
use crate::pg::raw::unguarded;
use crate::provenance::{self, Cause};

/// A row on its way to another partition.
pub struct MovedRow {
    pub plan: Rc<Plan>,
    /// The row's values, in the order of the plan's columns.
    pub columns: Vec<Written>,
    /// Transaction and command that moved it: those of its arrival.
    moved_by: (pg_sys::TransactionId, pg_sys::CommandId),
    /// Subtransaction in which it was deleted; if that is rolled back, nothing happened.
    transaction: pg_sys::TransactionId,
    cause: Cause,
    id: Vec<u8>,
    tenant: Option<Vec<u8>>,
}

thread_local!(static MOVED: RefCell<Vec<MovedRow>> = const { RefCell::new(Vec::new()) });

/// Keeps a deleted row if it lives on in another partition. False if it does not.
pub fn keep(plan: &Rc<Plan>, tuple: pg_sys::HeapTuple, old: &Fields) -> bool {
    if !has_moved(tuple) {
        return false;
    }
    // SAFETY: a heap tuple fetched by the trigger manager, header included.
    let (transaction, moved_by) = unsafe {
        let header = (*tuple).t_data;
        let moved_by = ((*header).t_choice.t_heap.t_xmax, unguarded::HeapTupleHeaderGetCmax(header));
        (pg_sys::GetCurrentTransactionId(), moved_by)
    };
    let row = MovedRow {
        plan: plan.clone(),
        columns: image::write_columns(plan, old, gucs::max_value_bytes()),
        moved_by,
        transaction,
        cause: provenance::cause(),
        id: image::entity_id(plan, old),
        tenant: image::tenant(plan, old),
    };
    crate::signal::at_commit::conductor_at_commit();
    MOVED.with(|moved| moved.borrow_mut().push(row));
    true
}

/// Does the deleted tuple say that its row lives on in another partition?
fn has_moved(tuple: pg_sys::HeapTuple) -> bool {
    // SAFETY: a heap tuple fetched by the trigger manager, header included. The two values are those that
    // ItemPointerSetMovedPartitions writes.
    unsafe {
        let place = &(*(*tuple).t_data).t_ctid;
        place.ip_posid == 0xfffd && place.ip_blkid.bi_hi == 0xffff && place.ip_blkid.bi_lo == 0xffff
    }
}

/// Are rows on their way to another partition?
pub fn any() -> bool {
    MOVED.with(|moved| moved.try_borrow().is_ok_and(|moved| !moved.is_empty()))
}

/// The row on its way whose arrival this tuple is; taken out of the list.
pub fn take(plan: &Plan, tuple: pg_sys::HeapTuple, new: &Fields) -> Option<MovedRow> {
    if !any() {
        return None;
    }
    // SAFETY: a heap tuple of this transaction, fetched by the trigger manager, header included.
    let arrived_by = unsafe {
        let header = (*tuple).t_data;
        ((*header).t_choice.t_heap.t_xmin, unguarded::HeapTupleHeaderGetCmin(header))
    };
    let id = image::entity_id(plan, new);
    MOVED.with(|moved| {
        let mut moved = moved.borrow_mut();
        let is_it = |row: &MovedRow| row.plan.relation == plan.relation && row.id == id && row.moved_by == arrived_by;
        let place = moved.iter().rposition(is_it)?;
        Some(moved.remove(place))
    })
}

/// Rows that were on their way to another partition and never arrived (a trigger there refused them) are deletions.
/// Called for the rows of a table as soon as something else of it is captured, so that the order stays right; for those
/// of a command when it has ended; and for all when the transaction ends.
pub fn flush(wanted: impl Fn(&MovedRow) -> bool) {
    if !any() {
        return;
    }
    let rows: Vec<MovedRow> = MOVED.with(|moved| {
        let mut moved = moved.borrow_mut();
        let (flushed, kept) = std::mem::take(&mut *moved).into_iter().partition(|row| wanted(row));
        *moved = kept;
        flushed
    });
    for row in rows {
        // SAFETY: asks about a transaction id of this transaction.
        if unsafe { pg_sys::TransactionIdIsCurrentTransactionId(row.transaction) } {
            deleted(row);
        }
    }
}

/// A command has ended: rows that it moved and that have not arrived never will.
pub fn flush_command(command: pg_sys::CommandId) {
    flush(|row| row.moved_by.1 == command);
}

fn deleted(row: MovedRow) {
    let mut prev = Vec::new();
    let truncated = image::join_columns(&row.plan, &row.columns, |_| true, &mut prev);
    let event = NewEvent {
        op: Some(Op::Deleted),
        relation: Some(row.plan.relation),
        truncated,
        from_table: true,
        kind: Some(&row.plan.watch.kind),
        entity_id: Some(&row.id),
        tenant: row.tenant.as_deref(),
        prev: Some(&prev),
        cause: Some(row.cause),
        ..Default::default()
    };
    buffer_event(&event, row.moved_by.1);
}

/// The transaction was rolled back.
pub fn forget() {
    MOVED.with(|moved| {
        if let Ok(mut moved) = moved.try_borrow_mut() {
            moved.clear();
        }
    });
}
