//! Secrets, as they are sealed.
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query, query_one};
use crate::pg::identity::as_engine;

/// How long, in microseconds, the value before is still used to sign.
pub const ROTATION: i64 = 24 * 3600 * 1_000_000;

/// A secret for the courier.
pub struct Sealed {
    /// The only host, or `*.suffix`, that the secret may be sent to.
    pub host: Option<String>,
    pub value: Vec<u8>,
    /// The value before, while receivers may still know it.
    pub previous: Option<Vec<u8>>,
}

// The value that was valid until now is kept for a while. A user who corrects a value twice in a row loses the first
// one: it was hardly ever used.
const SET: &str = "
    INSERT INTO automation_internal.secret AS s (owner, owner_name, name, host, sealed, created_at)
    VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (owner, name) DO UPDATE
       SET owner_name = excluded.owner_name, host = excluded.host, sealed = excluded.sealed,
           created_at = excluded.created_at, previous = s.sealed, previous_until = $7";

pub fn set(owner: pg_sys::Oid, owner_name: &str, name: &str, host: Option<&str>, sealed: &[u8], now: Micros) {
    as_engine(|| {
        execute(
            SET,
            &[
                owner.into(),
                owner_name.into(),
                name.into(),
                host.into(),
                Arg::bytes(sealed),
                Arg::timestamp(now),
                Arg::timestamp(now + ROTATION),
            ],
        )
    });
}

const DROP: &str = "DELETE FROM automation_internal.secret AS s WHERE s.owner = $1 AND s.name = $2";

/// False if there was none.
pub fn drop(owner: pg_sys::Oid, name: &str) -> bool {
    as_engine(|| execute(DROP, &[owner.into(), name.into()])) == 1
}

const GET: &str = "
    SELECT s.host, s.sealed, CASE WHEN s.previous_until > $3 THEN s.previous END
      FROM automation_internal.secret AS s
     WHERE s.owner = $1 AND s.name = $2";

/// For the courier alone.
pub fn get(owner: pg_sys::Oid, name: &str, now: Micros) -> Option<Sealed> {
    as_engine(|| {
        query_one(GET, &[owner.into(), name.into(), Arg::timestamp(now)], |row| {
            Some(Sealed { host: row.text(1), value: row.bytes(2)?, previous: row.bytes(3) })
        })
    })
    .flatten()
}

const NAMES: &str = "
    SELECT s.name, s.host
      FROM automation_internal.secret AS s
     WHERE s.owner = $1
     ORDER BY s.name";

/// The names of a role's secrets, and where each may be sent.
pub fn names(owner: pg_sys::Oid) -> Vec<(String, Option<String>)> {
    let found = as_engine(|| query(NAMES, &[owner.into()], |row| Some((row.text(1)?, row.text(2)))));
    found.into_iter().flatten().collect()
}

const FORGET: &str = "
    DELETE FROM automation_internal.secret AS s
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS a WHERE a.oid = s.owner)";

const FORGET_PREVIOUS: &str = "
    UPDATE automation_internal.secret AS s
       SET previous = NULL, previous_until = NULL
     WHERE s.previous_until <= $1";

/// Forgets the secrets of roles that are gone, and values that were replaced long ago.
pub fn prune(now: Micros) {
    as_engine(|| {
        execute(FORGET, &[]);
        execute(FORGET_PREVIOUS, &[Arg::timestamp(now)]);
    });
}
