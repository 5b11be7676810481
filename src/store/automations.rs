//! Automations and their versions.
use std::cell::Cell;

use automation_core::ids::{AutomationId, VersionId};
use pgrx::pg_sys;

use crate::pg::clock::{self, Micros};
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;
use crate::pg::table_scan::each_row;

/// The parts of an active automation that the router needs.
#[derive(Clone, Debug)]
pub struct ActiveVersion {
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    pub owner: pg_sys::Oid,
    pub name: String,
}

const ACTIVE: &str = "
    SELECT a.id, a.version_id, a.owner, a.name
      FROM automation_internal.automation AS a
     WHERE a.status = 'active'
     ORDER BY a.id";

pub fn active() -> Vec<ActiveVersion> {
    as_engine(|| {
        query(ACTIVE, &[], |row| ActiveVersion {
            automation_id: row.int4(1).map(AutomationId).unwrap_or_default(),
            version_id: row.int4(2).map(VersionId).unwrap_or_default(),
            owner: row.oid(3).unwrap_or(pg_sys::InvalidOid),
            name: row.text(4).unwrap_or_default(),
        })
    })
}

/// An immutable version as it is stored.
#[derive(Clone, Debug)]
pub struct StoredVersion {
    pub id: VersionId,
    pub document: String,
    pub search_path: String,
}

const VERSIONS: &str = "
    SELECT v.id, v.document::json, v.search_path
      FROM automation_internal.automation_version AS v
     WHERE v.id = ANY ($1::bigint[])";

pub fn versions(ids: &[VersionId]) -> Vec<StoredVersion> {
    let wide: Vec<i64> = ids.iter().map(|id| i64::from(id.0)).collect();
    as_engine(|| {
        query(VERSIONS, &[Arg::int8s(&wide)], |row| StoredVersion {
            id: VersionId(row.int4(1).unwrap_or_default()),
            document: row.text(2).unwrap_or_default(),
            search_path: row.text(3).unwrap_or_default(),
        })
    })
}

/// Differs whenever this snapshot sees another change of a definition: count and sum of the changes.
pub fn fingerprint() -> (i64, i64) {
    let (mut rows, mut count, mut sum) = (0, 0, 0i64);
    each_row("definition_change", |row| {
        rows += 1;
        count += row.int8(2).unwrap_or_default();
        sum = sum.wrapping_add(row.int8(3).or(row.int8(1)).unwrap_or_default());
    });
    NOTES.set(rows);
    (count, sum)
}

thread_local!(static NOTES: Cell<usize> = const { Cell::new(0) });

/// So many notes of changes are worth folding.
const MANY_NOTES: usize = 500;

/// Were there many notes when this process last looked?
pub fn notes_pile_up() -> bool {
    NOTES.get() >= MANY_NOTES
}

// The newest notes stay: transactions that are still open may have written notes with ids near theirs.
const FOLD_NOTES: &str = "
    WITH gone AS (
        DELETE FROM automation_internal.definition_change AS c
         WHERE c.id < (SELECT pg_catalog.max(m.id) - 100 FROM automation_internal.definition_change AS m)
     RETURNING c.changes, COALESCE(c.total, c.id) AS total)
    INSERT INTO automation_internal.definition_change (changes, total)
    SELECT pg_catalog.sum(g.changes), pg_catalog.sum(g.total)
      FROM gone AS g
    HAVING pg_catalog.count(*) > 0";

/// Folds the older notes into one that says the same as all of them together.
pub fn fold_notes() {
    as_engine(|| execute(FOLD_NOTES, &[]));
    NOTES.set(0);
}

const NOTE_CHANGE: &str = "INSERT INTO automation_internal.definition_change DEFAULT VALUES";

/// Makes every cache of definitions look again once this transaction commits.
pub fn note_change() {
    as_engine(|| execute(NOTE_CHANGE, &[]));
    crate::signal::at_commit::conductor_at_commit();
}

/// The row of an automation.
#[derive(Clone, Debug)]
pub struct Automation {
    pub id: AutomationId,
    pub name: String,
    pub owner: pg_sys::Oid,
    pub status: String,
    pub version: i32,
    pub version_id: VersionId,
    pub document: String,
    pub search_path: String,
    pub tenant: Option<String>,
}

const FIND: &str = "
    SELECT a.id, a.name, a.owner, a.status, a.version, a.version_id, v.document::json, v.search_path, a.tenant
      FROM automation_internal.automation AS a
      JOIN automation_internal.automation_version AS v ON v.id = a.version_id
     WHERE a.name = $1
       AND a.status <> 'dropped'
     ORDER BY a.tenant COLLATE pg_catalog.\"C\" NULLS FIRST";

/// The automations of a name: each tenant may have one, and there may be one without a tenant, which comes first.
pub fn of_name(name: &str) -> Vec<Automation> {
    as_engine(|| query(FIND, &[name.into()], read))
}

const BY_ID: &str = "
    SELECT a.id, a.name, a.owner, a.status, a.version, a.version_id, v.document::json, v.search_path, a.tenant
      FROM automation_internal.automation AS a
      JOIN automation_internal.automation_version AS v ON v.id = a.version_id
     WHERE a.id = $1
       AND a.status <> 'dropped'";

pub fn find(id: AutomationId) -> Option<Automation> {
    as_engine(|| query_one(BY_ID, &[id.0.into()], read))
}

const LOCK: &str = "
    SELECT a.id, a.name, a.owner, a.status, a.version, a.version_id, v.document::json, v.search_path, a.tenant
      FROM automation_internal.automation AS a
      JOIN automation_internal.automation_version AS v ON v.id = a.version_id
     WHERE a.name = $1
       AND a.tenant IS NOT DISTINCT FROM $2
       AND a.status <> 'dropped'
       FOR UPDATE OF a";

/// The automation of a name and a tenant, or of no tenant, locked against other changes of it until this transaction
/// ends.
pub fn lock(name: &str, tenant: Option<&str>) -> Option<Automation> {
    as_engine(|| query_one(LOCK, &[name.into(), tenant.into()], read))
}

impl Automation {
    /// Records in the audit an act of the current user on the automation. Its tenant is among the details.
    pub fn audit(&self, action: &str, mut details: serde_json::Value) {
        if let Some(tenant) = &self.tenant {
            details["tenant"] = tenant.as_str().into();
        }
        super::log::audit_of(Some(self.owner), action, &self.name, &details);
    }
}

fn read(row: &Row<'_>) -> Automation {
    Automation {
        id: AutomationId(row.int4(1).unwrap_or_default()),
        name: row.text(2).unwrap_or_default(),
        owner: row.oid(3).unwrap_or(pg_sys::InvalidOid),
        status: row.text(4).unwrap_or_default(),
        version: row.int4(5).unwrap_or_default(),
        version_id: row.int4(6).map(VersionId).unwrap_or_default(),
        document: row.text(7).unwrap_or_default(),
        search_path: row.text(8).unwrap_or_default(),
        tenant: row.text(9),
    }
}

const INSERT: &str = "
    INSERT INTO automation_internal.automation
           (name, owner, owner_name, status, version, version_id, tenant, created_at, updated_at, activated_at, active_since)
    VALUES ($1, $2, $3, $4, 0, 0, $5, $6, $6, CASE WHEN $4 = 'active' THEN $6 END, CASE WHEN $4 = 'active' THEN $6 END)
        ON CONFLICT (name, tenant) WHERE status <> 'dropped' DO NOTHING
 RETURNING id";

/// Creates an automation that has no version yet. None if the tenant has an automation of that name meanwhile.
pub fn insert(
    name: &str,
    owner: pg_sys::Oid,
    owner_name: &str,
    status: &str,
    tenant: Option<&str>,
    now: Micros,
) -> Option<AutomationId> {
    let args = [name.into(), owner.into(), owner_name.into(), status.into(), tenant.into(), Arg::timestamp(now)];
    as_engine(|| query_one(INSERT, &args, |row| row.int4(1).map(AutomationId))).flatten()
}

const OWNED: &str = "
    SELECT pg_catalog.count(*)
      FROM automation_internal.automation AS a
     WHERE a.owner = $1 AND a.status <> 'dropped'";

/// How many automations a role owns.
pub fn owned_by(owner: pg_sys::Oid) -> i64 {
    as_engine(|| query_one(OWNED, &[owner.into()], |row| row.int8(1))).flatten().unwrap_or_default()
}

const ADD_VERSION: &str = "
    WITH v AS (
        INSERT INTO automation_internal.automation_version
               (automation_id, version, document, search_path, created_by, created_at)
        SELECT a.id, a.version + 1, $2, $3, $4, $5
          FROM automation_internal.automation AS a
         WHERE a.id = $1
     RETURNING id, version)
    UPDATE automation_internal.automation AS a
       SET version = v.version, version_id = v.id, updated_at = $5, tenant = $6, owner = $7, owner_name = $8
      FROM v
     WHERE a.id = $1
 RETURNING a.version, a.version_id";

/// The row that add_version() writes.
pub struct NewVersion<'a> {
    /// Patterns of the engine's own events that start it.
    pub listens_to: &'a [String],
    pub automation_id: AutomationId,
    pub document: &'a str,
    pub search_path: &'a str,
    pub created_by: pg_sys::Oid,
    pub tenant: Option<&'a str>,
    pub owner: pg_sys::Oid,
    pub owner_name: &'a str,
}

/// Adds a version and makes it the current one. Returns its number.
pub fn add_version(version: &NewVersion<'_>) -> Option<i32> {
    let args = [
        version.automation_id.0.into(),
        Arg::jsonb(version.document),
        version.search_path.into(),
        version.created_by.into(),
        Arg::timestamp(clock::now()),
        version.tenant.into(),
        version.owner.into(),
        version.owner_name.into(),
    ];
    let (number, id) = as_engine(|| query_one(ADD_VERSION, &args, |row| row.int4(1).zip(row.int4(2)))).flatten()?;
    super::engine_listeners::replace(version.automation_id, VersionId(id), version.listens_to);
    Some(number)
}

const SET_STATUS: &str = "
    UPDATE automation_internal.automation AS a
       SET status = $2,
           updated_at = $3,
           activated_at = CASE WHEN $2 = 'active' THEN COALESCE(a.activated_at, $3)
                               WHEN $2 = 'draft' THEN NULL ELSE a.activated_at END,
           active_since = CASE WHEN $2 = 'active' THEN $3 ELSE a.active_since END,
           paused_at = CASE WHEN $2 = 'paused' THEN $3 END,
           disabled_by = CASE WHEN $2 = 'paused' THEN $4 END,
           disable_details = CASE WHEN $2 = 'paused' THEN $5 END
     WHERE a.id = $1
       AND a.status = $6";

/// Moves an automation from one status to another; false if it was not in the first one.
pub fn set_status(id: AutomationId, from: &str, to: &str, by: &str, details: &serde_json::Value) -> bool {
    let args = [
        id.0.into(),
        to.into(),
        Arg::timestamp(clock::now()),
        by.into(),
        Arg::jsonb(&details.to_string()),
        from.into(),
    ];
    as_engine(|| execute(SET_STATUS, &args)) == 1
}

const PAUSE_BY_SYSTEM: &str = "
    UPDATE automation_internal.automation AS a
       SET status = 'paused', updated_at = $2, paused_at = $2, disabled_by = 'system', disable_details = $3
     WHERE a.id = (SELECT s.id FROM automation_internal.automation AS s
                    WHERE s.id = $1 AND s.status = 'active' FOR UPDATE SKIP LOCKED)";

/// Pauses an automation by a decision of the engine. False if it is not active, or another session is changing it:
/// an executor must not wait for that session, which may wait for the executor's runs.
pub fn pause_by_system(id: AutomationId, details: &serde_json::Value) -> bool {
    let args = [id.0.into(), Arg::timestamp(clock::now()), Arg::jsonb(&details.to_string())];
    let paused = as_engine(|| execute(PAUSE_BY_SYSTEM, &args)) == 1;
    if paused {
        note_change();
    }
    paused
}

const WITH_RETENTION: &str = "
    SELECT a.id, v.document::json
      FROM automation_internal.automation AS a
      JOIN automation_internal.automation_version AS v ON v.id = a.version_id
     WHERE v.document ? 'retention'
     ORDER BY a.id";

/// Automations that say how long their runs are kept: (automation, document).
pub fn with_retention() -> Vec<(AutomationId, String)> {
    as_engine(|| query(WITH_RETENTION, &[], |row| row.int4(1).map(AutomationId).zip(row.text(2))))
        .into_iter()
        .flatten()
        .collect()
}

const NAME: &str = "SELECT a.name FROM automation_internal.automation AS a WHERE a.id = $1";

pub fn name(id: AutomationId) -> Option<String> {
    as_engine(|| query_one(NAME, &[id.0.into()], |row| row.text(1))).flatten()
}

const DROP: &str = "
    UPDATE automation_internal.automation AS a
       SET status = 'dropped', updated_at = $2
     WHERE a.id = $1";

pub fn drop(id: AutomationId) {
    super::engine_listeners::replace(id, VersionId(0), &[]);
    as_engine(|| execute(DROP, &[id.0.into(), Arg::timestamp(clock::now())]));
}

const PENDING: &str = "
    SELECT d.owner, d.id
      FROM automation_internal.dispatch AS d
     WHERE d.automation_id = $1
     ORDER BY d.id
       FOR UPDATE SKIP LOCKED";

/// Queued dispatches of an automation that no executor has locked.
pub fn pending(id: AutomationId) -> Vec<(pg_sys::Oid, i64)> {
    as_engine(|| query(PENDING, &[id.0.into()], |row| row.oid(1).zip(row.int8(2)))).into_iter().flatten().collect()
}

const LET_FINISH: &str = "UPDATE automation_internal.automation AS a SET finish_runs = true WHERE a.id = $1";

/// Runs of an automation that is being dropped go on to their end.
pub fn let_runs_finish(id: AutomationId) {
    as_engine(|| execute(LET_FINISH, &[id.0.into()]));
}

/// A version as versions() lists it.
pub struct ListedVersion {
    pub version: i32,
    pub document: String,
    pub created_by: String,
    pub created_at: Micros,
    pub runs: i64,
}

const HISTORY_OF: &str = "
    SELECT v.version, v.document::text, pg_catalog.pg_get_userbyid(v.created_by)::text, v.created_at,
           (SELECT pg_catalog.count(*) FROM automation_internal.run AS r
             WHERE r.automation_id = v.automation_id AND r.version_id = v.id)
      FROM automation_internal.automation_version AS v
     WHERE v.automation_id = $1
     ORDER BY v.version DESC";

/// All versions of an automation, newest first.
pub fn history_of(id: AutomationId) -> Vec<ListedVersion> {
    as_engine(|| {
        query(HISTORY_OF, &[id.0.into()], |row| {
            Some(ListedVersion {
                version: row.int4(1)?,
                document: row.text(2)?,
                created_by: row.text(3)?,
                created_at: row.int8(4)?,
                runs: row.int8(5)?,
            })
        })
    })
    .into_iter()
    .flatten()
    .collect()
}

const STAYS: &str = "
    SELECT a.status = 'active' OR a.finish_runs
      FROM automation_internal.automation AS a
     WHERE a.id = $1
       FOR SHARE SKIP LOCKED";

/// May the runs of the automation, of this tenant or of none, go on? Stays so until this transaction ends. None while
/// another session is changing the automation.
pub fn stays_as_it_is(automation: AutomationId, tenant: Option<&str>) -> Option<bool> {
    let stays = as_engine(|| query_one(STAYS, &[automation.0.into()], |row| row.bool(1))).flatten()?;
    // With the automation's row locked, no pause comes or goes. A statement of its own sees all that was committed
    // before the lock.
    Some(stays && !super::tenant_pauses::is_paused(automation, tenant))
}
