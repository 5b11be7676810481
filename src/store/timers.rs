//! Timers: the deadlines of waits, runs, holds and bulk jobs.
use std::cell::Cell;
use std::collections::HashSet;

use automation_core::ids::{AutomationId, RunId, VersionId, WaitNo};
use pgrx::pg_sys;

use super::wakes::Waiter;
use crate::pg::append::append_plain;
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerKind {
    /// A delay, a try or a timeout is over.
    Due,
    /// Time alone may have made a condition true.
    Look,
    /// The wait was armed in a transaction that has committed meanwhile: evaluate once more.
    Arm,
    /// The run has taken too long.
    RunTimeout,
    /// The deadline of a hold has come.
    Held,
    /// The next rows of a bulk job may begin.
    Bulk,
}

impl TimerKind {
    fn code(self) -> u8 {
        match self {
            TimerKind::Due => b'd',
            TimerKind::Look => b'l',
            TimerKind::Arm => b'a',
            TimerKind::RunTimeout => b'x',
            TimerKind::Held => b'h',
            TimerKind::Bulk => b'b',
        }
    }

    fn from_code(code: i8) -> Option<Self> {
        [TimerKind::Due, TimerKind::Look, TimerKind::Arm, TimerKind::RunTimeout, TimerKind::Held, TimerKind::Bulk]
            .into_iter()
            .find(|kind| kind.code() == code as u8)
    }
}

/// One deadline.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    pub due_at: Micros,
    pub waiter: Waiter,
    pub kind: TimerKind,
}

pub fn insert(rows: &[Timer]) -> bool {
    append_plain(
        "timer",
        rows.iter().map(|row| {
            [
                Some(pg_sys::Datum::from(row.due_at)),
                Some(pg_sys::Datum::from(row.waiter.run_id.0)),
                Some(pg_sys::Datum::from(row.waiter.wait_no.0)),
                Some(pg_sys::Datum::from(row.waiter.owner)),
                Some(pg_sys::Datum::from(row.waiter.automation_id.0)),
                Some(pg_sys::Datum::from(row.waiter.version_id.0)),
                Some(pg_sys::Datum::from(row.kind.code() as i8)),
            ]
        }),
    )
}

const DELETE: &str = "
    DELETE FROM automation_internal.timer AS t
     USING unnest($1::bigint[], $2::bigint[]) AS k (run_id, wait_no)
     WHERE t.run_id = k.run_id
       AND t.wait_no = k.wait_no";

/// Removes the timers of these waits; wait 0 is the run's own.
pub fn delete(waits: &[(RunId, WaitNo)]) {
    let (runs, numbers): (Vec<i64>, Vec<i64>) = waits.iter().map(|(run, no)| (run.0, i64::from(no.0))).unzip();
    if !runs.is_empty() {
        as_engine(|| execute(DELETE, &[Arg::int8s(&runs), Arg::int8s(&numbers)]));
    }
}

const DISARM: &str = "
    DELETE FROM automation_internal.timer AS t
     USING unnest($1::bigint[], $2::bigint[]) AS k (run_id, wait_no)
     WHERE t.run_id = k.run_id
       AND t.wait_no = k.wait_no
       AND t.reason = 'a'";

/// These waits have been evaluated after the commit that armed them.
pub fn disarm(waits: &[(RunId, WaitNo)]) {
    let (runs, numbers): (Vec<i64>, Vec<i64>) = waits.iter().map(|(run, no)| (run.0, i64::from(no.0))).unzip();
    if !runs.is_empty() {
        as_engine(|| execute(DISARM, &[Arg::int8s(&runs), Arg::int8s(&numbers)]));
    }
}

const FORGET_LOOK: &str = "
    DELETE FROM automation_internal.timer AS t
     WHERE t.run_id = $1 AND t.wait_no = $2 AND t.reason = 'l'";

/// Removes a wait's timer of kind `Look`, because another time to look again has been found.
pub fn forget_look(run: RunId, wait_no: WaitNo) {
    as_engine(|| execute(FORGET_LOOK, &[run.0.into(), wait_no.0.into()]));
}

/// Before all times.
pub const EVER: Micros = Micros::MIN;

thread_local! {
    /// This process knows of no timer before that. While a session holds a snapshot, deleted timers stay at the
    /// beginning of the index, and every look from the beginning passes them all.
    static GONE_BELOW: Cell<Micros> = const { Cell::new(EVER) };
}

/// Looks for timers from this time on. For the conductor only: it hears of every timer that is set.
pub fn look_from(at: Micros) {
    GONE_BELOW.set(at);
}

pub const TAKE_DUE: &str = "
    WITH due AS MATERIALIZED (
        SELECT d.ctid AS place
          FROM automation_internal.timer AS d
         WHERE d.due_at <= $1
           AND d.due_at >= $6
           AND ($3 OR pg_catalog.pg_has_role($4, d.owner, 'MEMBER'))
           AND ($5 OR d.reason <> 'h')
         ORDER BY d.due_at
         LIMIT $2
           FOR UPDATE SKIP LOCKED)
    DELETE FROM automation_internal.timer AS t
     USING due
     WHERE t.ctid = due.place
 RETURNING t.due_at, t.run_id, t.wait_no, t.owner, t.automation_id, t.version_id, t.reason";

/// Takes up to `limit` timers that are due. With `only_for`, only those of roles that this role can become; those of
/// holds only if `held`.
pub fn take_due(now: Micros, limit: i64, only_for: Option<pg_sys::Oid>, held: bool) -> Vec<Timer> {
    let role = only_for.unwrap_or(pg_sys::InvalidOid);
    let from = Arg::timestamp(GONE_BELOW.get());
    let args = [Arg::timestamp(now), limit.into(), only_for.is_none().into(), role.into(), held.into(), from];
    let mut taken: Vec<Timer> = as_engine(|| query(TAKE_DUE, &args, read)).into_iter().flatten().collect();
    taken.sort_by_key(|timer| (timer.due_at, timer.waiter.run_id, timer.waiter.wait_no));
    taken
}

fn read(row: &Row<'_>) -> Option<Timer> {
    Some(Timer {
        due_at: row.int8(1)?,
        waiter: Waiter {
            run_id: RunId(row.int8(2)?),
            wait_no: WaitNo(row.int4(3)?),
            owner: row.oid(4)?,
            automation_id: AutomationId(row.int4(5)?),
            version_id: VersionId(row.int4(6)?),
        },
        kind: row.char(7).and_then(TimerKind::from_code)?,
    })
}

const OF_RUN: &str = "
    SELECT t.wait_no, t.reason
      FROM automation_internal.timer AS t
     WHERE t.run_id = $1";

/// The timers of a run: (wait, purpose).
pub fn of_run(run: RunId) -> HashSet<(WaitNo, TimerKind)> {
    as_engine(|| {
        query(OF_RUN, &[run.0.into()], |row| row.int4(1).map(WaitNo).zip(row.char(2).and_then(TimerKind::from_code)))
    })
    .into_iter()
    .flatten()
    .collect()
}

// LEAST passes over NULL.
pub const NEXT: &str = "
    SELECT LEAST((SELECT t.due_at
                    FROM automation_internal.timer AS t
                   WHERE t.due_at >= $1
                   ORDER BY t.due_at
                   LIMIT 1),
                 (SELECT s.next_tick
                    FROM automation_internal.schedule AS s
                   WHERE s.next_tick IS NOT NULL
                   ORDER BY s.next_tick
                   LIMIT 1))";

/// When the next timer is due, or the next tick of a schedule.
pub fn next() -> Option<Micros> {
    as_engine(|| query_one(NEXT, &[Arg::timestamp(GONE_BELOW.get())], |row| row.int8(1))).flatten()
}
