//! The trigger functions on watched tables. They run in the writer's transaction, as the writer.
#![allow(unsafe_code)]
use std::cell::{Cell, RefCell};

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::image::{self, Fields};
use super::plan::{Column, Plan, plan_for};
use crate::gucs;
use crate::pg::raw::unguarded;
use crate::pg::settings::Pinned;
use crate::store::events::{NewEvent, Op, append_event, buffer_event};

#[unsafe(no_mangle)]
#[doc(hidden)]
pub extern "C" fn pg_finfo_automation_capture_change() -> *const pg_sys::Pg_finfo_record {
    static RECORD: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &RECORD
}

/// Row trigger: one event per real difference.
///
/// # Safety
/// Called by Postgres' function manager.
#[unsafe(no_mangle)]
#[pg_guard]
pub unsafe extern "C-unwind" fn automation_capture_change(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: a trigger function is called with TriggerData as its context; it is checked.
    unsafe {
        let data = (*fcinfo).context.cast::<pg_sys::TriggerData>();
        if data.is_null() || (*data).type_ != pg_sys::NodeTag::T_TriggerData {
            error!("automation_internal.capture_change() can only be called as a trigger");
        }
        capture(&*data);
        pg_sys::Datum::from((*data).tg_trigtuple)
    }
}

fn capture(data: &pg_sys::TriggerData) {
    if !gucs::capture() {
        return;
    }
    // SAFETY: the trigger manager keeps relation, trigger and tuples valid during the call.
    let Some(plan) = plan_for(data.tg_relation, unsafe { &*data.tg_trigger }) else { return };
    let _canonical = if plan.needs_canonical { Pinned::canonical_output() } else { None };
    let descriptor = unsafe { (*data.tg_relation).rd_att };
    let fields = |tuple| Fields::of(tuple, descriptor, plan.width);
    COMMAND.set(command_of(data));
    match data.tg_event & pg_sys::TRIGGER_EVENT_OPMASK {
        pg_sys::TRIGGER_EVENT_INSERT => insert(&plan, data.tg_trigtuple, &fields(data.tg_trigtuple)),
        pg_sys::TRIGGER_EVENT_DELETE => delete(&plan, data.tg_trigtuple, descriptor),
        pg_sys::TRIGGER_EVENT_UPDATE => update(&plan, &fields(data.tg_trigtuple), &fields(data.tg_newtuple)),
        pg_sys::TRIGGER_EVENT_TRUNCATE => {
            append_event(&NewEvent {
                op: Some(Op::Truncated),
                relation: Some(plan.relation),
                kind: Some(&plan.watch.kind),
                ..Default::default()
            });
        }
        _ => {}
    }
}

thread_local!(static COMMAND: Cell<pg_sys::CommandId> = const { Cell::new(0) });

/// The command that made the change: the one that wrote the new version, or deleted the old one.
fn command_of(data: &pg_sys::TriggerData) -> pg_sys::CommandId {
    // SAFETY: heap tuples of this transaction, fetched by the trigger manager, header included.
    unsafe {
        match data.tg_event & pg_sys::TRIGGER_EVENT_OPMASK {
            pg_sys::TRIGGER_EVENT_INSERT => unguarded::HeapTupleHeaderGetCmin((*data.tg_trigtuple).t_data),
            pg_sys::TRIGGER_EVENT_UPDATE => unguarded::HeapTupleHeaderGetCmin((*data.tg_newtuple).t_data),
            pg_sys::TRIGGER_EVENT_DELETE => unguarded::HeapTupleHeaderGetCmax((*data.tg_trigtuple).t_data),
            _ => pg_sys::GetCurrentCommandId(false),
        }
    }
}

fn update(plan: &Plan, old: &Fields, new: &Fields) {
    flush_moved(Some(plan.relation));
    if image::keys_differ(plan, old, new) {
        // The row is another entity now: the old one is gone, the new one is there.
        removed(plan, old);
        created(plan, new);
        return;
    }
    let changed = image::differences(plan, old, new);
    if !changed.is_empty() {
        updated(plan, old, new, &changed);
    }
}

thread_local! {
    /// Memory for the images of the next update: asking for it anew for each row takes as long as writing them.
    static IMAGES: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// More is given back.
const KEPT_MEMORY: usize = 64 * 1024;

fn updated(plan: &Plan, old: &Fields, new: &Fields, changed: &[usize]) {
    let limit = gucs::max_value_bytes();
    let (mut prev, mut next) = IMAGES.take();
    prev.clear();
    next.clear();
    let cut_prev = image::write_image(plan, old, limit, |i, _| changed.contains(&i), &mut prev);
    let cut_next = image::write_image(plan, new, limit, |_, _| true, &mut next);
    emit(plan, Op::Updated, new, cut_prev || cut_next, Some(changed), Some(&prev), Some(&next));
    if prev.capacity() + next.capacity() <= KEPT_MEMORY {
        IMAGES.set((prev, next));
    }
}

fn created(plan: &Plan, new: &Fields) {
    let mut next = Vec::with_capacity(256);
    let cut = image::write_image(plan, new, gucs::max_value_bytes(), |_, _| true, &mut next);
    emit(plan, Op::Created, new, cut, None, None, Some(&next));
}

fn removed(plan: &Plan, old: &Fields) {
    let mut prev = Vec::with_capacity(256);
    let cut = image::write_image(plan, old, gucs::max_value_bytes(), |_, _| true, &mut prev);
    emit(plan, Op::Deleted, old, cut, None, Some(&prev), None);
}

fn emit(
    plan: &Plan,
    op: Op,
    row: &Fields,
    truncated: bool,
    changed: Option<&[usize]>,
    prev: Option<&[u8]>,
    next: Option<&[u8]>,
) {
    let id = image::entity_id(plan, row);
    let tenant = image::tenant(plan, row);
    // Where the old image can be shown, it has exactly what changed, and names it.
    let changed = changed.filter(|_| plan.key_only).map(|places| plan.names_of(places));
    let event = NewEvent {
        op: Some(op),
        relation: Some(plan.relation),
        truncated,
        kind: Some(&plan.watch.kind),
        entity_id: Some(&id),
        tenant: tenant.as_deref(),
        changed: changed.as_ref().map(|names| names.datum()),
        prev,
        next,
        ..Default::default()
    };
    buffer_event(&event, COMMAND.get());
}

// A row that an UPDATE moves to another partition reaches us as a DELETE there and an INSERT here. The DELETE's tuple
// says that it moved; it is kept until the INSERT of the same key arrives, and both become one update.

struct MovedRow {
    /// Transaction and command that moved it: those of its arrival.
    moved_by: (pg_sys::TransactionId, pg_sys::CommandId),
    plan: std::rc::Rc<Plan>,
    /// Subtransaction in which it was deleted; if that is rolled back, nothing happened.
    transaction: pg_sys::TransactionId,
    id: Vec<u8>,
    tuple: pg_sys::HeapTuple,
    descriptor: pg_sys::TupleDesc,
}

thread_local!(static MOVED: RefCell<Vec<MovedRow>> = const { RefCell::new(Vec::new()) });

fn delete(plan: &std::rc::Rc<Plan>, tuple: pg_sys::HeapTuple, descriptor: pg_sys::TupleDesc) {
    flush_moved(Some(plan.relation));
    let old = Fields::of(tuple, descriptor, plan.width);
    if !has_moved(tuple) {
        return removed(plan, &old);
    }
    // SAFETY: copies into memory that lives as long as the transaction.
    let (tuple, descriptor, transaction, moved_by) = unsafe {
        let header = (*tuple).t_data;
        let moved_by = ((*header).t_choice.t_heap.t_xmax, unguarded::HeapTupleHeaderGetCmax(header));
        let previous = pg_sys::MemoryContextSwitchTo(pg_sys::TopTransactionContext);
        let copies = (pg_sys::heap_copytuple(tuple), pg_sys::CreateTupleDescCopyConstr(descriptor));
        pg_sys::MemoryContextSwitchTo(previous);
        (copies.0, copies.1, pg_sys::GetCurrentTransactionId(), moved_by)
    };
    let id = image::entity_id(plan, &old);
    crate::workers::wake::conductor_at_commit();
    MOVED.with(|moved| {
        moved.borrow_mut().push(MovedRow { moved_by, plan: plan.clone(), transaction, id, tuple, descriptor });
    });
}

/// Does the deleted tuple say that its row lives on in another partition?
fn has_moved(tuple: pg_sys::HeapTuple) -> bool {
    // SAFETY: a heap tuple fetched by the trigger manager, header included. The two values are what
    // ItemPointerSetMovedPartitions writes.
    unsafe {
        let place = &(*(*tuple).t_data).t_ctid;
        place.ip_posid == 0xfffd && place.ip_blkid.bi_hi == 0xffff && place.ip_blkid.bi_lo == 0xffff
    }
}

/// Takes the row out of those on their way whose arrival this tuple is.
fn take_moved(plan: &Plan, tuple: pg_sys::HeapTuple, new: &Fields) -> Option<MovedRow> {
    if MOVED.with(|moved| moved.borrow().is_empty()) {
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

fn insert(plan: &std::rc::Rc<Plan>, tuple: pg_sys::HeapTuple, new: &Fields) {
    let moved = take_moved(plan, tuple, new);
    flush_moved(Some(plan.relation));
    let Some(moved) = moved else { return created(plan, new) };
    let old = Fields::of(moved.tuple, moved.descriptor, moved.plan.width);
    // The two partitions may lay out their columns differently, so whole images are compared, not the tuples; what is
    // written of them is another matter.
    let (mut before, mut after) = (Vec::new(), Vec::new());
    image::write_whole(&moved.plan, &old, &mut before);
    image::write_whole(plan, new, &mut after);
    let (Some(before), Some(after)) = (parse_object(&before), parse_object(&after)) else {
        return created(plan, new);
    };
    let changed: Vec<usize> = (0..plan.columns.len())
        .filter(|&i| before.get(&plan.columns[i].name) != after.get(&plan.columns[i].name))
        .collect();
    if changed.is_empty() {
        return;
    }
    let limit = gucs::max_value_bytes();
    let (mut prev, mut next) = (Vec::new(), Vec::new());
    let has_changed = |column: &Column| changed.iter().any(|&i| plan.columns[i].name == column.name);
    let cut_prev = image::write_image(&moved.plan, &old, limit, |_, column| has_changed(column), &mut prev);
    let cut_next = image::write_image(plan, new, limit, |_, _| true, &mut next);
    emit(plan, Op::Updated, new, cut_prev || cut_next, Some(&changed), Some(&prev), Some(&next));
}

fn parse_object(bytes: &[u8]) -> Option<serde_json::Map<String, serde_json::Value>> {
    serde_json::from_slice(bytes).ok()
}

/// Rows that were on their way to another partition and never arrived (a trigger there refused them) are deletions.
pub fn flush_moved_rows() {
    flush_moved(None);
}

/// Of one table only: as soon as something else of it is captured, so that the order stays right.
fn flush_moved(relation: Option<pg_sys::Oid>) {
    let moved = MOVED.with(|moved| {
        let mut moved = moved.borrow_mut();
        if moved.is_empty() {
            return Vec::new();
        }
        let (flushed, kept) = std::mem::take(&mut *moved)
            .into_iter()
            .partition(|row: &MovedRow| relation.is_none_or(|relation| row.plan.relation == relation));
        *moved = kept;
        flushed
    });
    for row in moved {
        // SAFETY: asks about a transaction id of this transaction.
        if unsafe { pg_sys::TransactionIdIsCurrentTransactionId(row.transaction) } {
            removed(&row.plan, &Fields::of(row.tuple, row.descriptor, row.plan.width));
        }
    }
}

pub fn forget_moved_rows() {
    MOVED.with(|moved| moved.borrow_mut().clear());
}
