//! The router's place in the log, and the events behind it.
use std::cell::RefCell;
use std::ops::ControlFlow;

use automation_core::ids::EventId;

use super::events::Event;
use super::ids;
use super::scan::LogScan;
use crate::pg::clock::{self, Micros};
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::failpoint::skips;
use crate::pg::snapshot::Snapshot;
use crate::pg::table_scan::{StatementSnapshot, each_row};

/// A moment in the log: a snapshot, and the ids around it.
#[derive(Debug, Clone)]
pub struct Moment {
    pub snapshot: Snapshot,
    /// A transaction that began after the snapshot draws only ids above it.
    pub floor: i64,
    /// No event that the snapshot sees has an id above it.
    pub ceiling: i64,
    /// The snapshot sees the transactions that were committed by then.
    pub at: Micros,
}

/// The one row of router_cursor, locked.
#[derive(Debug, Clone)]
pub struct Cursor {
    pub from: Snapshot,
    pub from_floor: i64,
    /// Where the batch under way ends.
    pub to: Option<Moment>,
    /// The last id routed in it.
    pub position: i64,
    /// (transaction, id): drain() routed the events of that transaction up to that id while it was open. Not known
    /// before `look_ahead`.
    pub ahead: Vec<(u64, i64)>,
}

macro_rules! cursor {
    ($which:literal) => {
        concat!(
            "SELECT c.from_snapshot::text, c.from_floor, c.to_snapshot::text, c.to_floor, c.to_ceiling, c.position,
                    c.to_at, c.ctid::text
               FROM automation_internal.router_cursor AS c
              WHERE ",
            $which
        )
    };
}
const TAKE: &str = cursor!("c.singleton FOR UPDATE SKIP LOCKED");
const TAKE_AT: &str = cursor!("c.ctid = $1::text::tid FOR UPDATE SKIP LOCKED");
const PEEK: &str = cursor!("c.singleton");
const PEEK_AT: &str = cursor!("c.ctid = $1::text::tid");
const NOTE_AHEAD: &str = "INSERT INTO automation_internal.routed_ahead (xid, up_to) VALUES ($1::xid8, $2)";
const FORGET_AHEAD: &str = "
    DELETE FROM automation_internal.routed_ahead AS r
     WHERE pg_catalog.pg_visible_in_snapshot(r.xid, $1::pg_snapshot)";

/// Remembers that this transaction's own events are routed up to an id.
pub fn note_ahead(xid: u64, up_to: i64) {
    execute(NOTE_AHEAD, &[xid.to_string().as_str().into(), up_to.into()]);
}

thread_local! {
    /// The ctid at which this process has last seen the row. Every turn of the router makes a new version of the row,
    /// and while a session holds a snapshot none of the old versions goes away: a lookup by key passes all of them.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Takes the cursor for this transaction. None while another session has it.
pub fn take() -> Option<Cursor> {
    find(TAKE_AT, TAKE)
}

const HOLDER: &str = "
    SELECT l.pid
      FROM automation_internal.router_cursor AS c
      JOIN pg_catalog.pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid = c.xmax AND l.granted
     WHERE c.singleton";

/// The process whose transaction has the cursor.
pub fn holder() -> Option<i32> {
    crate::pg::identity::as_engine(|| query_one(HOLDER, &[], |row| row.int4(1))).flatten()
}

/// The cursor as it stands, not locked.
pub fn peek() -> Option<Cursor> {
    find(PEEK_AT, PEEK)
}

fn find(there: &'static str, anywhere: &'static str) -> Option<Cursor> {
    let known = PLACE.with_borrow(Clone::clone);
    let found = known.and_then(|place| query_one(there, &[place.as_str().into()], read_cursor).flatten());
    found.or_else(|| query_one(anywhere, &[], read_cursor).flatten())
}

fn read_cursor(row: &Row<'_>) -> Option<Cursor> {
    let to = row.text(3).and_then(|text| {
        let snapshot = Snapshot::parse(&text)?;
        Some(Moment { snapshot, floor: row.int8(4)?, ceiling: row.int8(5)?, at: row.int8(7)? })
    });
    PLACE.set(row.text(8));
    Some(Cursor {
        from: Snapshot::parse(&row.text(1)?)?,
        from_floor: row.int8(2)?,
        to,
        position: row.int8(6)?,
        ahead: Vec::new(),
    })
}

/// The events that drain() has routed ahead, as (transaction, last id), as far as this statement can see.
pub fn ahead() -> Vec<(u64, i64)> {
    let mut ahead = Vec::new();
    each_row("routed_ahead", |row| ahead.extend(row.int8(1).map(|xid| xid as u64).zip(row.int8(2))));
    ahead
}

/// This moment. The floor is read before the snapshot is taken, the ceiling after it.
pub fn present() -> Option<Moment> {
    let at = clock::before_statement();
    let floor = ids::floor()?;
    let taken = StatementSnapshot::take();
    let mut snapshot = Snapshot::of_statement()?;
    let ceiling = ids::ceiling()?;
    drop(taken);
    // A snapshot never lists the transaction that takes it; for the cursor our own transaction is as open as any other.
    snapshot.add_in_progress(crate::pg::snapshot::own_transaction());
    Some(Moment { snapshot, floor, ceiling, at })
}

impl Cursor {
    /// Reads which events were routed ahead. To be called after the end of the batch is set: drain() commits its events
    /// and the note that they are routed together, so a batch that has the former finds the latter.
    pub fn look_ahead(&mut self) {
        if !skips("look_ahead") {
            self.ahead = ahead();
        }
    }

    /// Was the event routed before its transaction committed?
    pub fn is_ahead(&self, xid: u64, id: i64) -> bool {
        self.ahead.iter().any(|(known, up_to)| *known == xid && id <= *up_to)
    }

    /// Where the batch ends: the one under way, or one that ends now.
    pub fn end_of_batch(&self) -> Option<Moment> {
        self.to.clone().or_else(|| {
            let present = present()?;
            // After a start of the server less is known of the ids than before; a floor that held then still holds.
            Some(Moment { floor: present.floor.max(self.from_floor), ..present })
        })
    }
}

const ADVANCE: &str = "
    UPDATE automation_internal.router_cursor AS c
       SET to_snapshot = $2::pg_snapshot, to_floor = $3, to_ceiling = $4, position = $5, to_at = $6
     WHERE c.ctid = $1::text::tid
 RETURNING c.ctid::text";
const FINISH_BATCH: &str = "
    UPDATE automation_internal.router_cursor AS c
       SET from_snapshot = $2::pg_snapshot, from_floor = $3,
           to_snapshot = NULL, to_floor = NULL, to_ceiling = NULL, to_at = NULL, position = 0
     WHERE c.ctid = $1::text::tid
 RETURNING c.ctid::text";

/// Changes the cursor, which this transaction has taken.
fn change(statement: &'static str, values: &[Arg]) {
    let place = PLACE.take().unwrap_or_default();
    let args: Vec<Arg> = std::iter::once(place.as_str().into()).chain(values.iter().cloned()).collect();
    match query_one(statement, &args, |row| row.text(1)).flatten() {
        Some(moved) => PLACE.set(Some(moved)),
        None => pgrx::error!("automation_engine bug: the cursor is not where it was taken"),
    }
}

/// Remembers how far the batch that ends at `to` has been routed.
pub fn advance(to: &Moment, position: i64) {
    let snapshot = to.snapshot.to_text();
    let at = Arg::timestamp(to.at);
    change(ADVANCE, &[snapshot.as_str().into(), to.floor.into(), to.ceiling.into(), position.into(), at]);
}

/// The batch that ends at `to` is routed; the next one begins there.
pub fn finish_batch(cursor: &Cursor, to: &Moment) {
    let snapshot = to.snapshot.to_text();
    change(FINISH_BATCH, &[snapshot.as_str().into(), to.floor.into()]);
    if !cursor.ahead.is_empty() {
        execute(FORGET_AHEAD, &[snapshot.as_str().into()]);
    }
}

/// The use that the router makes of a row of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The row is not part of the batch.
    Skip,
    /// The row is part of the batch, and no automation or run listens to its event.
    Count,
    /// The row is part of the batch, and its event is read.
    Read,
}

/// A stretch of the log as it was read.
#[derive(Debug, Default)]
pub struct Stretch {
    /// How many rows were read, those that are not part of the batch included.
    pub rows: usize,
    /// The id of the last one.
    pub last: Option<i64>,
    /// How many belong to the batch.
    pub members: usize,
    /// The events of the batch that were read, in order.
    pub events: Vec<Event>,
}

impl Stretch {
    /// Adds one that lies behind it.
    fn extend(&mut self, next: Stretch) {
        self.rows += next.rows;
        self.last = next.last.or(self.last);
        self.members += next.members;
        self.events.extend(next.events);
    }
}

/// Events in a range of ids, in order.
pub fn events_between(
    log: &mut LogScan,
    above: i64,
    up_to: i64,
    limit: i64,
    judge: impl Fn(&Row<'_>) -> Use,
) -> Stretch {
    read_between(log, above, up_to, limit as usize, |row| Some(judge(row)))
}

/// Reads the first `limit` rows of each partition; more than one partition has such rows only around midnight. Rows
/// for which `judge` returns None do not count.
fn read_between(
    log: &mut LogScan,
    above: i64,
    up_to: i64,
    limit: usize,
    judge: impl Fn(&Row<'_>) -> Option<Use>,
) -> Stretch {
    if limit == 0 {
        return Stretch::default();
    }
    let (mut rows, mut events): (Vec<(i64, Use)>, Vec<Event>) = (Vec::new(), Vec::new());
    let (mut begin, mut last) = (0, i64::MIN);
    let mut in_order = true;
    log.by_id(above, up_to, |row| {
        let id = row.int8(1).unwrap_or_default();
        if id < last {
            // the next partition
            begin = rows.len();
            in_order = false;
        }
        last = id;
        if let Some(verdict) = judge(row) {
            rows.push((id, verdict));
            if verdict == Use::Read {
                events.extend(Event::read_logged(row));
            }
        }
        if rows.len() - begin >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    // A partition that follows in order is entered as well, full though the batch may be.
    if !in_order || rows.len() > limit {
        rows.sort_unstable_by_key(|(id, _)| *id);
        rows.truncate(limit);
        let last = rows.last().map_or(above, |(id, _)| *id);
        events.retain(|event| event.id <= EventId(last));
        events.sort_by_key(|event| event.id);
    }
    let members = rows.iter().filter(|(_, verdict)| *verdict != Use::Skip).count();
    Stretch { rows: rows.len(), last: rows.last().map(|(id, _)| *id), members, events }
}

/// Late transactions, which were open at the moment from which the batch begins: those of a list, and those of a range.
#[derive(Default)]
pub struct Late<'a> {
    pub listed: &'a [u64],
    pub from: u64,
    pub below: u64,
    /// Events of late transactions that cannot be found by their transaction.
    pub besides: &'a [i64],
}

/// How many events are read at a time of those that a wait may have missed.
const PAGE: i64 = 10_000;

/// The events committed since a moment in the log, of which the floor is known: by transactions that were open then,
/// the one that took the moment among them, and by younger ones. Returns one page, in the order of ids from `above` on,
/// and whether there may be more.
pub fn events_since_seen(snapshot: &Snapshot, xid: u64, floor: i64, above: i64) -> (Vec<Event>, bool) {
    crate::pg::identity::as_engine(|| {
        let mut listed = snapshot.in_progress.clone();
        listed.push(xid);
        listed.retain(|xid| *xid != 0);
        let late = Late { listed: &listed, from: snapshot.xmax, below: u64::MAX, ..Default::default() };
        let Some(mut log) = LogScan::open() else { return (Vec::new(), false) };
        let mut found = match above < floor {
            true => events_of(&mut log, &late, above, floor, PAGE, |_| Use::Read),
            false => Stretch::default(),
        };
        let is_new = |row: &Row<'_>| {
            let of = xid_of(row);
            (of == xid || !snapshot.sees(of)).then_some(Use::Read)
        };
        found.extend(read_between(&mut log, above.max(floor), i64::MAX, PAGE as usize - found.rows, is_new));
        let more = found.rows as i64 >= PAGE;
        (found.events, more)
    })
}

pub const NEWEST: &str = "
    SELECT e.id, e.xid, e.occurred_at, e.cause_run, e.relation, e.role, e.depth, e.op, e.truncated, e.kind,
           e.entity_id, e.topic, e.tenant, e.actor, e.changed, e.prev, e.next, e.payload
      FROM automation_internal.event AS e
     ORDER BY e.id DESC
     LIMIT 1000";

/// The end of the log, in order.
pub fn newest_events() -> Vec<Event> {
    let rows = crate::pg::identity::as_engine(|| query(NEWEST, &[], |row| Event::read(row, 1)));
    let mut events: Vec<Event> = rows.into_iter().flatten().collect();
    events.reverse();
    events
}

const AFTER: &str = "
    SELECT e.id, e.xid, e.occurred_at, e.cause_run, e.relation, e.role, e.depth, e.op, e.truncated, e.kind,
           e.entity_id, e.topic, e.tenant, e.actor, e.changed, e.prev, e.next, e.payload
      FROM automation_internal.event AS e
     WHERE e.occurred_at >= $1
       AND e.op IN ('c', 'u', 'd', 't', 'e')
     ORDER BY e.id";

/// Everything in the log since a point in time, for a wait that looks back.
pub fn events_after(at: i64) -> Vec<Event> {
    let rows = crate::pg::identity::as_engine(|| query(AFTER, &[Arg::timestamp(at)], |row| Event::read(row, 1)));
    rows.into_iter().flatten().collect()
}

/// Events of late transactions within a range of ids, in order.
///
/// Only the first event of each group is to be found by its transaction; it says how far the group reaches, and the ids
/// up to there are read. `limit` groups of one transaction have at least as many events, so events behind them are not
/// needed yet.
pub fn events_of(
    log: &mut LogScan,
    late: &Late<'_>,
    above: i64,
    up_to: i64,
    limit: i64,
    judge: impl Fn(&Row<'_>) -> Use,
) -> Stretch {
    let mut xids = log.transactions(late.from, late.below, up_to);
    xids.extend(late.listed);
    xids.sort_unstable();
    let limit = limit as usize;
    let mut ranges: Vec<(i64, i64)> = xids.iter().flat_map(|xid| log.groups_of(*xid, above, up_to, limit)).collect();
    ranges.extend(late.besides.iter().filter(|id| **id > above && **id <= up_to).map(|id| (*id, *id)));
    ranges.sort_unstable();
    let of_them = |row: &Row<'_>| xids.binary_search(&xid_of(row)).is_ok().then(|| judge(row));
    let mut found = Stretch::default();
    for (first, last) in joined(&ranges) {
        let (from, to) = (above.max(first - 1), up_to.min(last));
        found.extend(read_between(log, from, to, limit - found.rows, of_them));
        if found.rows >= limit {
            break;
        }
    }
    found
}

/// The transaction that a row of the log is of.
pub fn xid_of(row: &Row<'_>) -> u64 {
    row.int8(2).unwrap_or_default() as u64
}

/// Ranges so near to each other that reading across is cheaper than another look.
const NEAR: i64 = 50;

/// Joins ranges, sorted by where they begin, that overlap or lie near each other.
fn joined(ranges: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for &(first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= before.1 + NEAR => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

const OLDEST_OPEN: &str = "
    SELECT pg_catalog.min(e.occurred_at)
      FROM automation_internal.event AS e
     WHERE e.id > $1";

/// The day of the oldest event that may not be routed yet, None if all are.
pub fn oldest_unrouted_day() -> Option<i64> {
    let cursor = peek()?;
    // An open transaction may have written any day since it began: leave its days alone.
    if !cursor.from.in_progress.is_empty() {
        return Some(0);
    }
    let routed = if cursor.to.is_some() { cursor.position.min(cursor.from_floor) } else { cursor.from_floor };
    let at = query_one(OLDEST_OPEN, &[routed.into()], |row| row.int8(1)).flatten()?;
    Some(crate::pg::clock::day(at))
}
