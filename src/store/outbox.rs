//! The outbox: messages that wait to be delivered.
use automation_core::ids::{AutomationId, EventId, RunId};
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::as_engine;

/// A message that a step orders.
pub struct NewMessage<'a> {
    pub owner: pg_sys::Oid,
    pub automation_id: AutomationId,
    pub run_id: RunId,
    pub step: &'a str,
    pub event_id: Option<EventId>,
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

/// The identifiers of a message.
pub struct Queued {
    pub id: i64,
    /// Never changes, however often it is sent.
    pub message_id: String,
}

// The message's id is random and not drawn from a sequence: after a restore to an earlier time the same number may
// stand for another message, and a receiver would take that for one it has had.
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
                message.automation_id.0.into(),
                message.run_id.0.into(),
                message.step.into(),
                message.event_id.map(|id| id.0).into(),
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
    crate::signal::at_commit::courier_at_commit();
    queued.flatten()
}

const FIND: &str = "
    SELECT o.owner, o.state
      FROM automation_internal.outbox AS o
     WHERE o.id = $1
 UNION ALL
    SELECT d.owner, d.state
      FROM automation_internal.delivery AS d
     WHERE d.id = $1";

/// (owner, state) of a message, whether it is on its way or has ended.
pub fn find(id: i64) -> Option<(pg_sys::Oid, String)> {
    as_engine(|| query_one(FIND, &[id.into()], |row| Some((row.oid(1)?, row.text(2)?)))).flatten()
}

// A message that is sent again goes to the present address of its endpoint: a changed address may be why it is sent
// again.
macro_rules! queue {
    ($message:literal, $which:literal) => {
        concat!(
            "INSERT INTO automation_internal.outbox (id, message_id, owner, automation_id, run_id, step, event_id, tenant,
                                                     endpoint, url, method, headers, body, secret, delivery, timeout_ms,
                                                     max_attempts, backoff, created_at, next_at)
             SELECT pg_catalog.nextval('automation_internal.outbox_id_seq'), d.message_id, d.owner, d.automation_id,
                    d.run_id, d.step, d.event_id, d.tenant, d.endpoint, COALESCE(e.url, d.url), d.method, d.headers,
                    d.body, d.secret, d.delivery, d.timeout_ms, d.max_attempts, d.backoff, $2, $2
               FROM ",
            $message,
            " LEFT JOIN automation_internal.endpoint AS e ON e.owner = d.owner AND e.name = d.endpoint
              WHERE ",
            $which,
            " RETURNING id"
        )
    };
}
const QUEUE_AGAIN: &str = queue!("automation_internal.delivery AS d", "d.id = $1");
const QUEUE_LETTER: &str = queue!(
    "automation_internal.dead_letter AS l
     CROSS JOIN pg_catalog.json_populate_record(NULL::automation_internal.outbox, l.delivery) AS d",
    "l.id = $1 AND l.delivery IS NOT NULL"
);

// The user who sends a message again has seen its dead letter.
const FORGET_LETTER: &str = "
    DELETE FROM automation_internal.dead_letter AS l
     WHERE l.delivery IS NOT NULL AND (l.delivery ->> 'id')::bigint = $1";

/// Queues a message that has ended once more, under a new id and with the same message id.
pub fn queue_again(id: i64, now: Micros) -> Option<i64> {
    let queued = as_engine(|| {
        execute(FORGET_LETTER, &[id.into()]);
        query_one(QUEUE_AGAIN, &[id.into(), Arg::timestamp(now)], |row| row.int8(1))
    });
    crate::signal::at_commit::courier_at_commit();
    queued.flatten()
}

/// Queues the message of a dead letter once more; None if the letter is about something else.
pub fn queue_letter(letter: i64, now: Micros) -> Option<i64> {
    let queued = as_engine(|| query_one(QUEUE_LETTER, &[letter.into(), Arg::timestamp(now)], |row| row.int8(1)));
    if queued.is_some() {
        crate::signal::at_commit::courier_at_commit();
    }
    queued.flatten()
}

const CANCEL_ORPHANED: &str = "
    WITH gone AS (
        DELETE FROM automation_internal.outbox AS o
         WHERE o.state = 'queued'
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS a WHERE a.oid = o.owner)
     RETURNING o.*)
    INSERT INTO automation_internal.delivery (id, message_id, owner, automation_id, run_id, step, event_id, tenant, endpoint,
                                              url, method, headers, body, secret, delivery, timeout_ms, max_attempts,
                                              backoff, created_at, state, attempt, last_status, last_error, ended_at)
    SELECT g.id, g.message_id, g.owner, g.automation_id, g.run_id, g.step, g.event_id, g.tenant, g.endpoint, g.url,
           g.method, g.headers, g.body, g.secret, g.delivery, g.timeout_ms, g.max_attempts, g.backoff, g.created_at,
           'cancelled', g.attempt, g.last_status, 'the owner was dropped', $1
      FROM gone AS g";

/// Cancels messages of roles that are gone.
pub fn cancel_orphaned(now: Micros) {
    as_engine(|| execute(CANCEL_ORPHANED, &[Arg::timestamp(now)]));
}
