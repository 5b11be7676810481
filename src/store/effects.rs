//! The effects of automations (the events and rows that they make), kept to find loops.
use automation_core::ids::AutomationId;
use pgrx::pg_sys;

use crate::pg::engine_sql::{Arg, execute, query};
use crate::pg::identity::as_engine;

const FORGET: &str = "DELETE FROM automation_internal.automation_effect AS e WHERE e.automation_id = $1";
const SAVE: &str = "
    INSERT INTO automation_internal.automation_effect AS e (automation_id, node, writes)
    VALUES ($1, $2, $3)
        ON CONFLICT (automation_id) DO UPDATE SET node = excluded.node, writes = excluded.writes";

/// Remembers the effects of an automation; None if it has none.
pub fn replace(automation: AutomationId, effect: Option<(&str, &str)>) {
    as_engine(|| match effect {
        Some((node, writes)) => execute(SAVE, &[automation.0.into(), Arg::jsonb(node), Arg::jsonb(writes)]),
        None => execute(FORGET, &[automation.0.into()]),
    });
}

const ACTIVE: &str = "
    SELECT a.owner, e.node::json, e.writes::json
      FROM automation_internal.automation_effect AS e
      JOIN automation_internal.automation AS a ON a.id = e.automation_id
     WHERE a.status = 'active'
       AND (a.name <> $1 OR a.tenant IS DISTINCT FROM $2)
       AND ($2 IS NULL OR a.tenant IS NULL OR a.tenant = $2)";

/// The effects of the other active automations, as (owner, node, writes): of those that can start an automation of this
/// tenant, or, without a tenant, of all.
pub fn of_others(name: &str, tenant: Option<&str>) -> Vec<(pg_sys::Oid, String, String)> {
    as_engine(|| query(ACTIVE, &[name.into(), tenant.into()], |row| Some((row.oid(1)?, row.text(2)?, row.text(3)?))))
        .into_iter()
        .flatten()
        .collect()
}
