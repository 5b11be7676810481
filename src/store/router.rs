//! The router's place in the log, and the events behind it.
use super::events::Event;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::snapshot::Snapshot;

/// A moment in the log: a snapshot, and the ids around it.
#[derive(Debug, Clone)]
pub struct Moment {
    pub snapshot: Snapshot,
    /// A transaction that began after the snapshot draws only ids above it.
    pub floor: i64,
    /// No event that the snapshot sees has an id above it.
    pub ceiling: i64,
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
    /// (transaction, id): drain() routed the events of that transaction up to that id while it was open.
    pub ahead: Vec<(u64, i64)>,
}

const TAKE: &str = "
    SELECT c.from_snapshot::text, c.from_floor, c.to_snapshot::text, c.to_floor, c.to_ceiling, c.position,
           ARRAY(SELECT r.xid::text || ' ' || r.up_to::text FROM automation_internal.routed_ahead AS r)
      FROM automation_internal.router_cursor AS c
     WHERE c.singleton
       FOR UPDATE SKIP LOCKED";
const PEEK: &str = "
    SELECT c.from_snapshot::text, c.from_floor, c.to_snapshot::text, c.to_floor, c.to_ceiling, c.position,
           ARRAY(SELECT r.xid::text || ' ' || r.up_to::text FROM automation_internal.routed_ahead AS r)
      FROM automation_internal.router_cursor AS c
     WHERE c.singleton";
const WAIT: &str = "SELECT FROM automation_internal.router_cursor AS c WHERE c.singleton FOR UPDATE";

/// Waits until nobody else is routing and keeps it so until this transaction ends.
pub fn wait_for_cursor() {
    execute(WAIT, &[]);
}

const NOTE_AHEAD: &str = "INSERT INTO automation_internal.routed_ahead (xid, up_to) VALUES ($1::xid8, $2)";
const FORGET_AHEAD: &str = "
    DELETE FROM automation_internal.routed_ahead AS r
     WHERE pg_catalog.pg_visible_in_snapshot(r.xid, $1::pg_snapshot)";

/// Remembers that this transaction's own events are routed up to an id.
pub fn note_ahead(xid: u64, up_to: i64) {
    execute(NOTE_AHEAD, &[xid.to_string().as_str().into(), up_to.into()]);
}

/// Takes the cursor for this transaction. None while somebody else has it.
pub fn take() -> Option<Cursor> {
    query_one(TAKE, &[], read_cursor).flatten()
}

/// The cursor as it stands, not locked.
pub fn peek() -> Option<Cursor> {
    query_one(PEEK, &[], read_cursor).flatten()
}

fn read_cursor(row: &Row<'_>) -> Option<Cursor> {
    let to = row.text(3).and_then(|text| {
        Some(Moment { snapshot: Snapshot::parse(&text)?, floor: row.int8(4)?, ceiling: row.int8(5)? })
    });
    let ahead = row.text_array(7);
    let ahead = ahead.iter().filter_map(|pair| {
        let (xid, id) = pair.split_once(' ')?;
        Some((xid.parse().ok()?, id.parse().ok()?))
    });
    Some(Cursor {
        from: Snapshot::parse(&row.text(1)?)?,
        from_floor: row.int8(2)?,
        to,
        position: row.int8(6)?,
        ahead: ahead.collect(),
    })
}

const FLOOR: &str = "
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END
      FROM automation_internal.event_id_seq AS s";
const PRESENT: &str = "
    SELECT pg_catalog.pg_current_snapshot()::text, CASE WHEN s.is_called THEN s.last_value ELSE 0 END
      FROM automation_internal.event_id_seq AS s";

/// This moment. The floor is read by a statement of its own before the snapshot is taken, the ceiling after it.
pub fn present() -> Option<Moment> {
    let floor = query_one(FLOOR, &[], |row| row.int8(1)).flatten()?;
    let (mut snapshot, ceiling) =
        query_one(PRESENT, &[], |row| Snapshot::parse(&row.text(1)?).zip(row.int8(2))).flatten()?;
    // A snapshot never lists the transaction that takes it; for the cursor ours is as open as any other.
    snapshot.add_in_progress(crate::pg::snapshot::own_transaction());
    Some(Moment { snapshot, floor, ceiling })
}

const ADVANCE: &str = "
    UPDATE automation_internal.router_cursor AS c
       SET to_snapshot = $1::pg_snapshot, to_floor = $2, to_ceiling = $3, position = $4
     WHERE c.singleton";
const FINISH_BATCH: &str = "
    UPDATE automation_internal.router_cursor AS c
       SET from_snapshot = $1::pg_snapshot, from_floor = $2,
           to_snapshot = NULL, to_floor = NULL, to_ceiling = NULL, position = 0
     WHERE c.singleton";

/// A snapshot in Postgres' own notation.
pub fn text_of(snapshot: &Snapshot) -> String {
    let list: Vec<String> = snapshot.in_progress.iter().map(u64::to_string).collect();
    format!("{}:{}:{}", snapshot.xmin, snapshot.xmax, list.join(","))
}

/// Remembers how far the batch that ends at `to` has been routed.
pub fn advance(to: &Moment, position: i64) {
    let snapshot = text_of(&to.snapshot);
    execute(ADVANCE, &[snapshot.as_str().into(), to.floor.into(), to.ceiling.into(), position.into()]);
}

/// The batch that ends at `to` is routed; the next one begins there.
pub fn finish_batch(cursor: &Cursor, to: &Moment) {
    let snapshot = text_of(&to.snapshot);
    execute(FINISH_BATCH, &[snapshot.as_str().into(), to.floor.into()]);
    if !cursor.ahead.is_empty() {
        execute(FORGET_AHEAD, &[snapshot.as_str().into()]);
    }
}

pub const BY_ID: &str = "
    SELECT e.id, e.xid, e.occurred_at, e.cause_run, e.relation, e.role, e.depth, e.op, e.truncated, e.kind,
           e.entity_id, e.topic, e.tenant, e.actor, e.changed, e.prev, e.next, e.payload
      FROM automation_internal.event AS e
     WHERE e.id > $1
       AND e.id <= $2
     ORDER BY e.id
     LIMIT $3";

/// Events in a range of ids, in order.
pub fn events_between(above: i64, up_to: i64, limit: i64) -> Vec<Event> {
    read(query(BY_ID, &[above.into(), up_to.into(), limit.into()], |row| Event::read(row, 1)))
}

pub const OF_TRANSACTIONS: &str = "
    SELECT e.id, e.xid, e.occurred_at, e.cause_run, e.relation, e.role, e.depth, e.op, e.truncated, e.kind,
           e.entity_id, e.topic, e.tenant, e.actor, e.changed, e.prev, e.next, e.payload
      FROM automation_internal.event AS e
     WHERE e.xid = ANY ($1)
       AND e.id + 0 > $2
       AND e.id + 0 <= $3
     ORDER BY e.id + 0
     LIMIT $4";

/// Events of the given transactions within a range of ids, in order. The ids are written as expressions so that only
/// the index on (xid, id) fits: a walk along the ids would read the log from its beginning.
pub fn events_of(xids: &[u64], above: i64, up_to: i64, limit: i64) -> Vec<Event> {
    let args = [Arg::xid8s(xids), above.into(), up_to.into(), limit.into()];
    read(query(OF_TRANSACTIONS, &args, |row| Event::read(row, 1)))
}

const SINCE_TRANSACTION: &str = "
    SELECT e.id, e.xid, e.occurred_at, e.cause_run, e.relation, e.role, e.depth, e.op, e.truncated, e.kind,
           e.entity_id, e.topic, e.tenant, e.actor, e.changed, e.prev, e.next, e.payload
      FROM automation_internal.event AS e
     WHERE e.xid >= $1
       AND e.xid < $2
       AND e.id + 0 > $3
       AND e.id + 0 <= $4
     ORDER BY e.id + 0
     LIMIT $5";

/// Events of a range of transactions within a range of ids, in order.
pub fn events_since(xid: u64, below: u64, above: i64, up_to: i64, limit: i64) -> Vec<Event> {
    let args = [Arg::xid8(xid), Arg::xid8(below), above.into(), up_to.into(), limit.into()];
    read(query(SINCE_TRANSACTION, &args, |row| Event::read(row, 1)))
}

/// How many events are read at a time of those that a wait may have missed.
const PAGE: i64 = 10_000;

/// What has been committed since a moment in the log: not visible in its snapshot, and of the transaction that took it
/// only what it wrote later. One page of it, in the order of ids from `above` on, and whether there may be more.
pub fn events_since_seen(snapshot: &Snapshot, xid: u64, up_to: i64, above: i64) -> (Vec<Event>, bool) {
    crate::pg::identity::as_engine(|| {
        let mut found = events_of(&snapshot.in_progress, above, i64::MAX, PAGE);
        found.extend(events_since(snapshot.xmax, u64::MAX >> 1, above, i64::MAX, PAGE));
        if xid != 0 && !snapshot.in_progress.contains(&xid) && xid < snapshot.xmax {
            found.extend(events_of(&[xid], above.max(up_to), i64::MAX, PAGE));
        }
        found.sort_by_key(|event| event.id);
        found.dedup_by_key(|event| event.id);
        let more = found.len() as i64 >= PAGE;
        found.truncate(PAGE as usize);
        (found, more)
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
    let mut events = crate::pg::identity::as_engine(|| read(query(NEWEST, &[], |row| Event::read(row, 1))));
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
    crate::pg::identity::as_engine(|| read(query(AFTER, &[Arg::timestamp(at)], |row| Event::read(row, 1))))
}

fn read(rows: Vec<Option<Event>>) -> Vec<Event> {
    rows.into_iter().flatten().collect()
}

const TAKE_CANCELLED: &str = "
    DELETE FROM automation_internal.cancel_request AS c
     WHERE c.run_id = ANY ($1)
 RETURNING c.run_id";

/// Which of these runs were cancelled before they were routed.
pub fn take_cancelled(runs: &[i64]) -> Vec<i64> {
    if runs.is_empty() {
        return Vec::new();
    }
    query(TAKE_CANCELLED, &[Arg::int8s(runs)], |row| row.int8(1)).into_iter().flatten().collect()
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
