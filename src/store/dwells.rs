//! Holds: triggers with `hold_for` that have fired, and their deadlines (table `dwell`).
use std::collections::HashSet;

use automation_core::ids::{AutomationId, RunId, VersionId};
use pgrx::pg_sys;

use super::run_header::run_numbers;
use crate::event_log::events::Event;
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;

/// A hold.
#[derive(Clone, Debug)]
pub struct Dwell {
    /// The run that it becomes.
    pub run_id: RunId,
    pub automation_id: AutomationId,
    pub trigger_id: String,
    pub owner: pg_sys::Oid,
    pub version_id: VersionId,
    pub trigger_no: i16,
    pub fingerprint: i64,
    pub since: Micros,
    pub deadline: Micros,
    /// The event that began it.
    pub event: Event,
    /// The last one since that left it as it is.
    pub heard: Option<Event>,
    /// The automation as it is now.
    pub automation: Current,
}

/// An automation as it is now.
#[derive(Clone, Debug)]
pub struct Current {
    pub name: String,
    pub version_id: VersionId,
    /// The automation has been active ever since the hold began, and belongs to the same role.
    pub active: bool,
}

/// The result of trying to lock a hold that another session may have locked.
#[derive(Debug)]
pub enum Held<T> {
    /// The hold is locked by us until this transaction ends.
    Ours(T),
    /// Another session has it locked to end it, and may yet roll back.
    InOtherHands,
    /// There is no such hold.
    Nothing,
}

const INSERT: &str = "
    INSERT INTO automation_internal.dwell
           (run_id, automation_id, trigger_id, key, owner, version_id, trigger_no, ordering_key, fingerprint,
            active_since, since, deadline, event)
    SELECT $1, a.id, $3, $4, $5, $6, $7, $8, $9, a.active_since, $10, $11, $12
      FROM automation_internal.automation AS a
     WHERE a.id = $2
       AND a.status = 'active'
       AND a.owner = $5
       AND NOT EXISTS (SELECT FROM automation_internal.tenant_pause AS p
                        WHERE p.automation_id = a.id AND p.tenant = $13)";

/// A hold that begins.
#[derive(Debug)]
pub struct NewDwell<'a> {
    pub run_id: RunId,
    pub automation_id: AutomationId,
    pub trigger_id: &'a str,
    pub key: &'a str,
    pub owner: pg_sys::Oid,
    pub version_id: VersionId,
    pub trigger_no: i16,
    pub ordering_key: i64,
    pub fingerprint: i64,
    pub since: Micros,
    pub deadline: Micros,
    pub event: &'a Event,
}

/// Begins a hold. False if the automation is not active any more.
pub fn insert(new: &NewDwell<'_>) -> bool {
    let args = [
        new.run_id.0.into(),
        new.automation_id.0.into(),
        new.trigger_id.into(),
        new.key.into(),
        new.owner.into(),
        new.version_id.0.into(),
        new.trigger_no.into(),
        new.ordering_key.into(),
        new.fingerprint.into(),
        Arg::timestamp(new.since),
        Arg::timestamp(new.deadline),
        Arg::kept_json(&new.event.to_json()),
        new.event.tenant.as_deref().into(),
    ];
    as_engine(|| execute(INSERT, &args)) == 1
}

/// The columns that `read` reads, and where they come from.
macro_rules! dwells {
    ($rest:literal) => {
        concat!(
            "
    SELECT d.run_id, d.automation_id, d.trigger_id, d.owner, d.version_id, d.trigger_no, d.fingerprint, d.since,
           d.deadline, d.event, d.heard, a.name, a.version_id,
           a.status = 'active' AND a.active_since = d.active_since AND a.owner = d.owner
           AND NOT EXISTS (SELECT FROM automation_internal.tenant_pause AS p
                            WHERE p.automation_id = d.automation_id AND p.tenant = d.event ->> 'tenant')
      FROM automation_internal.dwell AS d
      JOIN automation_internal.automation AS a ON a.id = d.automation_id
     WHERE ",
            $rest
        )
    };
}

fn read(row: &Row<'_>) -> Option<Dwell> {
    Some(Dwell {
        run_id: RunId(row.int8(1)?),
        automation_id: AutomationId(row.int4(2)?),
        trigger_id: row.text(3)?,
        owner: row.oid(4)?,
        version_id: VersionId(row.int4(5)?),
        trigger_no: row.int2(6)?,
        fingerprint: row.int8(7)?,
        since: row.int8(8)?,
        deadline: row.int8(9)?,
        event: Event::from_json(&row.text(10)?)?,
        heard: row.text(11).and_then(|text| Event::from_json(&text)),
        automation: Current {
            name: row.text(12)?,
            version_id: VersionId(row.int4(13)?),
            active: row.bool(14).unwrap_or_default(),
        },
    })
}

const LOCK: &str = dwells!(
    "d.automation_id = $1 AND d.trigger_id = $2 AND d.key = $3
       FOR UPDATE OF d SKIP LOCKED"
);
const EXISTS: &str = "
    SELECT FROM automation_internal.dwell AS d
     WHERE d.automation_id = $1 AND d.trigger_id = $2 AND d.key = $3";

/// Locks the hold of a trigger under a key.
pub fn lock(automation: AutomationId, trigger: &str, key: &str) -> Held<Dwell> {
    let args: [Arg; 3] = [automation.0.into(), trigger.into(), key.into()];
    as_engine(|| match query_one(LOCK, &args, read).flatten() {
        Some(found) => Held::Ours(found),
        None if execute(EXISTS, &args) > 0 => Held::InOtherHands,
        None => Held::Nothing,
    })
}

const LOCK_RUN: &str = dwells!("d.run_id = $1 FOR UPDATE OF d SKIP LOCKED");
const EXISTS_RUN: &str = "SELECT FROM automation_internal.dwell AS d WHERE d.run_id = $1";

/// Locks the hold that is to become this run.
pub fn lock_run(run: RunId) -> Held<Dwell> {
    as_engine(|| match query_one(LOCK_RUN, &[run.0.into()], read).flatten() {
        Some(found) => Held::Ours(found),
        None if execute(EXISTS_RUN, &[run.0.into()]) > 0 => Held::InOtherHands,
        None => Held::Nothing,
    })
}

const WAIT_FOR: &str = dwells!("d.run_id = $1 FOR UPDATE OF d");

/// Locks the hold that is to become this run, waiting for the session that has it locked.
pub fn wait_for(run: RunId) -> Option<Dwell> {
    as_engine(|| query_one(WAIT_FOR, &[run.0.into()], read)).flatten()
}

const LOCK_ALL: &str = dwells!(
    "d.ordering_key = $1 AND d.automation_id = $2 AND d.trigger_id = $3
     ORDER BY d.run_id
       FOR UPDATE OF d SKIP LOCKED"
);
const COUNT_ALL: &str = "
    SELECT FROM automation_internal.dwell AS d
     WHERE d.ordering_key = $1 AND d.automation_id = $2 AND d.trigger_id = $3";

/// Locks all holds of a trigger under an ordering key.
pub fn lock_all(ordering_key: i64, automation: AutomationId, trigger: &str) -> Held<Vec<Dwell>> {
    let args: [Arg; 3] = [ordering_key.into(), automation.0.into(), trigger.into()];
    as_engine(|| {
        let found: Vec<Dwell> = query(LOCK_ALL, &args, read).into_iter().flatten().collect();
        match execute(COUNT_ALL, &args) {
            0 => Held::Nothing,
            all if all == found.len() as u64 => Held::Ours(found),
            _ => Held::InOtherHands,
        }
    })
}

const OF_AUTOMATION: &str = dwells!(
    "d.automation_id = $1
     ORDER BY d.run_id
       FOR UPDATE OF d SKIP LOCKED"
);

/// Locks all holds of an automation, except those that an executor has locked.
pub fn of_automation(automation: AutomationId) -> Vec<Dwell> {
    as_engine(|| query(OF_AUTOMATION, &[automation.0.into()], read)).into_iter().flatten().collect()
}

const ORPHANED: &str = dwells!(
    "NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid = d.owner)
     ORDER BY d.run_id
       FOR UPDATE OF d SKIP LOCKED"
);

/// Locks the holds of roles that are gone.
pub fn orphaned() -> Vec<Dwell> {
    as_engine(|| query(ORPHANED, &[], read)).into_iter().flatten().collect()
}

const HEAR: &str = "UPDATE automation_internal.dwell AS d SET heard = $2 WHERE d.run_id = $1";

/// Remembers the last event that left it as it is.
pub fn hear(run: RunId, event: &Event) {
    as_engine(|| execute(HEAR, &[run.0.into(), Arg::kept_json(&event.to_json())]));
}

const DELETE: &str = "DELETE FROM automation_internal.dwell AS d WHERE d.run_id = $1";

/// Ends a hold. False if another session has ended it.
pub fn delete(run: RunId) -> bool {
    as_engine(|| execute(DELETE, &[run.0.into()])) == 1
}

const ANY: &str = "
    SELECT EXISTS (SELECT FROM automation_internal.dispatch AS q WHERE q.reason = 'h')
        OR EXISTS (SELECT FROM automation_internal.dwell)";

/// Is there any hold, or a dispatch that may begin one?
pub fn any() -> bool {
    query_one(ANY, &[], |row| row.bool(1)).flatten().unwrap_or(true)
}

pub const QUEUED: &str = "
    SELECT q.ordering_key
      FROM automation_internal.dispatch AS q
     WHERE q.reason = 'h'
       AND q.ordering_key = ANY ($1)";

/// Those of these ordering keys under which a queued dispatch may begin a hold.
pub fn queued(ordering_keys: &[i64]) -> HashSet<i64> {
    query(QUEUED, &[Arg::int8s(ordering_keys)], |row| row.int8(1)).into_iter().flatten().collect()
}

/// The identity of a possible hold: automation, trigger and key.
#[derive(Clone, Debug)]
pub struct Place {
    pub automation_id: AutomationId,
    pub trigger_id: String,
    pub key: String,
}

pub const FIND: &str = "
    SELECT k.place
      FROM ROWS FROM (unnest($1::bigint[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bigint[]))
           AS k (automation_id, trigger_id, key, place)
      JOIN automation_internal.dwell AS d
        ON d.automation_id = k.automation_id::integer
       AND d.trigger_id = k.trigger_id
       AND d.key = k.key";

/// Which of these holds exist, by their place in the list.
pub fn find(places: &[Place]) -> HashSet<usize> {
    let automations: Vec<i64> = places.iter().map(|place| i64::from(place.automation_id.0)).collect();
    let triggers: Vec<&str> = places.iter().map(|place| place.trigger_id.as_str()).collect();
    let keys: Vec<&str> = places.iter().map(|place| place.key.as_str()).collect();
    let numbers: Vec<i64> = (0..places.len() as i64).collect();
    let args = [Arg::int8s(&automations), Arg::texts(&triggers), Arg::texts(&keys), Arg::int8s(&numbers)];
    query(FIND, &args, |row| row.int8(1)).into_iter().flatten().map(|place| place as usize).collect()
}

// The queue first, then the holds: a dispatch that is executed between the two reads has its hold by the second.
const QUEUED_KEYS: &str = "
    SELECT q.ordering_key
      FROM automation_internal.dispatch AS q
     WHERE q.reason = 'h'
       AND q.automation_id = $1";
const HELD_KEYS: &str = "
    SELECT DISTINCT d.ordering_key
      FROM automation_internal.dwell AS d
     WHERE d.automation_id = $1
       AND d.trigger_id = $2";

/// Every ordering key under which a trigger has a hold, or a queued dispatch may begin one.
pub fn ordering_keys(automation: AutomationId, trigger: &str) -> Vec<i64> {
    let mut keys = query(QUEUED_KEYS, &[automation.0.into()], |row| row.int8(1));
    keys.extend(query(HELD_KEYS, &[automation.0.into(), trigger.into()], |row| row.int8(1)));
    let mut keys: Vec<i64> = keys.into_iter().flatten().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

const OF_RUNS: &str = "
    SELECT d.run_id, d.ordering_key
      FROM automation_internal.dwell AS d
     WHERE d.run_id = ANY ($1)";

/// The ordering keys of the holds that are to become these runs.
pub fn keys_of_runs(runs: &[RunId]) -> Vec<(RunId, i64)> {
    if runs.is_empty() {
        return Vec::new();
    }
    query(OF_RUNS, &[run_numbers(runs)], |row| row.int8(1).map(RunId).zip(row.int8(2))).into_iter().flatten().collect()
}

const RECORDED_SINCE: &str = "
    SELECT k.created_at
      FROM automation_internal.entity_kind AS k
     WHERE k.kind = $1";

/// Since when the changes of a kind are recorded as they are now; None if they are not.
pub fn recorded_since(kind: &str) -> Option<Micros> {
    as_engine(|| query_one(RECORDED_SINCE, &[kind.into()], |row| row.int8(1))).flatten()
}
