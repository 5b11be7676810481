//! Stage 1: events in, dispatches out. Reads a bounded batch of the log, asks every trigger on each event's topic, and
//! moves the cursor, in the caller's transaction. Runs no user SQL and evaluates only filters over the event itself.
mod deep;
mod definitions;
mod held;
mod holds;
mod lanes;
mod matching;
mod orders;
mod slow;
mod storm;
mod subscribers;
mod sweep;
mod ticks;
mod wakes;

use std::collections::HashMap;

use automation_core::definition::{Mode, Ordering};
use automation_core::expr::{Budget, Expr};
use automation_core::gate::key;
use automation_core::ids::{AutomationId, EventId, RunId};
use automation_core::order::Order;
use automation_core::topic::Ears;
use definitions::Active;
use holds::Holds;
use pgrx::pg_sys;

use crate::definitions::hearing::Privileges;
use crate::definitions::scope::EventScope;
use crate::definitions::tenant_view::TenantColumns;
use crate::event_log::cursor::{self as cursor_store, Late, Use};
use crate::event_log::events::{self, Event, Op};
use crate::event_log::ids;
use crate::event_log::scan::LogScan;
use crate::event_log::unread::{Batch, anything_new, next_events};
use crate::pg::append::next_id;
use crate::pg::clock::{self, Micros};
use crate::pg::engine_sql::Row;
use crate::pg::failpoint::failpoint;
use crate::pg::identity::{self, as_engine};
use crate::pg::key_lock::hash;
use crate::pg::watch;
use crate::store::dispatches::{self, NewDispatch, Reason};
use crate::store::gates::{self, Refused};
use crate::store::history::EndedRun;
use crate::store::log::{self, Entry};
use crate::store::stats::{self, Counts};
use crate::{gucs, store};
pub use holds::key_of;
use matching::FilterError;
pub use sweep::{Swept, has_turn_coming, is_on_its_way, sweep};
pub use ticks::compute_ticks_anew;

/// The result of one turn of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed {
    /// Another session or process is routing.
    Busy,
    /// Events read and dispatches written; `more` if the batch was cut off by the limit.
    Events { events: usize, dispatches: usize, more: bool, owners: Vec<pg_sys::Oid> },
}

/// Routes up to `limit` committed events and, if `with_timers`, up to as many due timers. The caller passes false if it
/// knows that none is due.
pub fn route(limit: i64, with_timers: bool) -> Routed {
    as_engine(|| {
        let Some(mut cursor) = cursor_store::take() else { return Routed::Busy };
        failpoint("route_taken");
        let Some(to) = cursor.end_of_batch() else { return Routed::Busy };
        cursor.look_ahead();
        // Read after the batch's end is fixed, so that every automation activated before a change in this batch was
        // committed is included.
        let ears = definitions::ears();
        let Batch { members, events, position, done } = next_events(&cursor, &to, limit, &ears);
        failpoint("route_read");
        // A change that was committed before a deadline beats it: timers are taken when all visible events are routed,
        // and are queued behind them.
        let only_for = clock::set_clock().map(|_| identity::outer_user());
        let timers = Timers { most: if done && with_timers { limit } else { 0 }, by: to.at, held: true, only_for };
        definitions::note_changes(&events);
        let (ahead, events): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| cursor.is_ahead(event.xid, event.id.0));
        let members = members - ahead.len();
        // The next run of a queue is looked for once more: a run that joined the queue while the transaction of drain()
        // was open was not visible there.
        let events: Vec<Event> = events.into_iter().chain(ahead.into_iter().filter(wakes::is_turn)).collect();
        let (dispatches, owners, many) = route_events(&events, timers);
        failpoint("route_written");
        if done {
            cursor_store::finish_batch(&cursor, &to);
        } else {
            cursor_store::advance(&to, position);
        }
        failpoint("route_advanced");
        // Timers that have become due since the batch began are for the next batch.
        Routed::Events { events: members, dispatches, more: !done || many || cursor.to.is_some(), owners }
    })
}

/// Routes the events that the current transaction has written so far: drain() inside a transaction that is still open.
/// Only this transaction sees these events and the dispatches made of them, so the router's cursor is not needed, and
/// other sessions go on routing. The changed fields are recorded after the commit, by the router whose batch reaches
/// these events: recording a field change locks its row, which must not stay locked while this transaction is open.
pub fn route_own(above: i64) -> (usize, i64) {
    as_engine(|| {
        events::insert_buffered();
        let xid = crate::pg::snapshot::own_transaction();
        if xid == 0 {
            return (0, above);
        }
        // An earlier drain() of this transaction may have routed further already.
        let above =
            cursor_store::ahead().iter().filter(|(own, _)| *own == xid).map(|(_, id)| *id).fold(above, i64::max);
        let besides = ids::own();
        let own = Late { listed: &[xid], besides: &besides, ..Default::default() };
        let Some(mut log) = LogScan::open() else { return (0, above) };
        let all = |_: &Row<'_>| Use::Read;
        let events = cursor_store::events_of(&mut log, &own, above, i64::MAX, gucs::route_batch_size(), all).events;
        drop(log);
        let Some(last) = events.last().map(|event| event.id) else { return (0, above) };
        route_events(&events, Timers::default());
        cursor_store::note_ahead(xid, last.0);
        // The dispatches inserted here have lower ids than those that other sessions insert before this transaction
        // commits, so the claimers must reset their floors at the commit.
        crate::signal::at_commit::return_claims_at_commit();
        (events.len(), last.0)
    })
}

/// Turns due timers into dispatches, without routing events. 0 while another session or process is routing.
pub fn run_timers(limit: i64) -> usize {
    as_engine(|| {
        if cursor_store::take().is_none() {
            return 0;
        }
        due_timers(limit, clock::set_clock().map(|_| identity::outer_user()))
    })
}

/// Turns due timers into dispatches, but only timers of roles that the session can SET ROLE to, and without the
/// router's cursor, so that another session can route meanwhile.
pub fn run_own_timers(limit: i64) -> usize {
    as_engine(|| {
        let queued = due_timers(limit, Some(identity::outer_user()));
        if queued > 0 {
            crate::signal::at_commit::return_claims_at_commit();
        }
        queued
    })
}

fn due_timers(limit: i64, only_for: Option<pg_sys::Oid>) -> usize {
    // A hold may be broken by an event that is not routed yet.
    route_events(&[], Timers { most: limit, by: clock::now(), held: !anything_new(), only_for }).0
}

/// The timers that are taken with a batch.
#[derive(Default)]
struct Timers {
    most: i64,
    /// Only timers due by then: all events committed before that time are routed.
    by: Micros,
    /// Also timers of holds.
    held: bool,
    /// Only timers of roles that this role can become.
    only_for: Option<pg_sys::Oid>,
}

/// Matches events against all active triggers and all waits, takes due timers, and writes the dispatches that follow.
/// Returns how many dispatches were written, their owners, and whether more timers may be due.
fn route_events(events: &[Event], timers: Timers) -> (usize, Vec<pg_sys::Oid>, bool) {
    let now = clock::now();
    let mut plan = Plan {
        now,
        dispatches: Vec::new(),
        ended: Vec::new(),
        counts: HashMap::new(),
        readers: HashMap::new(),
        refused: HashMap::new(),
        privileges: Privileges::default(),
        started: Vec::new(),
        tenant_columns: TenantColumns::default(),
        audience: Audience::All,
        holds: Holds::default(),
        filter_errors: HashMap::new(),
        cuts: Vec::new(),
    };
    let mut freed = Vec::new();
    if !events.is_empty() {
        definitions::with_current(|definitions| {
            let topics = definitions.derivers().of_events(events, now);
            // Waits come first: a run that an event wakes is queued before a run that the same event starts.
            plan.dispatches.extend(wakes::of_events(events, &topics, now));
            for view in events.iter().filter_map(|event| plan.tenant_columns.views(event)).flatten() {
                // Waits for a state were woken by the event itself.
                let topics = definitions.derivers().of_events(std::slice::from_ref(&view), now);
                let woken = wakes::of_events(std::slice::from_ref(&view), &topics, now).into_iter();
                plan.dispatches.extend(woken.filter(|dispatch| dispatch.reason == Reason::Event));
            }
            subscribers::tell(definitions.subscriptions(), definitions.hearing(), events, &topics);
            for event in events {
                // Interrupts are served between two events, where no event is half routed: a batch that ends here is
                // routed again.
                watch::serve();
                match event.op {
                    Op::Started => plan.start(definitions, event),
                    Op::Ended => freed.extend(automation_freed(event)),
                    Op::Signalled | Op::Moved => {}
                    _ => plan.match_event(definitions, event, topics.get(&event.id).map_or(&[], Vec::as_slice)),
                }
            }
        });
    }
    let due = if timers.most > 0 {
        wakes::due_timers(timers.most, timers.by, timers.held, timers.only_for)
    } else {
        Vec::new()
    };
    if !due.is_empty() {
        failpoint("timers_taken");
    }
    let many = timers.most > 0 && due.len() as i64 == timers.most;
    plan.dispatches.extend(due);
    let many = plan.ticks(timers.most, &freed, timers.only_for) || many;
    let (dispatches, owners) = plan.write();
    crate::signal::at_commit::work_at_commit(dispatches > 0);
    (dispatches, owners, many)
}

/// The automations that an event, or a tenant's view of it, is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    All,
    /// Automations without a tenant: the event is an update that moves an entity from one tenant to another.
    Shared,
    /// Automations of a tenant: the event is that tenant's view of such an update.
    Tenants,
}

/// All rows that routing a batch will write, collected before they are written.
struct Plan {
    now: Micros,
    dispatches: Vec<NewDispatch>,
    ended: Vec<EndedRun>,
    counts: HashMap<(AutomationId, i16), Counts>,
    /// Whether an owner may read a table, by (owner, table).
    readers: HashMap<(pg_sys::Oid, pg_sys::Oid), bool>,
    /// Events that were withheld from a trigger, counted by the reason.
    refused: HashMap<Refused, i64>,
    /// Cached answers to whether one role has the privileges of another.
    privileges: Privileges,
    started: Vec<RunId>,
    tenant_columns: TenantColumns,
    /// The automations that the event, or the view of it, being matched is for.
    audience: Audience,
    holds: Holds,
    /// Filters that could not be evaluated: how often, and for which event last.
    filter_errors: HashMap<FilterError, (i64, Option<EventId>)>,
    /// Events that were too deep in a chain of causes to start an automation.
    cuts: Vec<deep::Cut>,
}

impl Plan {
    fn dispatch(
        &self,
        active: &Active,
        event: &Event,
        trigger_no: i16,
        reason: Reason,
        run_id: Option<RunId>,
    ) -> NewDispatch {
        NewDispatch {
            owner: active.owner,
            id: 0,
            tenant: event.tenant.clone(),
            behind: self.changes_tenant(event),
            run_id: run_id.unwrap_or_else(|| RunId(next_id("run_id_seq"))),
            event: Some((event.id, event.occurred_at)),
            created_at: self.now,
            ordering_key: ordering_key(active, event, self.now),
            automation_id: active.automation_id,
            version_id: active.version_id,
            trigger_no,
            reason,
            wait_no: None,
            cause: None,
            topic: None,
        }
    }

    fn write(mut self) -> (usize, Vec<pg_sys::Oid>) {
        self.settle_checks();
        slow::pause_stopped();
        self.pause_loops();
        self.log_filter_errors();
        let cancelled = store::runs::take_cancelled(&self.started);
        for run_id in cancelled {
            if let Some(place) = self.dispatches.iter().position(|d| d.run_id == run_id && d.reason.starts()) {
                let dispatch = self.dispatches.remove(place);
                let event = dispatch.event.and_then(|(id, _)| events::one(id));
                if let Some(event) = event {
                    let (automation, version) = (dispatch.automation_id, dispatch.version_id);
                    let ended = self.not_started(&event, run_id, automation, version, dispatch.owner, "cancelled");
                    self.ended.push(ended);
                }
            }
        }
        if !self.dispatches.is_empty() {
            lanes::place(&mut self.dispatches);
            dispatches::insert(&self.dispatches);
        }
        for dispatch in self.dispatches.iter().filter(|dispatch| dispatch.reason.starts()) {
            storm::note(dispatch.automation_id, dispatch.owner, self.now);
        }
        if !self.ended.is_empty() {
            crate::runs::end::end(&self.ended);
        }
        self.counts.retain(|_, counts| *counts != Counts::default());
        if !self.counts.is_empty() {
            stats::add(self.counts.iter(), self.now);
        }
        gates::add_refusals(&self.refused, self.now);
        let mut owners: Vec<pg_sys::Oid> = self.dispatches.iter().map(|dispatch| dispatch.owner).collect();
        owners.sort_unstable_by_key(|owner| owner.to_u32());
        owners.dedup();
        (self.dispatches.len(), owners)
    }
}

/// The automation whose ticks may have waited for the run that has ended.
fn automation_freed(event: &Event) -> Option<AutomationId> {
    match event.order()? {
        Order::Freed { automation_id } => Some(automation_id),
        Order::Start(_)
        | Order::Tick { .. }
        | Order::Thaw { .. }
        | Order::Look { .. }
        | Order::Bulk { .. }
        | Order::Turn { .. }
        | Order::Skip { .. } => None,
    }
}

/// The ordering key of a run: runs that share a key start in the order of their events.
fn ordering_key(active: &Active, event: &Event, now: Micros) -> Option<i64> {
    let id = active.automation_id.to_string();
    let program = &active.program;
    if program.limits.mode == Mode::Queued {
        // Mode `queued` serves runs first come, first served, and their order is decided here. If the key can be
        // computed only by an executor, all runs of the automation share one ordering key.
        let scope = EventScope::new(event, now);
        let (tenant, entity) = (event.tenant.as_deref(), event.kind.as_deref().zip(event.entity_id.as_deref()));
        let known = program.key.as_ref().is_none_or(Expr::is_pure_event);
        let mut budget = Budget::default();
        let key = known.then(|| key::run(program.key.as_ref(), &scope, &mut budget, tenant, entity));
        slow::evaluated(active, "key", &budget);
        return Some(hash(&[&id, "key", key.flatten().as_deref().unwrap_or_default()]));
    }
    entity_key(active, event)
}

/// The ordering key by entity or tenant alone: the event that breaks off a hold may have another run key than the event
/// that began it.
fn entity_key(active: &Active, event: &Event) -> Option<i64> {
    let id = active.automation_id.to_string();
    match active.program.ordering {
        Ordering::None => None,
        Ordering::Tenant => Some(hash(&[&id, event.tenant.as_deref().unwrap_or("")])),
        Ordering::Entity => {
            let (kind, entity) = (event.kind.as_deref()?, event.entity_id.as_deref()?);
            Some(hash(&[&id, kind, entity]))
        }
    }
}

/// Sets the next event aside after routing it has failed repeatedly: it is kept as a dead letter, and routing goes on
/// behind it.
pub fn set_aside_next_event(message: &str) {
    as_engine(|| {
        let Some(mut cursor) = cursor_store::take() else { return };
        let Some(to) = cursor.end_of_batch() else { return };
        cursor.look_ahead();
        let Batch { events, position, done, .. } = next_events(&cursor, &to, 1, &Ears::open());
        if let Some(event) = events.first().filter(|event| !cursor.is_ahead(event.xid, event.id.0)) {
            let text = format!("event {} could not be routed and was set aside", event.id);
            let entry = Entry {
                code: "event_unroutable",
                event_id: Some(event.id),
                message: &text,
                detail: Some(message),
                ..Default::default()
            };
            log::error(&entry);
            let error = serde_json::json!({ "sqlstate": "XX000", "message": message });
            log::dead_letter(&entry, &error.to_string());
        }
        if done {
            cursor_store::finish_batch(&cursor, &to);
        } else {
            cursor_store::advance(&to, position);
        }
    });
}
