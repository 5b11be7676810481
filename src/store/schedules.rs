//! Schedules (triggers by the clock), and the outcomes of their ticks.
use automation_core::ids::{AutomationId, EventId, RunId};
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;

/// A schedule that is to be dealt with, locked.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub id: i64,
    pub automation_id: AutomationId,
    pub trigger_id: String,
    pub timetable: String,
    /// The last tick that was dealt with, or since when the schedule runs.
    pub last_tick: Micros,
    pub next_tick: Option<Micros>,
    /// The run that a tick started last, and its event.
    pub run: Option<(RunId, EventId)>,
    /// Ticks of it wait for that run to end.
    pub has_waiting: bool,
}

pub const TAKE_DUE: &str = "
    SELECT s.id, s.automation_id, s.trigger_id, s.timetable, s.last_tick, s.next_tick, s.run_id, s.event_id,
           EXISTS (SELECT FROM automation_internal.tick AS t WHERE t.schedule_id = s.id AND t.status = 'queued')
      FROM automation_internal.schedule AS s
      JOIN automation_internal.automation AS a ON a.id = s.automation_id
     WHERE s.next_tick <= $1
       AND ($3 OR pg_catalog.pg_has_role($4, a.owner, 'MEMBER'))
     ORDER BY s.next_tick
     LIMIT $2
       FOR UPDATE OF s SKIP LOCKED";

/// Locks up to `limit` schedules that are due. With `only_for`, only those of roles that this role can become.
pub fn take_due(now: Micros, limit: i64, only_for: Option<pg_sys::Oid>) -> Vec<Schedule> {
    let role = only_for.unwrap_or(pg_sys::InvalidOid);
    let args = [Arg::timestamp(now), limit.into(), only_for.is_none().into(), role.into()];
    as_engine(|| query(TAKE_DUE, &args, read)).into_iter().flatten().collect()
}

const TAKE_WAITING: &str = "
    SELECT s.id, s.automation_id, s.trigger_id, s.timetable, s.last_tick, s.next_tick, s.run_id, s.event_id, true
      FROM automation_internal.schedule AS s
     WHERE s.automation_id = ANY ($1::bigint[])
       AND s.next_tick IS NOT NULL
       AND EXISTS (SELECT
                     FROM automation_internal.tick AS t
                    WHERE t.schedule_id = s.id
                      AND t.status = 'queued')
       FOR UPDATE OF s SKIP LOCKED";

/// Locks the schedules of these automations that have ticks waiting. A schedule locked by a session that defines its
/// automation is left out: every such change of a schedule ends its waiting ticks, and if the change is rolled back the
/// next tick starts them.
pub fn take_waiting(automations: &[AutomationId]) -> Vec<Schedule> {
    let wide: Vec<i64> = automations.iter().map(|id| i64::from(id.0)).collect();
    as_engine(|| query(TAKE_WAITING, &[Arg::int8s(&wide)], read)).into_iter().flatten().collect()
}

const TAKE_AHEAD: &str = "
    SELECT s.id, s.automation_id, s.trigger_id, s.timetable, s.last_tick, s.next_tick, s.run_id, s.event_id, false
      FROM automation_internal.schedule AS s
     WHERE s.last_tick > $1
       AND s.next_tick IS NOT NULL
       FOR UPDATE OF s SKIP LOCKED";

/// Locks the schedules whose last tick is later than this time.
pub fn take_ahead(of: Micros) -> Vec<Schedule> {
    as_engine(|| query(TAKE_AHEAD, &[Arg::timestamp(of)], read)).into_iter().flatten().collect()
}

const FORGET_UNFIRED: &str = "
    DELETE FROM automation_internal.tick AS t
     WHERE t.schedule_id = $1
       AND t.tick > $2
       AND t.status IN ('missed', 'skipped')";

/// Forgets the ticks after this time that were not fired.
pub fn forget_unfired(schedule: i64, after: Micros) {
    as_engine(|| execute(FORGET_UNFIRED, &[schedule.into(), Arg::timestamp(after)]));
}

fn read(row: &Row<'_>) -> Option<Schedule> {
    Some(Schedule {
        id: row.int8(1)?,
        automation_id: AutomationId(row.int4(2)?),
        trigger_id: row.text(3)?,
        timetable: row.text(4)?,
        last_tick: row.int8(5)?,
        next_tick: row.int8(6),
        run: row.int8(7).map(RunId).zip(row.int8(8).map(EventId)),
        has_waiting: row.bool(9)?,
    })
}

const MOVE_ON: &str = "
    UPDATE automation_internal.schedule AS s
       SET last_tick = $2, next_tick = $3, run_id = $4, event_id = $5
     WHERE s.id = $1";

/// All ticks of the schedule up to its last one are dealt with.
pub fn move_on(schedule: &Schedule) {
    let (run, event) = schedule.run.unzip();
    let next = schedule.next_tick.map_or(Arg::no_timestamp(), Arg::timestamp);
    let args = [
        schedule.id.into(),
        Arg::timestamp(schedule.last_tick),
        next,
        run.map(|run| run.0).into(),
        event.map(|event| event.0).into(),
    ];
    as_engine(|| execute(MOVE_ON, &args));
}

const PUT_OFF: &str = "UPDATE automation_internal.schedule AS s SET next_tick = $2 WHERE s.id = $1";

/// Looks at a schedule again at another time. The ticks that are due now are among those due then.
pub fn put_off(schedule: i64, until: Micros) {
    as_engine(|| execute(PUT_OFF, &[schedule.into(), Arg::timestamp(until)]));
}

const UNDER_WAY: &str = "
    SELECT EXISTS (SELECT FROM automation_internal.dispatch AS d WHERE d.event_id = $2 AND d.run_id = $1)
        OR EXISTS (SELECT FROM automation_internal.run AS r WHERE r.id = $1)";

/// Is a run queued, executing, or waiting?
pub fn is_under_way(run: RunId, event: EventId) -> bool {
    as_engine(|| query_one(UNDER_WAY, &[run.0.into(), event.0.into()], |row| row.bool(1))).flatten().unwrap_or_default()
}

/// A tick and its outcome.
#[derive(Clone, Debug)]
pub struct NewTick {
    pub tick: Micros,
    pub status: &'static str,
    pub reason: Option<String>,
    pub run_id: Option<RunId>,
    /// The tick was missed and is made up for.
    pub made_up: bool,
    /// How many ticks before this one were missed.
    pub missed: i32,
}

impl NewTick {
    pub fn new(status: &'static str) -> Self {
        NewTick { tick: 0, status, reason: None, run_id: None, made_up: false, missed: 0 }
    }
}

const KNOWN: &str = "
    SELECT t.tick
      FROM automation_internal.tick AS t
     WHERE t.schedule_id = $1
       AND t.tick = ANY ($2)";

/// Which of these ticks have been dealt with: a clock may have been set back.
pub fn known(schedule: i64, ticks: &[Micros]) -> Vec<Micros> {
    let args = [schedule.into(), Arg::timestamps(ticks)];
    as_engine(|| query(KNOWN, &args, |row| row.int8(1))).into_iter().flatten().collect()
}

const RECORD: &str = "
    INSERT INTO automation_internal.tick (schedule_id, tick, status, reason, run_id, made_up, missed, zone_data, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (schedule_id, tick) DO NOTHING";

/// Records the outcome of a tick. False if it has been decided before.
pub fn record(schedule: i64, tick: &NewTick, zone_data: &str, at: Micros) -> bool {
    let args = [
        schedule.into(),
        Arg::timestamp(tick.tick),
        tick.status.into(),
        tick.reason.as_deref().into(),
        tick.run_id.map(|run| run.0).into(),
        tick.made_up.into(),
        tick.missed.into(),
        zone_data.into(),
        Arg::timestamp(at),
    ];
    as_engine(|| execute(RECORD, &args)) == 1
}

/// A tick that waits for the run before.
pub struct Waiting {
    pub tick: Micros,
    pub made_up: bool,
    pub missed: i32,
}

const WAITING: &str = "
    SELECT t.tick, t.made_up, t.missed
      FROM automation_internal.tick AS t
     WHERE t.schedule_id = $1
       AND t.status = 'queued'
     ORDER BY t.tick";

/// The ticks that wait, oldest first.
pub fn waiting(schedule: i64) -> Vec<Waiting> {
    let read = |row: &Row<'_>| Some(Waiting { tick: row.int8(1)?, made_up: row.bool(2)?, missed: row.int4(3)? });
    as_engine(|| query(WAITING, &[schedule.into()], read)).into_iter().flatten().collect()
}

const START_WAITING: &str = "
    UPDATE automation_internal.tick AS t
       SET status = 'started', reason = NULL, run_id = $3
     WHERE t.schedule_id = $1
       AND t.tick = $2
       AND t.status = 'queued'";

/// A tick that waited starts. False if it does not wait any more.
pub fn start_waiting(schedule: i64, tick: Micros, run: RunId) -> bool {
    as_engine(|| execute(START_WAITING, &[schedule.into(), Arg::timestamp(tick), run.0.into()])) == 1
}

const ABANDON: &str = "
    UPDATE automation_internal.tick AS t
       SET status = 'skipped', reason = $2
     WHERE t.schedule_id = $1
       AND t.status = 'queued'";

/// The waiting ticks of the schedule will not be started.
fn abandon(schedule: i64, reason: &str) {
    execute(ABANDON, &[schedule.into(), reason.into()]);
}

/// A schedule as a definer finds it.
pub struct Known {
    pub id: i64,
    pub trigger_id: String,
    pub timetable: String,
    pub is_going: bool,
}

const OF_AUTOMATION: &str = "
    SELECT s.id, s.trigger_id, s.timetable, s.next_tick IS NOT NULL
      FROM automation_internal.schedule AS s
     WHERE s.automation_id = $1
     ORDER BY s.id";

/// The schedules that an automation has or had.
pub fn of_automation(automation: AutomationId) -> Vec<Known> {
    let read = |row: &Row<'_>| {
        Some(Known { id: row.int8(1)?, trigger_id: row.text(2)?, timetable: row.text(3)?, is_going: row.bool(4)? })
    };
    as_engine(|| query(OF_AUTOMATION, &[automation.0.into()], read)).into_iter().flatten().collect()
}

// The row of a schedule is never removed while its ticks are known: a tick that has fired stays known by it.
const SET_GOING: &str = "
    INSERT INTO automation_internal.schedule AS s (automation_id, trigger_id, timetable, last_tick, next_tick)
    VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (automation_id, trigger_id) DO UPDATE
       SET timetable = excluded.timetable, last_tick = excluded.last_tick, next_tick = excluded.next_tick
 RETURNING s.id";

/// Sets a schedule going, or going anew, from a point in time on.
pub fn set_going(automation: AutomationId, trigger: &str, timetable: &str, since: Micros, next_tick: Option<Micros>) {
    let next = next_tick.map_or(Arg::no_timestamp(), Arg::timestamp);
    let args = [automation.0.into(), trigger.into(), timetable.into(), Arg::timestamp(since), next];
    as_engine(|| {
        if let Some(id) = query_one(SET_GOING, &args, |row| row.int8(1)).flatten() {
            abandon(id, "the schedule was set going anew");
        }
    });
}

const REST: &str = "UPDATE automation_internal.schedule AS s SET next_tick = NULL WHERE s.id = $1";

/// Puts a schedule to rest.
pub fn rest(schedule: i64, reason: &str) {
    as_engine(|| {
        execute(REST, &[schedule.into()]);
        abandon(schedule, reason);
    });
}

const PRUNE: &str = "
    WITH old AS MATERIALIZED (
        SELECT t.schedule_id, t.tick
          FROM automation_internal.schedule AS s
          JOIN automation_internal.tick AS t ON t.schedule_id = s.id
         WHERE t.tick < $1
           AND t.status <> 'queued'
         LIMIT 50000)
    DELETE FROM automation_internal.tick AS t
     USING old
     WHERE t.schedule_id = old.schedule_id
       AND t.tick = old.tick";
const FORGET: &str = "
    DELETE FROM automation_internal.schedule AS s
     USING automation_internal.automation AS a
     WHERE a.id = s.automation_id
       AND a.status = 'dropped'
       AND s.next_tick IS NULL
       AND NOT EXISTS (SELECT FROM automation_internal.tick AS t WHERE t.schedule_id = s.id)";

/// Forgets ticks before a point in time, and the schedules of dropped automations that have no more.
pub fn prune(before: Micros) {
    as_engine(|| {
        execute(PRUNE, &[Arg::timestamp(before)]);
        execute(FORGET, &[]);
    });
}
