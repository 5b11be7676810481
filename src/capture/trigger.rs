//! The trigger functions on watched tables. They run in the writer's transaction, as the writer.
#![allow(unsafe_code)]
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::image::{self, Fields};
use super::moved::{self, MovedRow};
use super::plan::{Plan, plan_for};
use crate::error::EngineError;
use crate::event_log::events::{NewEvent, Op, append_event, buffer_event};
use crate::gucs;
use crate::pg::raw::unguarded;
use crate::pg::settings::Pinned;

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
            EngineError::not_supported("automation_internal.capture_change() can only be called as a trigger")
                .hint("Watch a table with automation.watch_table().")
                .to_pg()
                .raise();
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
        pg_sys::TRIGGER_EVENT_DELETE => delete(&plan, data.tg_trigtuple, &fields(data.tg_trigtuple)),
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
    moved::flush(|row| row.plan.relation == plan.relation);
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

/// Buffers larger than this are freed after the row.
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

/// A row that came from another partition becomes one update with its departure.
fn insert(plan: &Plan, tuple: pg_sys::HeapTuple, new: &Fields) {
    let arrived = moved::take(plan, tuple, new);
    moved::flush(|row| row.plan.relation == plan.relation);
    match arrived {
        Some(row) => arrived_from(&row, plan, new),
        None => created(plan, new),
    }
}

fn arrived_from(row: &MovedRow, plan: &Plan, new: &Fields) {
    let columns = image::write_columns(plan, new, gucs::max_value_bytes());
    let changed = image::differing_columns((&row.plan, &row.columns), (plan, &columns));
    if changed.is_empty() {
        return;
    }
    let (mut prev, mut next) = (Vec::new(), Vec::new());
    let has_changed = |name: &str| changed.iter().any(|&i| plan.columns[i].name == name);
    let cut_prev = image::join_columns(&row.plan, &row.columns, |column| has_changed(&column.name), &mut prev);
    let cut_next = image::join_columns(plan, &columns, |_| true, &mut next);
    emit(plan, Op::Updated, new, cut_prev || cut_next, Some(&changed), Some(&prev), Some(&next));
}

fn delete(plan: &Rc<Plan>, tuple: pg_sys::HeapTuple, old: &Fields) {
    moved::flush(|row| row.plan.relation == plan.relation);
    if !moved::keep(plan, tuple, old) {
        removed(plan, old);
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
    // Unless only keys are recorded, `prev` holds exactly the changed columns, so no list of names is needed.
    let changed = changed.filter(|_| plan.key_only).map(|places| plan.names_of(places));
    let event = NewEvent {
        op: Some(op),
        relation: Some(plan.relation),
        truncated,
        from_table: true,
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
