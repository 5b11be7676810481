//! Messages on their way out of the database.
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, query_one};
use crate::pg::identity::as_engine;

/// A message that a step orders.
pub struct NewMessage<'a> {
    pub owner: pg_sys::Oid,
    pub automation_id: i32,
    pub run_id: i64,
    pub step: &'a str,
    pub event_id: Option<i64>,
    pub tenant: Option<&'a str>,
    pub endpoint: Option<&'a str>,
    pub url: &'a str,
    pub method: &'a str,
    /// JSON: an object of texts and of `{"secret": name}`.
    pub headers: Option<&'a str>,
    pub body: Option<&'a str>,
    pub secret: Option<&'a str>,
    pub delivery: &'a str,
    pub timeout_ms: i32,
    pub max_attempts: i32,
    /// JSON, see `automation_core::delivery`.
    pub backoff: Option<&'a str>,
    pub created_at: Micros,
    pub next_at: Micros,
}

/// What a message is known by.
pub struct Queued {
    pub id: i64,
    /// Never changes, however often it is sent.
    pub message_id: String,
}

// The message's id is random and not drawn from a sequence: after a restore to an earlier time the same number may stand
// for another message, and a receiver would take that for one it has had.
const INSERT: &str = "
    INSERT INTO automation_internal.outbox (id, message_id, owner, automation_id, run_id, step, event_id, tenant, endpoint,
                                            url, method, headers, body, secret, delivery, timeout_ms, max_attempts,
                                            backoff, created_at, next_at)
    VALUES (pg_catalog.nextval('automation_internal.outbox_id_seq'), pg_catalog.gen_random_uuid(),
            $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
 RETURNING id, message_id::text";

/// Puts a message into the outbox. It is sent after the commit.
pub fn insert(message: &NewMessage<'_>) -> Option<Queued> {
    let queued = as_engine(|| {
        query_one(
            INSERT,
            &[
                message.owner.into(),
                message.automation_id.into(),
                message.run_id.into(),
                message.step.into(),
                message.event_id.into(),
                message.tenant.into(),
                message.endpoint.into(),
                message.url.into(),
                message.method.into(),
                Arg::maybe_json(message.headers),
                message.body.into(),
                message.secret.into(),
                message.delivery.into(),
                message.timeout_ms.into(),
                message.max_attempts.into(),
                Arg::maybe_json(message.backoff),
                Arg::timestamp(message.created_at),
                Arg::timestamp(message.next_at),
            ],
            |row| Some(Queued { id: row.int8(1)?, message_id: row.text(2)? }),
        )
    });
    crate::workers::wake::courier_at_commit();
    queued.flatten()
}
