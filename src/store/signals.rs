//! Signals: kept until a run takes them.
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::as_engine;

const INSERT: &str = "
    INSERT INTO automation_internal.signal AS s (name, key, payload, sender, created_at, tenant)
    VALUES ($1, $2, $3, $4, $5, $6)
 RETURNING s.id";

/// A signal to be kept.
pub struct NewSignal<'a> {
    pub name: &'a str,
    pub key: Option<&'a str>,
    pub tenant: Option<&'a str>,
    pub payload: &'a str,
    pub sender: pg_sys::Oid,
}

pub fn insert(signal: &NewSignal<'_>, now: Micros) -> i64 {
    let args = [
        signal.name.into(),
        signal.key.into(),
        Arg::json(signal.payload),
        signal.sender.into(),
        Arg::timestamp(now),
        signal.tenant.into(),
    ];
    as_engine(|| query_one(INSERT, &args, |row| row.int8(1))).flatten().unwrap_or_default()
}

// A key, or a tenant, that either side leaves open fits any. The sender must have the rights of the run's owner.
const TAKE: &str = "
    DELETE FROM automation_internal.signal AS s
     WHERE s.id = (SELECT k.id
                     FROM automation_internal.signal AS k
                    WHERE k.name = $1
                      AND (k.key = $2 OR k.key IS NULL OR $2 IS NULL)
                      AND (k.tenant = $4 OR k.tenant IS NULL OR $4 IS NULL)
                      AND EXISTS (SELECT FROM pg_catalog.pg_roles AS r
                                   WHERE r.oid = k.sender AND pg_catalog.pg_has_role(r.oid, $3, 'USAGE'))
                    ORDER BY k.id
                    LIMIT 1
                      FOR UPDATE SKIP LOCKED)
 RETURNING s.payload";

const IS_THERE: &str = "
    SELECT EXISTS (SELECT
                     FROM automation_internal.signal AS k
                    WHERE k.name = $1
                      AND (k.key = $2 OR k.key IS NULL OR $2 IS NULL)
                      AND (k.tenant = $4 OR k.tenant IS NULL OR $4 IS NULL)
                      AND EXISTS (SELECT FROM pg_catalog.pg_roles AS r
                                   WHERE r.oid = k.sender AND pg_catalog.pg_has_role(r.oid, $3, 'USAGE')))";

/// The result of an attempt to take a signal.
pub enum Taken {
    Payload(String),
    /// There is one, but another transaction is taking it: it comes back if that one rolls back.
    InOtherHands,
    Nothing,
}

/// Takes the oldest signal that a run of this owner and tenant may have.
pub fn take(name: &str, key: Option<&str>, owner: pg_sys::Oid, tenant: Option<&str>) -> Taken {
    let args = [name.into(), key.into(), owner.into(), tenant.into()];
    as_engine(|| match query_one(TAKE, &args, |row| row.text(1)).flatten() {
        Some(payload) => Taken::Payload(payload),
        None if is_there(name, key, owner, tenant) => Taken::InOtherHands,
        None => Taken::Nothing,
    })
}

/// Is there a signal that a run of this owner and tenant may have?
pub fn is_there(name: &str, key: Option<&str>, owner: pg_sys::Oid, tenant: Option<&str>) -> bool {
    let args = [name.into(), key.into(), owner.into(), tenant.into()];
    as_engine(|| query_one(IS_THERE, &args, |row| row.bool(1))).flatten().unwrap_or_default()
}

const PRUNE: &str = "
    DELETE FROM automation_internal.signal AS s
     WHERE s.created_at < $1";

/// Forgets signals that no run took.
pub fn prune(before: Micros) -> u64 {
    as_engine(|| execute(PRUNE, &[Arg::timestamp(before)]))
}
