//! Live runs: those that wait, are frozen, or are queued behind another run (table `run`).
use automation_core::gate::mode::ActiveRun;
use automation_core::ids::{AutomationId, EventId, RunId, VersionId, WaitNo};
use automation_core::run_state::Pause;
use pgrx::pg_sys;
use serde::{Deserialize, Serialize};

use super::run_header::{RunHeader, has_run_header, run_numbers};
use super::wakes::Waiter;
use crate::event_log::events::Event;
use crate::pg::append::{append_plain, kept_json, text_varlena};
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;

/// A suspended run.
#[derive(Clone, Debug)]
pub struct LiveRun {
    pub header: RunHeader,
    pub epoch: i32,
    /// Why the run does not execute.
    pub pause: Pause,
    pub event: Event,
    /// JSON: where the machine stands.
    pub state: String,
    pub waits: Vec<WaitNote>,
    /// JSON: the steps taken so far.
    pub steps: String,
    /// Name of the automation.
    pub automation: String,
    /// The run may go on: its automation is active or lets its runs finish, and is not paused for the run's tenant.
    pub active: bool,
}

has_run_header!(LiveRun);

/// The subject of a wait, for people, and for the executor that wakes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitNote {
    pub no: WaitNo,
    pub step: String,
    pub kind: String,
    /// In words.
    #[serde(rename = "for")]
    pub what: String,
    pub since: Micros,
    pub due: Option<Micros>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// For a wait for an event: the place in the log at which the wait began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
}

/// A place in the log: everything visible in the snapshot is before it, and so are the events that the
/// transaction itself had written so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub snapshot: String,
    pub xid: u64,
    pub up_to: i64,
    /// An event that is not before this place and cannot be found by its transaction has an id above this one.
    #[serde(default)]
    pub floor: i64,
}

/// Inserts runs that have suspended for the first time.
pub fn insert(runs: &[LiveRun]) -> bool {
    let text = |value: &Option<String>| value.as_ref().map(|text| text_varlena(text));
    append_plain(
        "run",
        runs.iter().map(|run| {
            [
                Some(pg_sys::Datum::from(run.id.0)),
                Some(pg_sys::Datum::from(run.event_id.0)),
                Some(pg_sys::Datum::from(run.event_at)),
                Some(pg_sys::Datum::from(run.started_at)),
                run.parent.map(|run| pg_sys::Datum::from(run.0)),
                Some(pg_sys::Datum::from(run.owner)),
                Some(pg_sys::Datum::from(run.automation_id.0)),
                Some(pg_sys::Datum::from(run.version_id.0)),
                Some(pg_sys::Datum::from(run.epoch)),
                Some(pg_sys::Datum::from(run.trigger_no)),
                Some(pg_sys::Datum::from(run.depth)),
                Some(text_varlena(run.pause.word())),
                text(&run.kind),
                text(&run.entity_id),
                text(&run.key),
                text(&run.mode_key),
                text(&run.tenant),
                Some(kept_json(&run.event.to_json())),
                Some(kept_json(&run.state)),
                Some(text_varlena(&notes(&run.waits))),
                Some(text_varlena(&run.steps)),
            ]
        }),
    )
}

fn notes(waits: &[WaitNote]) -> String {
    serde_json::to_string(waits).unwrap_or_else(|_| "[]".to_owned())
}

/// The columns that `read` reads, and where they come from.
macro_rules! live_runs {
    () => {
        "
    SELECT r.id, r.event_id, r.event_at, r.started_at, r.parent, r.owner, r.automation_id, r.version_id, r.epoch,
           r.trigger_no, r.depth, r.status, r.kind, r.entity_id, r.key, r.mode_key, r.tenant, r.event, r.state, r.waits, r.steps,
           a.name,
           (a.status = 'active' OR a.finish_runs)
           AND NOT EXISTS (SELECT FROM automation_internal.tenant_pause AS p
                            WHERE p.automation_id = r.automation_id AND p.tenant = r.tenant)
      FROM automation_internal.run AS r
      JOIN automation_internal.automation AS a ON a.id = r.automation_id"
    };
}

pub const LOCK: &str = concat!(
    live_runs!(),
    "
     WHERE r.id = ANY ($1)
       FOR UPDATE OF r SKIP LOCKED"
);

/// Locks those of these runs that no other session moves at the moment, in the order of their numbers: of two runs that
/// can take the same signal, the one that began first does.
pub fn lock(ids: &[RunId]) -> Vec<LiveRun> {
    let mut locked: Vec<LiveRun> = as_engine(|| query(LOCK, &[run_numbers(ids)], read)).into_iter().flatten().collect();
    // The statement's own order depends on which table of its join the planner reads first.
    locked.sort_by_key(|run| run.id);
    locked
}

const WAIT_FOR: &str = concat!(
    live_runs!(),
    "
     WHERE r.id = $1
       FOR UPDATE OF r"
);

/// Locks a run, waiting for the session that moves it.
pub fn wait_for(id: RunId) -> Option<LiveRun> {
    as_engine(|| query_one(WAIT_FOR, &[id.0.into()], read)).flatten()
}

fn read(row: &Row<'_>) -> Option<LiveRun> {
    let header = RunHeader {
        id: RunId(row.int8(1)?),
        event_id: EventId(row.int8(2)?),
        event_at: row.int8(3)?,
        started_at: row.int8(4)?,
        parent: row.int8(5).map(RunId),
        owner: row.oid(6)?,
        automation_id: AutomationId(row.int4(7)?),
        version_id: VersionId(row.int4(8)?),
        trigger_no: row.int2(10)?,
        depth: row.int2(11)?,
        kind: row.text(13),
        entity_id: row.text(14),
        key: row.text(15),
        mode_key: row.text(16),
        tenant: row.text(17),
    };
    Some(LiveRun {
        header,
        epoch: row.int4(9)?,
        pause: Pause::from_word(&row.text(12)?)?,
        event: Event::from_json(&row.text(18)?)?,
        state: row.text(19)?,
        waits: serde_json::from_str(&row.text(20)?).unwrap_or_default(),
        steps: row.text(21)?,
        automation: row.text(22).unwrap_or_default(),
        active: row.bool(23).unwrap_or_default(),
    })
}

const EXIST: &str = "SELECT r.id FROM automation_internal.run AS r WHERE r.id = ANY ($1)";

/// Which of these runs are there.
pub fn existing(ids: &[RunId]) -> Vec<RunId> {
    if ids.is_empty() {
        return Vec::new();
    }
    as_engine(|| query(EXIST, &[run_numbers(ids)], |row| row.int8(1).map(RunId))).into_iter().flatten().collect()
}

const UPDATE: &str = "
    UPDATE automation_internal.run AS r
       SET epoch = r.epoch + 1, status = $2, state = $3, waits = $4, steps = $5, started_at = $7
     WHERE r.id = $1 AND r.epoch = $6";

/// Writes a run that has moved and suspended again. False if another session moved it meanwhile, which its lock
/// prevents.
pub fn update(run: &LiveRun) -> bool {
    let args = [
        run.id.0.into(),
        run.pause.word().into(),
        Arg::kept_json(&run.state),
        Arg::json(&notes(&run.waits)),
        Arg::json(&run.steps),
        run.epoch.into(),
        Arg::timestamp(run.started_at),
    ];
    as_engine(|| execute(UPDATE, &args)) == 1
}

const DELETE: &str = "DELETE FROM automation_internal.run AS r WHERE r.id = ANY ($1)";

/// Removes runs that have ended.
pub fn delete(ids: &[RunId]) {
    if !ids.is_empty() {
        as_engine(|| execute(DELETE, &[run_numbers(ids)]));
    }
}

pub const WITH_KEY: &str = "
    SELECT r.id, r.status = 'queued'
      FROM automation_internal.run AS r
     WHERE r.automation_id = $1
       AND r.mode_key = $2
     ORDER BY r.started_at, r.id
     LIMIT $3";

/// The live runs of an automation with a key, those that came first first.
pub fn with_key(automation: AutomationId, key: &str, most: i64) -> Vec<ActiveRun> {
    let read = |row: &Row<'_>| Some(ActiveRun { id: RunId(row.int8(1)?), queued: row.bool(2)? });
    as_engine(|| query(WITH_KEY, &[automation.0.into(), key.into(), most.into()], read)).into_iter().flatten().collect()
}

const HAS_ANCESTOR: &str = "
    WITH RECURSIVE ancestor AS (
        SELECT r.id, r.parent, r.automation_id, r.mode_key FROM automation_internal.run AS r WHERE r.id = $1
        UNION
        SELECT r.id, r.parent, r.automation_id, r.mode_key
          FROM ancestor AS a
          JOIN automation_internal.run AS r ON r.id = a.parent)
    SELECT EXISTS (SELECT FROM ancestor AS a WHERE a.automation_id = $2 AND a.mode_key = $3)";

/// Is a run, or one that waits for it, of the automation and with the key?
pub fn has_ancestor_with_key(run: RunId, automation: AutomationId, key: &str) -> bool {
    let args = [run.0.into(), automation.0.into(), key.into()];
    as_engine(|| query_one(HAS_ANCESTOR, &args, |row| row.bool(1))).flatten().unwrap_or_default()
}

const NEXT_QUEUED: &str = "
    SELECT r.id, r.owner, r.automation_id, r.version_id
      FROM unnest($1::bigint[], $2::text[]) AS k (automation_id, mode_key)
     CROSS JOIN LATERAL (
           SELECT q.*
             FROM automation_internal.run AS q
            WHERE q.automation_id = k.automation_id
              AND q.mode_key = k.mode_key
              AND q.status = 'queued'
            ORDER BY q.started_at, q.id
            LIMIT 1) AS r";

/// The first run in the queue of each of these: (automation, key).
pub fn next_queued(of: &[(AutomationId, &str)]) -> Vec<Waiter> {
    let automations: Vec<i64> = of.iter().map(|(automation, _)| i64::from(automation.0)).collect();
    let keys: Vec<&str> = of.iter().map(|(_, key)| *key).collect();
    as_engine(|| query(NEXT_QUEUED, &[Arg::int8s(&automations), Arg::texts(&keys)], waiter))
        .into_iter()
        .flatten()
        .collect()
}

fn waiter(row: &Row<'_>) -> Option<Waiter> {
    Some(Waiter {
        run_id: RunId(row.int8(1)?),
        wait_no: WaitNo::NONE,
        owner: row.oid(2)?,
        automation_id: AutomationId(row.int4(3)?),
        version_id: VersionId(row.int4(4)?),
    })
}

const WITH_FOLLOWERS: &str = "
    SELECT k.automation_id, k.mode_key
      FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS k (automation_id, version_id, mode_key)
     WHERE EXISTS (SELECT FROM automation_internal.run AS q
                    WHERE q.automation_id = k.automation_id
                      AND q.mode_key = k.mode_key
                      AND q.status = 'queued')
        OR EXISTS (SELECT FROM automation_internal.automation AS a
                    WHERE a.id = k.automation_id
                      AND a.version_id <> k.version_id)";

/// The keys of ended runs (automation, version, key) in whose queue there is a run, or may be a run of a newer version
/// that is not visible yet.
pub fn with_followers(ended: &[(AutomationId, VersionId, &str)]) -> Vec<(AutomationId, String)> {
    if ended.is_empty() {
        return Vec::new();
    }
    let automations: Vec<i64> = ended.iter().map(|(automation, ..)| i64::from(automation.0)).collect();
    let versions: Vec<i64> = ended.iter().map(|(_, version, _)| i64::from(version.0)).collect();
    let keys: Vec<&str> = ended.iter().map(|(.., key)| *key).collect();
    let args = [Arg::int8s(&automations), Arg::int8s(&versions), Arg::texts(&keys)];
    let read = |row: &Row<'_>| Some((AutomationId(i32::try_from(row.int8(1)?).ok()?), row.text(2)?));
    as_engine(|| query(WITH_FOLLOWERS, &args, read)).into_iter().flatten().collect()
}

const OF_AUTOMATION: &str = "
    SELECT r.id
      FROM automation_internal.run AS r
     WHERE r.automation_id = $1
     ORDER BY r.id";

/// The live runs of an automation.
pub fn of_automation(automation: AutomationId) -> Vec<RunId> {
    as_engine(|| query(OF_AUTOMATION, &[automation.0.into()], |row| row.int8(1).map(RunId)))
        .into_iter()
        .flatten()
        .collect()
}

const FROZEN: &str = "
    SELECT r.id, r.owner, r.automation_id, r.version_id
      FROM automation_internal.run AS r
     WHERE r.automation_id = $1
       AND r.status = 'frozen'
     ORDER BY r.id";

/// Frozen runs of an automation: (run, owner, automation, version).
pub fn frozen(automation: AutomationId) -> Vec<(RunId, pg_sys::Oid, AutomationId, VersionId)> {
    as_engine(|| {
        query(FROZEN, &[automation.0.into()], |row| {
            Some((RunId(row.int8(1)?), row.oid(2)?, AutomationId(row.int4(3)?), VersionId(row.int4(4)?)))
        })
    })
    .into_iter()
    .flatten()
    .collect()
}

pub const SLICE: &str = "
    SELECT r.id, r.owner, r.automation_id, r.version_id
      FROM automation_internal.run AS r
     WHERE r.id > $1
       AND r.status <> 'frozen'
       AND r.started_at < $2
     ORDER BY r.id
     LIMIT $3";

/// Runs that wait, in the order of their numbers.
pub fn slice(after: RunId, limit: i64, begun_before: Micros) -> Vec<Waiter> {
    as_engine(|| query(SLICE, &[after.0.into(), Arg::timestamp(begun_before), limit.into()], waiter))
        .into_iter()
        .flatten()
        .collect()
}

const ORPHANED: &str = "
    SELECT r.id
      FROM automation_internal.automation AS a
      JOIN automation_internal.run AS r ON r.automation_id = a.id
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS o WHERE o.oid = a.owner)
     LIMIT 1000";

/// Live runs of owners that do not exist any more.
pub fn orphaned() -> Vec<RunId> {
    as_engine(|| query(ORPHANED, &[], |row| row.int8(1).map(RunId))).into_iter().flatten().collect()
}
