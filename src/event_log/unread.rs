//! The events behind the router's cursor, which are not routed yet: whether there is one, and the next ones.
use automation_core::topic::Ears;

use super::cursor::{self as cursor_store, Cursor, Late, Moment, Stretch, Use};
use super::ears;
use super::events::{self, Event};
use super::ids;
use super::scan::LogScan;
use crate::pg::engine_sql::Row;
use crate::pg::identity::as_engine;
use crate::pg::snapshot::own_transaction;

/// Look at most at this many late events before assuming that there is new work.
const A_FEW: i64 = 1000;

/// Is there an event to route? Takes no lock and no transaction id, so that looking leaves no trace.
pub fn anything_new() -> bool {
    as_engine(|| {
        let (Some(mut cursor), Some(to)) = (cursor_store::peek(), cursor_store::present()) else { return true };
        cursor.look_ahead();
        cursor.to.is_some() || !next_events(&cursor, &to, A_FEW, &Ears::closed()).is_empty_and_done()
    })
}

/// Are all events routed that were committed at this moment? Takes no lock.
pub fn has_routed(to: &Moment) -> bool {
    as_engine(|| {
        let Some(cursor) = cursor_store::peek() else { return true };
        let mut cursor = Cursor { to: None, position: 0, ..cursor };
        cursor.look_ahead();
        next_events(&cursor, to, A_FEW, &Ears::closed()).is_empty_and_done()
    })
}

pub struct Batch {
    /// How many events the batch has.
    pub members: usize,
    /// The events of the batch that an automation or a run may listen to.
    pub events: Vec<Event>,
    pub position: i64,
    pub done: bool,
}

impl Batch {
    fn is_empty_and_done(&self) -> bool {
        self.members == 0 && self.done
    }
}

/// The next events of the batch in id order: visible in `to`, not visible in `from`.
///
/// The events of transactions that began after `from` have ids above its floor and are found by id. Below the floor
/// there can only be events of transactions that were open then: in `from`'s list, or too young to be in it (a
/// snapshot's xmax is the last *completed* transaction plus one, so an open one may lie above it).
pub fn next_events(cursor: &Cursor, to: &Moment, limit: i64, ears: &Ears) -> Batch {
    let judge = |row: &Row<'_>| {
        let (xid, id) = (cursor_store::xid_of(row), row.int8(1).unwrap_or_default());
        match to.snapshot.sees(xid) && !cursor.from.sees(xid) {
            false => Use::Skip,
            // Events that were routed ahead are read as well: the times of their changes are not noted yet.
            true if ears::hear(ears, row) => Use::Read,
            true if cursor.is_ahead(xid, id) => Use::Skip,
            true => Use::Count,
        }
    };
    let mut position = cursor.position;
    let Some(mut log) = LogScan::open() else {
        return Batch { members: 0, events: Vec::new(), position, done: true };
    };
    let mut behind = Stretch::default();
    if position < cursor.from_floor {
        let late: Vec<u64> = cursor.from.in_progress.iter().copied().filter(|xid| to.snapshot.sees(*xid)).collect();
        let late = Late { listed: &late, from: cursor.from.xmax, below: to.snapshot.xmax, ..Default::default() };
        behind = cursor_store::events_of(&mut log, &late, position, cursor.from_floor, limit, judge);
        if behind.rows as i64 >= limit {
            position = behind.last.unwrap_or(position);
            return Batch { members: behind.members, events: behind.events, position, done: false };
        }
        position = cursor.from_floor;
    }
    let room = limit - behind.rows as i64;
    let ahead = cursor_store::events_between(&mut log, position, to.ceiling, room, judge);
    let done = (ahead.rows as i64) < room;
    position = ahead.last.unwrap_or(position);
    let mut events = behind.events;
    events.extend(ahead.events);
    Batch { members: behind.members + ahead.members, events, position, done }
}

/// Most events behind the cursor that are looked at to know whether something has just changed.
const MOST_UNROUTED: i64 = 1000;

/// The events that this transaction can see and that are not routed yet, its own included; None if there are too many.
pub fn unrouted() -> Option<Vec<Event>> {
    as_engine(|| {
        let (mut cursor, present) = (cursor_store::peek()?, cursor_store::present()?);
        cursor.look_ahead();
        let mut events = Vec::new();
        // The rest of the batch under way; events committed since it began may have lower ids than its position.
        if let Some(to) = cursor.to.take() {
            let rest = next_events(&cursor, &to, MOST_UNROUTED, &Ears::open());
            events = rest.done.then_some(rest.events)?;
            cursor = Cursor { from: to.snapshot, from_floor: to.floor, to: None, position: 0, ahead: cursor.ahead };
        }
        let next = next_events(&cursor, &present, MOST_UNROUTED, &Ears::open());
        events.extend(next.done.then_some(next.events)?);
        events::insert_buffered();
        let own = own_transaction();
        if own != 0 {
            let besides = ids::own();
            let late = Late { listed: &[own], besides: &besides, ..Default::default() };
            let mut log = LogScan::open()?;
            let written = cursor_store::events_of(&mut log, &late, 0, i64::MAX, MOST_UNROUTED, |_| Use::Read);
            if written.rows as i64 == MOST_UNROUTED {
                return None;
            }
            events.extend(written.events);
        }
        Some(events)
    })
}
