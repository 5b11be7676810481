//! Queues the sweep: runs that have waited for long are evaluated once more, a slice at a time.
use automation_core::ids::{AutomationId, RunId, WaitNo};
use automation_core::order::Order;
use pgrx::pg_sys;

use super::{lanes, wakes};
use crate::definitions::derived;
use crate::event_log::events::Event;
use crate::event_log::unread::unrouted;
use crate::pg::clock::{self, Micros};
use crate::pg::identity::as_engine;
use crate::store::dispatches::{self, Reason};
use crate::store::live;

/// A slice of the live runs.
#[derive(Debug, Default)]
pub struct Swept {
    /// How many runs were queued for evaluation.
    pub runs: usize,
    /// The owners of these runs.
    pub owners: Vec<pg_sys::Oid>,
    /// The number of the last of these runs; None if there are no more.
    pub last: Option<RunId>,
}

/// Queues the evaluation of up to `limit` runs with numbers above `after` that began before a point in time.
pub fn sweep(after: RunId, limit: i64, begun_before: Micros) -> Swept {
    as_engine(|| {
        let found = live::slice(after, limit, begun_before);
        let now = clock::now();
        let mut queued: Vec<_> =
            found.iter().map(|waiter| wakes::dispatch(*waiter, Reason::Sweep, None, now)).collect();
        if !queued.is_empty() {
            lanes::place(&mut queued);
            dispatches::insert(&queued);
            crate::signal::at_commit::work_at_commit(true);
            // sweep() called by hand takes no router cursor: a conductor may queue dispatches with higher places and
            // commit them before this transaction commits.
            crate::signal::at_commit::return_claims_at_commit();
        }
        let mut owners: Vec<pg_sys::Oid> = found.iter().map(|waiter| waiter.owner).collect();
        owners.sort_unstable_by_key(|owner| owner.to_u32());
        owners.dedup();
        let last = found.last().map(|waiter| waiter.run_id).filter(|_| found.len() as i64 == limit);
        Swept { runs: found.len(), owners, last }
    })
}

/// Is an event in the log that will wake this wait, but is not routed yet? Also true if that cannot be decided.
pub fn is_on_its_way(run: RunId, wait_no: WaitNo) -> bool {
    let Some(events) = unrouted() else { return true };
    as_engine(|| {
        let topics = derived::current().of_events(&events, clock::now());
        let found = wakes::waiters(&events, &topics);
        found.iter().any(|woken| woken.waiter.run_id == run && woken.waiter.wait_no == wait_no)
    })
}

/// Is there an order in the log that calls the next run of a queue and is not routed yet? Also true if that cannot be
/// decided.
pub fn has_turn_coming(automation: AutomationId, key: &str) -> bool {
    let Some(events) = unrouted() else { return true };
    events.iter().filter_map(Event::order).any(
        |order| matches!(order, Order::Turn { automation_id, key: of } if automation_id == automation && of == key),
    )
}
