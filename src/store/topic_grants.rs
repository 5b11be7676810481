//! Grants on topics and on kinds without a table.
use automation_core::topic::grants::{Grant, Right};
use pgrx::pg_sys;

use super::automations::note_change;
use crate::pg::clock;
use crate::pg::engine_sql::{Arg, execute};
use crate::pg::identity::as_engine;
use crate::pg::table_scan::each_row;

/// All grants.
pub fn all() -> Vec<Grant<pg_sys::Oid>> {
    let mut found = Vec::new();
    each_row("topic_grant", |row| {
        let right = row.text(3).as_deref().and_then(Right::parse);
        if let (Some(grantee), Some(prefix), Some(right), Some(of)) = (row.oid(1), row.text(2), right, row.oid(4)) {
            let of = (of != pg_sys::InvalidOid).then_some(of);
            found.push(Grant { right, prefix, grantee, of, settled: row.bool(5).unwrap_or_default() });
        }
    });
    found
}

const ADD: &str = "
    INSERT INTO automation_internal.topic_grant AS g (grantee, prefix, may, of_role, settled, granted_by, granted_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (grantee, prefix, may, of_role) DO UPDATE
       SET settled = excluded.settled, granted_by = excluded.granted_by, granted_at = excluded.granted_at
     WHERE excluded.settled AND NOT g.settled";

/// Adds a grant. False if it was there already. A grant for one side only never takes the place of one for both.
pub fn add(grant: &Grant<pg_sys::Oid>, by: pg_sys::Oid) -> bool {
    let args = [
        grant.grantee.into(),
        grant.prefix.as_str().into(),
        grant.right.name().into(),
        grant.of.unwrap_or(pg_sys::InvalidOid).into(),
        grant.settled.into(),
        by.into(),
        Arg::timestamp(clock::now()),
    ];
    let added = as_engine(|| execute(ADD, &args)) > 0;
    if added {
        note_change();
    }
    added
}

const REMOVE: &str = "
    DELETE FROM automation_internal.topic_grant AS g
     WHERE g.grantee = $1 AND g.prefix = $2 AND g.may = $3 AND g.of_role = $4";

/// False if there was none.
pub fn remove(grantee: pg_sys::Oid, prefix: &str, right: Right, of: Option<pg_sys::Oid>) -> bool {
    let args = [grantee.into(), prefix.into(), right.name().into(), of.unwrap_or(pg_sys::InvalidOid).into()];
    let removed = as_engine(|| execute(REMOVE, &args)) > 0;
    if removed {
        note_change();
    }
    removed
}

const FORGET_DROPPED: &str = "
    DELETE FROM automation_internal.topic_grant AS g
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_authid AS a WHERE a.oid = g.grantee)
        OR (g.of_role <> 0 AND NOT EXISTS (SELECT FROM pg_catalog.pg_authid AS a WHERE a.oid = g.of_role))";

/// Forgets grants to and of roles that were dropped.
pub fn forget_dropped() -> u64 {
    let forgotten = as_engine(|| execute(FORGET_DROPPED, &[]));
    if forgotten > 0 {
        note_change();
    }
    forgotten
}
