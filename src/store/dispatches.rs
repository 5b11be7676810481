//! Dispatches: the queue of runs to start or to wake, filled by the router and worked off by executors.
use std::rc::Rc;

use automation_core::ids::{AutomationId, EventId, RunId, VersionId, WaitNo};
use pgrx::pg_sys;

use crate::pg::append::{Cell, append_outside_partial, append_plain, text_varlena};
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;

/// Why a run is to be started or woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Trigger,
    Manual,
    /// A row or state that a wait depends on may have changed.
    Look,
    /// The time of a wait has come.
    Due,
    /// An event came.
    Event,
    /// A signal came.
    Signal,
    /// The run it waits for has ended.
    RunEnded,
    /// A person said to go on without it.
    Skip,
    /// The automation is active again.
    Thaw,
    /// The run took too long.
    RunTimeout,
    /// A wait was armed in a transaction that has committed meanwhile.
    Arm,
    /// The run has waited for long: is all in order?
    Sweep,
    /// A run that came before it has ended.
    Turn,
    /// A trigger with `hold_for` fired.
    Hold,
    /// An event came that may break a hold.
    HoldCheck,
    /// The deadline of a hold has come.
    HoldOver,
    /// A bulk job is to be tended: its number stands for the run's.
    Bulk,
}

const CODES: [(Reason, u8); 17] = [
    (Reason::Bulk, b'j'),
    (Reason::Turn, b'q'),
    (Reason::Hold, b'h'),
    (Reason::HoldCheck, b'b'),
    (Reason::HoldOver, b'o'),
    (Reason::Sweep, b's'),
    (Reason::Arm, b'a'),
    (Reason::Trigger, b't'),
    (Reason::Manual, b'm'),
    (Reason::Look, b'w'),
    (Reason::Due, b'd'),
    (Reason::Event, b'e'),
    (Reason::Signal, b'g'),
    (Reason::RunEnded, b'r'),
    (Reason::Skip, b'k'),
    (Reason::Thaw, b'z'),
    (Reason::RunTimeout, b'x'),
];

impl Reason {
    fn code(self) -> i8 {
        CODES.iter().find(|(reason, _)| *reason == self).map_or(b't', |(_, code)| *code) as i8
    }

    fn from_code(code: i8) -> Self {
        CODES.iter().find(|(_, known)| *known as i8 == code).map_or(Reason::Trigger, |(reason, _)| *reason)
    }

    /// Does the dispatch move a run that waits?
    pub fn wakes(self) -> bool {
        !self.starts() && !self.holds() && self != Reason::Bulk
    }

    /// Does the dispatch begin a run, rather than move one?
    pub fn starts(self) -> bool {
        matches!(self, Reason::Trigger | Reason::Manual)
    }

    /// Is the dispatch about a hold?
    pub fn holds(self) -> bool {
        matches!(self, Reason::Hold | Reason::HoldCheck | Reason::HoldOver)
    }
}

/// A row to be inserted by the router.
#[derive(Clone, Debug)]
pub struct NewDispatch {
    pub owner: pg_sys::Oid,
    /// Its place in the owner's queue, given when it is inserted.
    pub id: i64,
    /// Tenants take turns.
    pub tenant: Option<String>,
    /// It has to stay behind the dispatches that other tenants have queued.
    pub behind: bool,
    pub run_id: RunId,
    /// The event that starts the run: (id, when).
    pub event: Option<(EventId, Micros)>,
    pub created_at: Micros,
    pub ordering_key: Option<i64>,
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    pub trigger_no: i16,
    pub reason: Reason,
    /// The wait that is to be woken.
    pub wait_no: Option<WaitNo>,
    /// The event that wakes it: (id, when).
    pub cause: Option<(EventId, Micros)>,
    /// The derived topic on which the event was heard, None for its own.
    pub topic: Option<Rc<str>>,
}

/// Appends dispatches. The unique index over (event, automation, trigger) raises an error rather than let one in twice.
pub fn insert(rows: &[NewDispatch]) -> bool {
    let held = |row: &&NewDispatch| row.reason == Reason::Hold;
    // The partial index has only dispatches that fire a trigger with hold_for.
    let plain = append_outside_partial("dispatch", rows.iter().filter(|row| !held(row)).map(cells));
    plain && (!rows.iter().any(|row| held(&row)) || append_plain("dispatch", rows.iter().filter(held).map(cells)))
}

fn cells(row: &NewDispatch) -> [Cell; 16] {
    [
        Some(pg_sys::Datum::from(row.owner)),
        Some(pg_sys::Datum::from(row.id)),
        Some(pg_sys::Datum::from(row.run_id.0)),
        row.event.map(|(id, _)| pg_sys::Datum::from(id.0)),
        row.event.map(|(_, at)| pg_sys::Datum::from(at)),
        Some(pg_sys::Datum::from(row.created_at)),
        row.ordering_key.map(pg_sys::Datum::from),
        Some(pg_sys::Datum::from(row.automation_id.0)),
        Some(pg_sys::Datum::from(row.version_id.0)),
        Some(pg_sys::Datum::from(row.trigger_no)),
        Some(pg_sys::Datum::from(0i16)),
        Some(pg_sys::Datum::from(row.reason.code())),
        row.wait_no.map(|no| pg_sys::Datum::from(no.0)),
        row.cause.map(|(id, _)| pg_sys::Datum::from(id.0)),
        row.cause.map(|(_, at)| pg_sys::Datum::from(at)),
        row.topic.as_ref().map(|topic| text_varlena(topic)),
    ]
}

const CREATED_AT: &str = "
    SELECT d.created_at
      FROM automation_internal.dispatch AS d
     WHERE d.owner = $1 AND d.id = $2";

/// When a dispatch was routed.
pub fn created_at(owner: pg_sys::Oid, id: i64) -> Option<Micros> {
    as_engine(|| query_one(CREATED_AT, &[owner.into(), id.into()], |row| row.int8(1))).flatten()
}

/// A claimed dispatch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    pub id: i64,
    pub run_id: RunId,
    pub event_id: EventId,
    pub event_at: Micros,
    pub ordering_key: Option<i64>,
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    pub trigger_no: i16,
    pub attempt: i16,
    pub automation: String,
    pub active: bool,
    pub reason: Reason,
    pub wait_no: WaitNo,
    pub cause: Option<(EventId, Micros)>,
    pub topic: Option<String>,
}

// MATERIALIZED is written out because a subquery with LIMIT that is joined may be run twice and claim too much.
pub const CLAIM: &str = "
    WITH claimed AS MATERIALIZED (
        SELECT d.id, d.run_id, d.event_id, d.event_at, d.ordering_key, d.automation_id, d.version_id, d.trigger_no,
               d.attempt, d.reason, d.wait_no, d.cause_id, d.cause_at, d.topic
          FROM automation_internal.dispatch AS d
         WHERE d.owner = $1
           AND d.id >= $2
         ORDER BY d.id
         LIMIT $3
           FOR UPDATE SKIP LOCKED)
    SELECT c.id, c.run_id, c.event_id, c.event_at, c.ordering_key, c.automation_id, c.version_id, c.trigger_no,
           c.attempt, a.name, a.status = 'active' OR a.finish_runs, c.reason, c.wait_no, c.cause_id, c.cause_at, c.topic
      FROM claimed AS c
      JOIN automation_internal.automation AS a ON a.id = c.automation_id
     ORDER BY c.id";

/// Locks up to `limit` dispatches of one owner, in order, from `floor` on.
pub fn claim(owner: pg_sys::Oid, floor: i64, limit: i64) -> Vec<Dispatch> {
    as_engine(|| query(CLAIM, &[owner.into(), floor.into(), limit.into()], read))
}

const CLAIM_ONE: &str = "
    WITH claimed AS MATERIALIZED (
        SELECT d.id, d.run_id, d.event_id, d.event_at, d.ordering_key, d.automation_id, d.version_id, d.trigger_no,
               d.attempt, d.reason, d.wait_no, d.cause_id, d.cause_at, d.topic
          FROM automation_internal.dispatch AS d
         WHERE d.owner = $1
           AND d.id = $2
           FOR UPDATE SKIP LOCKED)
    SELECT c.id, c.run_id, c.event_id, c.event_at, c.ordering_key, c.automation_id, c.version_id, c.trigger_no,
           c.attempt, a.name, a.status = 'active' OR a.finish_runs, c.reason, c.wait_no, c.cause_id, c.cause_at, c.topic
      FROM claimed AS c
      JOIN automation_internal.automation AS a ON a.id = c.automation_id";

/// Locks exactly this dispatch. Empty if it is done, or another executor has it locked.
pub fn claim_one(owner: pg_sys::Oid, id: i64) -> Vec<Dispatch> {
    as_engine(|| query(CLAIM_ONE, &[owner.into(), id.into()], read))
}

fn read(row: &Row<'_>) -> Dispatch {
    Dispatch {
        id: row.int8(1).unwrap_or_default(),
        run_id: row.int8(2).map(RunId).unwrap_or_default(),
        event_id: row.int8(3).map(EventId).unwrap_or_default(),
        event_at: row.int8(4).unwrap_or_default(),
        ordering_key: row.int8(5),
        automation_id: row.int4(6).map(AutomationId).unwrap_or_default(),
        version_id: row.int4(7).map(VersionId).unwrap_or_default(),
        trigger_no: row.int2(8).unwrap_or_default(),
        attempt: row.int2(9).unwrap_or_default(),
        automation: row.text(10).unwrap_or_default(),
        active: row.bool(11).unwrap_or_default(),
        reason: row.char(12).map_or(Reason::Trigger, Reason::from_code),
        wait_no: row.int4(13).map(WaitNo).unwrap_or_default(),
        cause: row.int8(14).map(EventId).zip(row.int8(15)),
        topic: row.text(16),
    }
}

const QUEUE: &str = "
    SELECT d.id, d.ordering_key
      FROM automation_internal.dispatch AS d
     WHERE d.owner = $1
       AND d.id >= $2
       AND d.id < $3
     ORDER BY d.id
     LIMIT $4";

/// The first dispatches of a stretch of an owner's queue, locked ones included: (id, ordering key).
pub fn queue(owner: pg_sys::Oid, floor: i64, below: i64, limit: i64) -> Vec<(i64, Option<i64>)> {
    as_engine(|| {
        query(QUEUE, &[owner.into(), floor.into(), below.into(), limit.into()], |row| {
            (row.int8(1).unwrap_or_default(), row.int8(2))
        })
    })
}

/// The dispatches that the claim passed over because others hold them: (id, ordering key) below the last claimed id.
pub fn passed_over(owner: pg_sys::Oid, floor: i64, last: i64, claimed: &[i64]) -> Vec<(i64, Option<i64>)> {
    let queued = queue(owner, floor, last, i64::MAX);
    // Both are sorted; sorting them apart here is cheaper than a NOT IN.
    queued.into_iter().filter(|(id, _)| claimed.binary_search(id).is_err()).collect()
}

const LOCK_FIRST: &str = "
    SELECT d.id
      FROM automation_internal.dispatch AS d
     WHERE d.owner = $1
       AND d.id >= $3
       AND d.id <= $4
       AND d.id = ANY ($2)
     ORDER BY d.id
     LIMIT 1
       FOR UPDATE SKIP LOCKED";

/// Locks the first of these dispatches that no other executor has locked.
pub fn lock_first(owner: pg_sys::Oid, ids: &[i64]) -> Option<i64> {
    let (first, last) = (ids.iter().min()?, ids.iter().max()?);
    let args = [owner.into(), Arg::int8s(ids), (*first).into(), (*last).into()];
    as_engine(|| query_one(LOCK_FIRST, &args, |row| row.int8(1))).flatten()
}

const PLACE: &str = "
    SELECT d.id
      FROM automation_internal.dispatch AS d
     WHERE d.owner = $1
       AND d.id >= $2
     ORDER BY d.id
    OFFSET $3
     LIMIT 1";

/// The dispatch of an owner that has so many before it, from `floor` on.
pub fn at_place(owner: pg_sys::Oid, floor: i64, place: i64) -> Option<i64> {
    as_engine(|| query_one(PLACE, &[owner.into(), floor.into(), place.into()], |row| row.int8(1))).flatten()
}

// The bounds keep the scan short under any plan for the list: for a table that was nearly empty when it was analyzed,
// the planner would have all rows of the owner scanned, dead ones included.
const FINISH: &str = "
    DELETE FROM automation_internal.dispatch AS d
     WHERE d.owner = $1
       AND d.id >= $3
       AND d.id <= $4
       AND d.id = ANY ($2)";

pub fn finish(owner: pg_sys::Oid, ids: &[i64]) -> u64 {
    let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else { return 0 };
    as_engine(|| execute(FINISH, &[owner.into(), Arg::int8s(ids), (*first).into(), (*last).into()]))
}

const COUNT_ATTEMPT: &str = "
    UPDATE automation_internal.dispatch AS d
       SET attempt = d.attempt + 1
     WHERE d.owner = $1 AND d.id = $2";

/// Remembers that we are about to try this dispatch, before it can take the server down.
pub fn count_attempt(owner: pg_sys::Oid, id: i64) {
    as_engine(|| execute(COUNT_ATTEMPT, &[owner.into(), id.into()]));
}

const FORGIVE_ATTEMPT: &str = "
    UPDATE automation_internal.dispatch AS d
       SET attempt = CASE WHEN d.attempt > 0 THEN d.attempt - 1 ELSE 0 END
     WHERE d.owner = $1 AND d.id = $2";

/// The last attempt ended by a crash that the dispatch did not cause: it is not counted.
pub fn forgive_attempt(owner: pg_sys::Oid, id: i64) {
    as_engine(|| execute(FORGIVE_ATTEMPT, &[owner.into(), id.into()]));
}

const OWNERS: &str = "
    WITH RECURSIVE o AS (
        (SELECT d.owner FROM automation_internal.dispatch AS d ORDER BY d.owner LIMIT 1)
        UNION ALL
        SELECT (SELECT d.owner FROM automation_internal.dispatch AS d WHERE d.owner > o.owner ORDER BY d.owner LIMIT 1)
          FROM o
         WHERE o.owner IS NOT NULL)
    SELECT o.owner FROM o WHERE o.owner IS NOT NULL";

/// Owners that have work queued.
pub fn owners() -> Vec<pg_sys::Oid> {
    as_engine(|| query(OWNERS, &[], |row| row.oid(1))).into_iter().flatten().collect()
}

const FIND_RUN: &str = "
    SELECT d.owner, d.id
      FROM automation_internal.dispatch AS d
     WHERE d.run_id = $1
       AND d.reason IN ('t', 'm')
       FOR UPDATE";

/// Locks the dispatch of a run that has not started, waiting for an executor that has it locked.
pub fn lock_run(run_id: RunId) -> Option<(pg_sys::Oid, i64)> {
    as_engine(|| query(FIND_RUN, &[run_id.0.into()], |row| row.oid(1).zip(row.int8(2)))).into_iter().flatten().next()
}

const OF_RUN: &str = "
    SELECT d.id, d.run_id, d.event_id, d.event_at, d.ordering_key, d.automation_id, d.version_id, d.trigger_no,
           d.attempt, a.name, a.status = 'active' OR a.finish_runs, d.reason, d.wait_no, d.cause_id, d.cause_at, d.topic
      FROM automation_internal.dispatch AS d
      JOIN automation_internal.automation AS a ON a.id = d.automation_id
     WHERE d.owner = $1 AND d.id = $2";

pub fn one(owner: pg_sys::Oid, id: i64) -> Option<Dispatch> {
    as_engine(|| query(OF_RUN, &[owner.into(), id.into()], read)).into_iter().next()
}

const QUEUED: &str = "
    SELECT pg_catalog.count(*)
      FROM (SELECT FROM automation_internal.dispatch AS d WHERE d.owner = $1 AND d.id >= $2 LIMIT $3) AS q";

/// How many dispatches an owner has from `floor` on, counted up to `most`.
pub fn queued(owner: pg_sys::Oid, floor: i64, most: i64) -> i64 {
    as_engine(|| query(QUEUED, &[owner.into(), floor.into(), most.into()], |row| row.int8(1)))
        .into_iter()
        .flatten()
        .next()
        .unwrap_or_default()
}

const LAST_ID: &str = "SELECT pg_catalog.max(d.id) FROM automation_internal.dispatch AS d";

/// The last place that is taken in any queue.
pub fn last_id() -> i64 {
    as_engine(|| query_one(LAST_ID, &[], |row| row.int8(1))).flatten().unwrap_or_default()
}

const HIGHEST: &str = "
    SELECT d.id
      FROM automation_internal.dispatch AS d
     WHERE d.owner = $1 AND d.id >= $2 AND d.id < $3
     ORDER BY d.id DESC
     LIMIT 1";

/// The last place of an owner's queue that is taken, between two places.
pub fn highest(owner: pg_sys::Oid, from: i64, below: i64) -> Option<i64> {
    as_engine(|| query_one(HIGHEST, &[owner.into(), from.into(), below.into()], |row| row.int8(1))).flatten()
}

pub const LOWEST: &str = "
    SELECT d.id
      FROM automation_internal.dispatch AS d
     WHERE d.owner = $1 AND d.id >= $2 AND d.id < $3
     ORDER BY d.id
     LIMIT 1";

/// The first place of an owner's queue that is taken, between two places.
pub fn lowest(owner: pg_sys::Oid, from: i64, below: i64) -> Option<i64> {
    as_engine(|| query_one(LOWEST, &[owner.into(), from.into(), below.into()], |row| row.int8(1))).flatten()
}

const IS_QUEUED: &str = "
    SELECT EXISTS (SELECT
                     FROM automation_internal.dispatch AS d
                    WHERE d.owner = $1
                      AND d.run_id = $2
                      AND d.reason <> 's')";

/// Is a run to be woken, other than by the sweep?
pub fn is_queued(owner: pg_sys::Oid, run: RunId) -> bool {
    as_engine(|| query(IS_QUEUED, &[owner.into(), run.0.into()], |row| row.bool(1)))
        .into_iter()
        .flatten()
        .any(|found| found)
}

const IS_LONG: &str = "SELECT FROM automation_internal.dispatch AS d OFFSET 1000 LIMIT 1";

/// Are so many dispatches queued that work which is not urgent should wait?
pub fn is_long() -> bool {
    as_engine(|| execute(IS_LONG, &[])) > 0
}
