//! The safety net: runs that have waited for long are looked at once more, a slice at a time.
use pgrx::pg_sys;

use super::{next_events, wakes};
use crate::pg::clock::{self, Micros};
use crate::pg::identity::as_engine;
use crate::pg::snapshot::own_transaction;
use crate::store::dispatches::{self, Reason};
use crate::store::router as cursor_store;
use crate::store::{events, live};

/// Most events that are searched for one that a wait is about to be woken by.
const MOST_UNROUTED: i64 = 1000;

/// A slice of the runs that wait.
#[derive(Debug, Default)]
pub struct Swept {
    /// How many are going to be looked at.
    pub runs: usize,
    /// Whose they are.
    pub owners: Vec<pg_sys::Oid>,
    /// The last of them; None if there are no more.
    pub last: Option<i64>,
}

/// Queues a look at up to `limit` runs with numbers above `after` that began before a point in time.
pub fn sweep(after: i64, limit: i64, begun_before: Micros) -> Swept {
    as_engine(|| {
        // Only whoever has the cursor adds to the queue.
        cursor_store::wait_for_cursor();
        let found = live::slice(after, limit, begun_before);
        let now = clock::now();
        let queued: Vec<_> = found.iter().map(|waiter| wakes::dispatch(*waiter, Reason::Sweep, None, now)).collect();
        if !queued.is_empty() {
            dispatches::insert(&queued);
            crate::workers::wake::work_at_commit(true);
        }
        let mut owners: Vec<pg_sys::Oid> = found.iter().map(|waiter| waiter.owner).collect();
        owners.sort_unstable_by_key(|owner| owner.to_u32());
        owners.dedup();
        let last = found.last().map(|waiter| waiter.run_id).filter(|_| found.len() as i64 == limit);
        Swept { runs: found.len(), owners, last }
    })
}

/// Is something in the log that will wake this wait, but is not routed yet? Also true if that cannot be said.
pub fn is_on_its_way(run: i64, wait_no: i32) -> bool {
    as_engine(|| {
        events::insert_buffered();
        let own = match own_transaction() {
            0 => Vec::new(),
            xid => cursor_store::events_of(&[xid], 0, i64::MAX, MOST_UNROUTED),
        };
        let (Some(cursor), Some(to)) = (cursor_store::peek(), cursor_store::present()) else { return true };
        let batch = next_events(&cursor, &to, MOST_UNROUTED);
        if !batch.done || own.len() as i64 == MOST_UNROUTED {
            return true;
        }
        [own, batch.events]
            .iter()
            .any(|events| wakes::waiters(events).iter().any(|(w, ..)| w.run_id == run && w.wait_no == wait_no))
    })
}
