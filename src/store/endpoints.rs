//! Endpoints: receivers of messages that have a name.
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query, query_one};
use crate::pg::identity::as_engine;

/// A receiver.
pub struct Endpoint {
    pub url: String,
    pub secret: Option<String>,
    /// JSON, as in the outbox.
    pub headers: Option<String>,
    pub timeout_ms: i32,
    pub max_attempts: i32,
    /// Why nothing is sent there any more.
    pub disabled: Option<String>,
}

// Setting an endpoint again enables it: the user who sets it is taken to have repaired it.
const SET: &str = "
    INSERT INTO automation_internal.endpoint (owner, owner_name, name, url, secret, headers, timeout_ms, max_attempts)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (owner, name) DO UPDATE
       SET owner_name = excluded.owner_name, url = excluded.url, secret = excluded.secret, headers = excluded.headers,
           timeout_ms = excluded.timeout_ms, max_attempts = excluded.max_attempts,
           disabled_at = NULL, disabled_reason = NULL";

pub fn set(owner: pg_sys::Oid, owner_name: &str, name: &str, endpoint: &Endpoint) {
    as_engine(|| {
        execute(
            SET,
            &[
                owner.into(),
                owner_name.into(),
                name.into(),
                endpoint.url.as_str().into(),
                endpoint.secret.as_deref().into(),
                Arg::maybe_json(endpoint.headers.as_deref()),
                endpoint.timeout_ms.into(),
                endpoint.max_attempts.into(),
            ],
        )
    });
}

const DROP: &str = "DELETE FROM automation_internal.endpoint AS e WHERE e.owner = $1 AND e.name = $2";

/// False if there was none.
pub fn drop(owner: pg_sys::Oid, name: &str) -> bool {
    as_engine(|| execute(DROP, &[owner.into(), name.into()])) == 1
}

const GET: &str = "
    SELECT e.url, e.secret, e.headers, e.timeout_ms, e.max_attempts, e.disabled_reason
      FROM automation_internal.endpoint AS e
     WHERE e.owner = $1 AND e.name = $2";

pub fn get(owner: pg_sys::Oid, name: &str) -> Option<Endpoint> {
    as_engine(|| {
        query_one(GET, &[owner.into(), name.into()], |row| {
            Some(Endpoint {
                url: row.text(1)?,
                secret: row.text(2),
                headers: row.text(3),
                timeout_ms: row.int4(4)?,
                max_attempts: row.int4(5)?,
                disabled: row.text(6),
            })
        })
    })
    .flatten()
}

const NAMES: &str = "SELECT e.name FROM automation_internal.endpoint AS e WHERE e.owner = $1 ORDER BY e.name";

/// The names of a role's endpoints.
pub fn names(owner: pg_sys::Oid) -> Vec<String> {
    as_engine(|| query(NAMES, &[owner.into()], |row| row.text(1))).into_iter().flatten().collect()
}

const DISABLE: &str = "
    UPDATE automation_internal.endpoint AS e
       SET disabled_at = $3, disabled_reason = $4
     WHERE e.owner = $1 AND e.name = $2 AND e.disabled_at IS NULL";

/// Disables an endpoint: no message is sent there any more. False if it was disabled already.
pub fn disable(owner: pg_sys::Oid, name: &str, reason: &str, now: Micros) -> bool {
    as_engine(|| execute(DISABLE, &[owner.into(), name.into(), Arg::timestamp(now), reason.into()])) == 1
}

const FORGET: &str = "
    DELETE FROM automation_internal.endpoint AS e
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS a WHERE a.oid = e.owner)";

/// Forgets the endpoints of roles that are gone.
pub fn forget_dropped() {
    as_engine(|| execute(FORGET, &[]));
}
