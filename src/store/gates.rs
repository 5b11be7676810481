//! The memory of the gates between an event and a run.
use std::collections::{HashMap, HashSet};

use automation_core::ids::{AutomationId, EventId, RunId};
use pgrx::pg_sys;

use crate::pg::append::{append_plain, text_varlena};
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::as_engine;
use crate::pg::table_scan::each_row;

/// Occurrences that a window counts: those of one trigger with one key.
#[derive(Clone, Copy, Debug)]
pub struct Partition<'a> {
    pub automation_id: AutomationId,
    /// A hash of the trigger as it is defined.
    pub trigger: i64,
    pub key: &'a str,
}

// The row that is added is not in the statement's own snapshot.
pub const COUNT_WINDOW: &str = "
    WITH added AS (
        INSERT INTO automation_internal.window_event (automation_id, trigger, key, at, event_id, keep_until)
        VALUES ($1, $2, $3, $8, $6, $9)
            ON CONFLICT DO NOTHING)
    SELECT pg_catalog.count(*)
      FROM (SELECT
              FROM automation_internal.window_event AS w
             WHERE w.automation_id = $1
               AND w.trigger = $2
               AND w.key = $3
               AND w.at BETWEEN $4 AND $5
               AND w.event_id <> $6
             LIMIT $7) AS counted";

/// An occurrence, and how far from it others count.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence {
    pub event_id: EventId,
    pub at: Micros,
    pub from: Micros,
    pub to: Micros,
}

/// Adds an event to a partition, once, however often it comes. Returns how many other events count with it, counted no
/// further than `most`.
pub fn count_window(of: Partition<'_>, event: Occurrence, most: i64) -> u64 {
    let (from, to, at) = (Arg::timestamp(event.from), Arg::timestamp(event.to), Arg::timestamp(event.at));
    let key = [of.automation_id.0.into(), of.trigger.into(), of.key.into()];
    let args = [key[0], key[1], key[2], from, to, event.event_id.0.into(), most.into(), at, to];
    as_engine(|| query_one(COUNT_WINDOW, &args, |row| row.int8(1))).flatten().unwrap_or_default() as u64
}

const CLAIM: &str = "
    INSERT INTO automation_internal.execution_claim AS c (automation_id, key, event_id, expires_at)
    VALUES ($1, $2, $3, $4)
        ON CONFLICT (automation_id, key) DO UPDATE SET event_id = $3, expires_at = $4
     WHERE c.expires_at <= $5";

/// Claims a key for an event. False if an earlier event has it and its time is not over.
pub fn claim(automation_id: AutomationId, key: &str, event_id: EventId, now: Micros, expires_at: Micros) -> bool {
    let (expires, now) = (Arg::timestamp(expires_at), Arg::timestamp(now));
    as_engine(|| execute(CLAIM, &[automation_id.0.into(), key.into(), event_id.0.into(), expires, now])) == 1
}

pub const COUNT_EXECUTIONS: &str = "
    SELECT pg_catalog.count(*)
      FROM (SELECT
              FROM automation_internal.execution AS e
             WHERE e.automation_id = $1
               AND e.tenant = $6
               AND e.at >= $2
               AND ($3::text IS NULL OR e.entity = $3)
               AND (e.own OR NOT $4)
             LIMIT $5) AS counted";

/// Runs that are counted together: those of an automation, or those of an automation for one tenant.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    pub automation_id: AutomationId,
    /// Empty if the tenants are not told apart.
    pub tenant: &'a str,
}

/// Executions since an instant, counted no further than `most`: all, those for one entity, or those that go back to the
/// automation itself.
pub fn count_executions(of: Counted<'_>, since: Micros, entity: Option<&str>, own: bool, most: i64) -> u64 {
    let args =
        [of.automation_id.0.into(), Arg::timestamp(since), entity.into(), own.into(), most.into(), of.tenant.into()];
    as_engine(|| query_one(COUNT_EXECUTIONS, &args, |row| row.int8(1))).flatten().unwrap_or_default() as u64
}

const ADD_EXECUTION: &str = "
    INSERT INTO automation_internal.execution (automation_id, at, entity, own, keep_until, tenant)
    VALUES ($1, $2, $3, $4, $5, $6)";

pub fn add_execution(of: Counted<'_>, at: Micros, entity: Option<&str>, own: bool, keep_until: Micros) {
    let (at, keep_until) = (Arg::timestamp(at), Arg::timestamp(keep_until));
    let args = [of.automation_id.0.into(), at, entity.into(), own.into(), keep_until, of.tenant.into()];
    as_engine(|| execute(ADD_EXECUTION, &args));
}

const FORGET_EXECUTIONS: &str = "DELETE FROM automation_internal.execution AS e WHERE e.automation_id = $1";

/// Begins to count the executions of an automation anew.
pub fn forget_executions(automation_id: AutomationId) {
    as_engine(|| execute(FORGET_EXECUTIONS, &[automation_id.0.into()]));
}

const FORGET_TENANT: [&str; 2] =
    ["DELETE FROM automation_internal.execution AS e WHERE e.automation_id = $1 AND e.tenant = $2", FORGET_FAILURES_OF];

/// Forgets the executions and failures of a tenant that was held back.
pub fn forget_tenant(automation_id: AutomationId, tenant: &str) {
    for statement in FORGET_TENANT {
        as_engine(|| execute(statement, &[automation_id.0.into(), tenant.into()]));
    }
}

// A run is either live or in the history, and its event is kept at least as long as it can be the cause of another.
const GOES_BACK: &str = "
    WITH RECURSIVE chain (automation_id, event_id, depth) AS (
        SELECT r.automation_id, r.event_id, 1
          FROM (SELECT h.id, h.automation_id, h.event_id FROM automation_internal.run_history AS h WHERE h.id = $1
                UNION ALL
                SELECT l.id, l.automation_id, l.event_id FROM automation_internal.run AS l WHERE l.id = $1) AS r
        UNION ALL
        SELECT r.automation_id, r.event_id, c.depth + 1
          FROM chain AS c
          JOIN automation_internal.event AS e ON e.id = c.event_id
          CROSS JOIN LATERAL (
               SELECT h.automation_id, h.event_id FROM automation_internal.run_history AS h WHERE h.id = e.cause_run
               UNION ALL
               SELECT l.automation_id, l.event_id FROM automation_internal.run AS l WHERE l.id = e.cause_run) AS r
         WHERE c.depth < $3
           AND c.automation_id <> $2)
    SELECT EXISTS (SELECT FROM chain AS c WHERE c.automation_id = $2)";

/// Is one of the runs that led to this one, beginning with `run_id`, of the automation?
pub fn goes_back_to(automation_id: AutomationId, run_id: RunId, depth: i16) -> bool {
    let args = [run_id.0.into(), automation_id.0.into(), i32::from(depth).into()];
    as_engine(|| query_one(GOES_BACK, &args, |row| row.bool(1))).flatten().unwrap_or_default()
}

/// Automations, by tenant, whose last runs failed.
pub fn failing() -> HashSet<(AutomationId, String)> {
    let mut found = HashSet::new();
    each_row("breaker", |row| {
        found.extend(row.int4(1).map(AutomationId).zip(row.text(2)));
    });
    found
}

const LOCK_FAILURES: &str = "
    INSERT INTO automation_internal.breaker AS b (automation_id, tenant, failures)
    VALUES ($1, $2, 0)
        ON CONFLICT (automation_id, tenant) DO UPDATE SET failures = b.failures
 RETURNING b.failures";

/// How many runs in a row have failed, locked until this transaction ends.
pub fn lock_failures(of: Counted<'_>) -> u32 {
    let found =
        as_engine(|| query_one(LOCK_FAILURES, &[of.automation_id.0.into(), of.tenant.into()], |row| row.int4(1)));
    found.flatten().unwrap_or_default() as u32
}

const SET_FAILURES: &str = "
    UPDATE automation_internal.breaker AS b
       SET failures = $3
     WHERE b.automation_id = $1
       AND b.tenant = $2";

pub fn set_failures(of: Counted<'_>, failures: u32) {
    as_engine(|| execute(SET_FAILURES, &[of.automation_id.0.into(), of.tenant.into(), (failures as i32).into()]));
}

const FORGET_FAILURES_OF: &str =
    "DELETE FROM automation_internal.breaker AS b WHERE b.automation_id = $1 AND b.tenant = $2";

/// Forgets the failures in a row, because a run was completed.
pub fn forget_failures_of(of: Counted<'_>) {
    as_engine(|| execute(FORGET_FAILURES_OF, &[of.automation_id.0.into(), of.tenant.into()]));
}

const FORGET_FAILURES: &str = "DELETE FROM automation_internal.breaker AS b WHERE b.automation_id = $1";

/// Forgets the failures in a row of all tenants, because the automation was made active, or redefined.
pub fn forget_failures(automation_id: AutomationId) {
    as_engine(|| execute(FORGET_FAILURES, &[automation_id.0.into()]));
}

/// Which gate refused: (automation, trigger, reason).
pub type Refused = (AutomationId, i16, &'static str);

/// Adds the refusals of a batch.
pub fn add_refusals(refusals: &HashMap<Refused, i64>, at: Micros) {
    if refusals.is_empty() {
        return;
    }
    append_plain(
        "gate_refusal",
        refusals.iter().map(|(&(automation, trigger, reason), &count)| {
            [
                Some(pg_sys::Datum::from(automation.0)),
                Some(pg_sys::Datum::from(trigger)),
                Some(text_varlena(reason)),
                Some(pg_sys::Datum::from(count)),
                Some(pg_sys::Datum::from(at)),
            ]
        }),
    );
}

const FOLD: &str = "
    WITH old AS (
        DELETE FROM automation_internal.gate_refusal AS g
     RETURNING g.*)
    INSERT INTO automation_internal.gate_refusal
    SELECT o.automation_id, o.trigger_no, o.reason, pg_catalog.sum(o.count), pg_catalog.max(o.at)
      FROM old AS o
     GROUP BY o.automation_id, o.trigger_no, o.reason";
const SIZE: &str = "SELECT pg_catalog.pg_relation_size('automation_internal.gate_refusal')";

/// Folds the counters once their table is larger than so many bytes.
pub fn fold(larger_than: i64) {
    as_engine(|| {
        if query_one(SIZE, &[], |row| row.int8(1)).flatten().unwrap_or_default() > larger_than {
            execute(FOLD, &[]);
        }
    });
}

const PRUNE: [&str; 3] = [
    "DELETE FROM automation_internal.window_event AS w WHERE w.keep_until < $1",
    "DELETE FROM automation_internal.execution_claim AS c WHERE c.expires_at < $1",
    "DELETE FROM automation_internal.execution AS e WHERE e.keep_until < $1",
];

/// Forgets rows that no gate looks at any more.
pub fn prune(before: Micros) {
    for statement in PRUNE {
        as_engine(|| execute(statement, &[Arg::timestamp(before)]));
    }
}

const FORGET: [&str; 5] = [
    "DELETE FROM automation_internal.tenant_pause AS p WHERE p.automation_id = $1",
    "DELETE FROM automation_internal.window_event AS w WHERE w.automation_id = $1",
    "DELETE FROM automation_internal.execution_claim AS c WHERE c.automation_id = $1",
    "DELETE FROM automation_internal.execution AS e WHERE e.automation_id = $1",
    FORGET_FAILURES,
];

/// Forgets everything about an automation that is being dropped.
pub fn forget(automation_id: AutomationId) {
    for statement in FORGET {
        as_engine(|| execute(statement, &[automation_id.0.into()]));
    }
}
