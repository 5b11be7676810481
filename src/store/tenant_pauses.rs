//! Tenants for which an automation without a tenant is paused.
//!
//! A transaction that adds or removes a row holds a lock on the automation's row until it ends: an executor that is
//! about to freeze a run because of the pause, and a session that ends the pause, see each other.
use std::collections::HashSet;

use automation_core::ids::AutomationId;

use super::automations::note_change;
use crate::pg::clock;
use crate::pg::engine_sql::{Arg, query, query_one};
use crate::pg::identity::as_engine;
use crate::pg::table_scan::{each_row, has_pages};

/// All pauses: (automation, tenant).
pub fn all() -> HashSet<(AutomationId, String)> {
    let mut found = HashSet::new();
    each_row("tenant_pause", |row| {
        found.extend(row.int4(1).map(AutomationId).zip(row.text(2)));
    });
    found
}

const IS_PAUSED: &str = "
    SELECT true
      FROM automation_internal.tenant_pause AS p
     WHERE p.automation_id = $1
       AND p.tenant = $2";

/// Is the automation paused for the tenant? Nearly always the table has never had a row, which costs little to see.
pub fn is_paused(automation: AutomationId, tenant: Option<&str>) -> bool {
    let Some(tenant) = tenant.filter(|_| has_pages("tenant_pause")) else { return false };
    as_engine(|| query_one(IS_PAUSED, &[automation.0.into(), tenant.into()], |row| row.bool(1))).flatten() == Some(true)
}

const ADD: &str = "
    WITH known AS (
        SELECT a.id
          FROM automation_internal.automation AS a
         WHERE a.id = $1
           AND a.status = 'active'
           FOR SHARE SKIP LOCKED),
    added AS (
        INSERT INTO automation_internal.tenant_pause (automation_id, tenant, since, details)
        SELECT k.id, $2, $3, $4
          FROM known AS k
            ON CONFLICT DO NOTHING
     RETURNING true)
    SELECT EXISTS (SELECT FROM added)
      FROM known AS k";

/// Pauses an automation for a tenant; Some(false) if it was paused already. None if the automation is not active, or
/// another session is changing it: an executor must not wait for that session, which may wait for its runs. Executors
/// hold the tenant's lock of executions, and a person's session the automation's row, so that no two transactions add
/// the same row.
pub fn add(automation: AutomationId, tenant: &str, details: &serde_json::Value) -> Option<bool> {
    let args = [automation.0.into(), tenant.into(), Arg::timestamp(clock::now()), Arg::jsonb(&details.to_string())];
    let added = as_engine(|| query_one(ADD, &args, |row| row.bool(1))).flatten();
    if added == Some(true) {
        note_change();
    }
    added
}

const REMOVE: &str = "
    DELETE FROM automation_internal.tenant_pause AS p
     WHERE p.automation_id = $1
       AND ($2::text IS NULL OR p.tenant = $2)
 RETURNING p.tenant";

/// Ends the pause for one tenant, or for all. The caller has locked the automation. Returns the tenants that were
/// paused.
pub fn remove(automation: AutomationId, tenant: Option<&str>) -> Vec<String> {
    let mut tenants: Vec<String> =
        as_engine(|| query(REMOVE, &[automation.0.into(), tenant.into()], |row| row.text(1)))
            .into_iter()
            .flatten()
            .collect();
    if !tenants.is_empty() {
        tenants.sort_unstable();
        note_change();
    }
    tenants
}

const NAMED: &str = "
    SELECT a.name, p.tenant, COALESCE(p.details ->> 'reason', 'user'), p.since::text
      FROM automation_internal.tenant_pause AS p
      JOIN automation_internal.automation AS a ON a.id = p.automation_id
     WHERE a.status <> 'dropped'
       AND ($2 OR pg_catalog.pg_has_role($1, a.owner, 'USAGE'))
     ORDER BY p.since DESC
     LIMIT $3";

/// A pause as status() shows it.
pub struct Named {
    pub automation: String,
    pub tenant: String,
    pub reason: String,
    pub since: String,
}

/// The latest pauses of automations that a role may see.
pub fn named(role: pgrx::pg_sys::Oid, sees_all: bool, most: i64) -> Vec<Named> {
    as_engine(|| {
        query(NAMED, &[role.into(), sees_all.into(), most.into()], |row| {
            Some(Named { automation: row.text(1)?, tenant: row.text(2)?, reason: row.text(3)?, since: row.text(4)? })
        })
    })
    .into_iter()
    .flatten()
    .collect()
}
