//! Subscriptions: which events are told by NOTIFY on which channels.
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::as_engine;
use crate::pg::table_scan::each_row;

/// Events that match a pattern are told on a channel, if the role may see them.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub role: pg_sys::Oid,
    pub pattern: String,
    pub channel: String,
}

/// All subscriptions.
pub fn all() -> Vec<Subscription> {
    let mut found = Vec::new();
    each_row("subscription", |row| {
        if let (Some(role), Some(pattern), Some(channel)) = (row.oid(1), row.text(2), row.text(3)) {
            found.push(Subscription { role, pattern, channel });
        }
    });
    found
}

const ADD: &str = "
    INSERT INTO automation_internal.subscription (role, pattern, channel, created_at)
    VALUES ($1, $2, $3, $4)
        ON CONFLICT DO NOTHING";

/// False if it was there already.
pub fn add(role: pg_sys::Oid, pattern: &str, channel: &str, now: Micros) -> bool {
    as_engine(|| execute(ADD, &[role.into(), pattern.into(), channel.into(), Arg::timestamp(now)])) == 1
}

const COUNT: &str = "
    SELECT pg_catalog.count(*)
      FROM automation_internal.subscription AS s
     WHERE s.role = $1 AND (s.pattern, s.channel) IS DISTINCT FROM ($2, $3)";

/// How many a role has besides this one.
pub fn others(role: pg_sys::Oid, pattern: &str, channel: &str) -> i64 {
    let args = [role.into(), pattern.into(), channel.into()];
    as_engine(|| query_one(COUNT, &args, |row| row.int8(1))).flatten().unwrap_or_default()
}

const REMOVE: &str = "
    DELETE FROM automation_internal.subscription AS s
     WHERE s.role = $1 AND s.pattern = $2 AND s.channel = $3";

/// False if there was none.
pub fn remove(role: pg_sys::Oid, pattern: &str, channel: &str) -> bool {
    as_engine(|| execute(REMOVE, &[role.into(), pattern.into(), channel.into()])) == 1
}

const FORGET_DROPPED: &str = "
    DELETE FROM automation_internal.subscription AS s
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS a WHERE a.oid = s.role)";

/// Forgets the subscriptions of roles that are gone.
pub fn forget_dropped() -> u64 {
    as_engine(|| execute(FORGET_DROPPED, &[]))
}
