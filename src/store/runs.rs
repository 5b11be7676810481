//! Runs by their number: asked for and not routed yet, under way, or failed.
use automation_core::ids::{AutomationId, EventId, RunId, VersionId};
use pgrx::pg_sys;

use super::run_header::run_numbers;
use crate::pg::engine_sql::{Arg, execute, query, query_one};
use crate::pg::identity::{as_engine, current_user};
use crate::pg::table_scan::has_pages;
use crate::pg::{clock, names};

const UNROUTED: &str = "
    SELECT a.owner
      FROM automation_internal.event AS e
      JOIN automation_internal.automation AS a ON a.id = (e.next ->> 'automation_id')::integer
     WHERE e.op = 's'
       AND (e.next ->> 'run_id')::bigint = $1
       AND e.id > (SELECT c.from_floor - 100000 FROM automation_internal.router_cursor AS c)";

/// Owner of a run that start_run() announced.
pub fn owner_of_unrouted(run_id: RunId) -> Option<pg_sys::Oid> {
    as_engine(|| query_one(UNROUTED, &[run_id.0.into()], |row| row.oid(1))).flatten()
}

const TAKE_CANCELLED: &str = "
    DELETE FROM automation_internal.cancel_request AS c
     WHERE c.run_id = ANY ($1)
 RETURNING c.run_id";

/// Which of these runs were cancelled before they were routed.
pub fn take_cancelled(runs: &[RunId]) -> Vec<RunId> {
    // Hardly ever is there any.
    if runs.is_empty() || !has_pages("cancel_request") {
        return Vec::new();
    }
    query(TAKE_CANCELLED, &[run_numbers(runs)], |row| row.int8(1).map(RunId)).into_iter().flatten().collect()
}

const OWNER_UNDER_WAY: &str = "
    SELECT d.owner FROM automation_internal.dispatch AS d WHERE d.run_id = $1 AND d.reason IN ('t', 'm')
     UNION ALL
    SELECT r.owner FROM automation_internal.run AS r WHERE r.id = $1
     UNION ALL
    SELECT a.owner
      FROM automation_internal.dwell AS d
      JOIN automation_internal.automation AS a ON a.id = d.automation_id
     WHERE d.run_id = $1
     LIMIT 1";

/// Owner of a run that is queued, executes, waits or is held; takes no lock.
pub fn owner_under_way(run_id: RunId) -> Option<pg_sys::Oid> {
    as_engine(|| query_one(OWNER_UNDER_WAY, &[run_id.0.into()], |row| row.oid(1))).flatten()
}

const UNDER_WAY: &str = "
    SELECT u.owner, CASE WHEN (SELECT automation_internal.running()) ? $1::text THEN 'running' ELSE u.status END
      FROM (SELECT d.owner, 'pending'
              FROM automation_internal.dispatch AS d
             WHERE d.run_id = $1 AND d.reason IN ('t', 'm')
             UNION ALL
            SELECT r.owner, CASE r.status WHEN 'queued' THEN 'pending' ELSE 'waiting' END
              FROM automation_internal.run AS r
             WHERE r.id = $1) AS u (owner, status)
     LIMIT 1";

/// Owner and status of a run that is queued, executes or waits.
pub fn under_way(run_id: RunId) -> Option<(pg_sys::Oid, String)> {
    as_engine(|| query_one(UNDER_WAY, &[run_id.0.into()], |row| row.oid(1).zip(row.text(2)))).flatten()
}

const REQUEST_CANCEL: &str = "
    INSERT INTO automation_internal.cancel_request (run_id, requested_by, requested_at)
    VALUES ($1, $2, $3)
        ON CONFLICT (run_id) DO NOTHING";

pub fn request_cancel(run_id: RunId) -> bool {
    let by = names::role_name(current_user()).unwrap_or_default();
    as_engine(|| execute(REQUEST_CANCEL, &[run_id.0.into(), by.as_str().into(), Arg::timestamp(clock::now())])) == 1
}

const NOT_ENDED: &str = "
    SELECT r.id, r.owner,
           pg_catalog.json_build_object('id', r.id, 'automation', a.name, 'version', v.version,
               'status', CASE WHEN (SELECT automation_internal.running()) ? r.id::text THEN 'running' ELSE r.status END,
               'key', r.key, 'kind', r.kind, 'entity_id', r.entity_id, 'entity', r.kind || ':' || r.entity_id,
               'tenant', r.tenant, 'started_at', r.started_at)
      FROM (SELECT w.id, w.owner, w.automation_id, w.version_id, w.status, w.key, w.kind, w.entity_id, w.tenant,
                   w.started_at
              FROM automation_internal.run AS w
             UNION ALL
            SELECT d.run_id, d.owner, d.automation_id, d.version_id, 'pending', NULL, e.kind, e.entity_id, e.tenant,
                   NULL
              FROM automation_internal.dispatch AS d
              JOIN automation_internal.event AS e ON e.id = d.event_id AND e.occurred_at = d.event_at) AS r
      JOIN automation_internal.automation AS a ON a.id = r.automation_id
      JOIN automation_internal.automation_version AS v ON v.id = r.version_id
     ORDER BY r.id";

/// Every run that waits or is queued: (run, owner, JSON of its known fields).
pub fn not_ended() -> Vec<(RunId, pg_sys::Oid, String)> {
    as_engine(|| query(NOT_ENDED, &[], |row| Some((RunId(row.int8(1)?), row.oid(2)?, row.text(3)?))))
        .into_iter()
        .flatten()
        .collect()
}

/// A run that failed, as far as it matters for trying it again.
pub struct FailedRun {
    pub owner: pg_sys::Oid,
    pub status: String,
    pub automation: String,
    pub automation_id: AutomationId,
    pub automation_status: String,
    pub version_id: VersionId,
    pub trigger_no: i16,
    pub event_id: EventId,
    pub tenant: Option<String>,
    pub state: Option<String>,
    pub failed_step: Option<String>,
}

const FAILED: &str = "
    SELECT h.owner, h.status, a.name, h.automation_id, a.status, h.version_id, h.trigger_no, h.event_id, h.tenant,
           h.state, h.error ->> 'step'
      FROM automation_internal.run_history AS h
      JOIN automation_internal.automation AS a ON a.id = h.automation_id
     WHERE h.id = $1";

/// A run that has ended.
pub fn ended(run_id: RunId) -> Option<FailedRun> {
    as_engine(|| {
        query_one(FAILED, &[run_id.0.into()], |row| {
            Some(FailedRun {
                owner: row.oid(1)?,
                status: row.text(2)?,
                automation: row.text(3)?,
                automation_id: AutomationId(row.int4(4)?),
                automation_status: row.text(5)?,
                version_id: VersionId(row.int4(6)?),
                trigger_no: row.int2(7)?,
                event_id: EventId(row.int8(8)?),
                tenant: row.text(9),
                state: row.text(10),
                failed_step: row.text(11),
            })
        })
    })
    .flatten()
}
