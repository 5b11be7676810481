//! The courier's statements about messages: claim those that are due, and record their outcomes. Every record is fenced
//! by the number of the attempt, so that an answer which comes too late changes nothing.
use automation_core::ids::AutomationId;
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;

/// A message that is due, as far as it must be known to choose among them.
pub struct Due {
    pub id: i64,
    /// The receiver of one owner, by the host in the address.
    pub receiver: String,
    pub automation_id: i64,
}

// The owner and the part of the address between its second and its third slash. Not how hosts are judged, only how
// those that hang are told from the others.
const DUE: &str = "
    SELECT d.id, d.receiver, d.automation_id
      FROM (SELECT o.id, o.automation_id::bigint AS automation_id, o.next_at,
                   o.owner::text || ' ' ||
                   pg_catalog.lower(pg_catalog.split_part(pg_catalog.split_part(o.url, '/', 3), '?', 1)) AS receiver
              FROM automation_internal.outbox AS o
             WHERE o.next_at <= $1 AND o.state = 'queued') AS d
     WHERE d.receiver <> ALL ($2) AND d.automation_id <> ALL ($3)
     ORDER BY d.next_at, d.id
     LIMIT $4";

/// Messages that are due, the longest waiting first, but for those whose receiver or automation has enough under way.
pub fn due(now: Micros, full_receivers: &[String], full_automations: &[i64], limit: i64) -> Vec<Due> {
    let args = [Arg::timestamp(now), Arg::texts(full_receivers), Arg::int8s(full_automations), limit.into()];
    let found = as_engine(|| {
        query(DUE, &args, |row| Some(Due { id: row.int8(1)?, receiver: row.text(2)?, automation_id: row.int8(3)? }))
    });
    found.into_iter().flatten().collect()
}

/// A message that the courier has claimed.
#[derive(Clone)]
pub struct Message {
    pub id: i64,
    pub message_id: String,
    pub owner: pg_sys::Oid,
    pub automation_id: AutomationId,
    pub endpoint: Option<String>,
    pub url: String,
    pub method: String,
    pub headers: Option<String>,
    pub body: Option<String>,
    pub secret: Option<String>,
    pub at_most_once: bool,
    pub timeout_ms: i32,
    pub max_attempts: i32,
    pub backoff: Option<String>,
    /// From 1; this one.
    pub attempt: i32,
    /// Why nothing is sent to its endpoint any more.
    pub disabled: Option<String>,
    pub automation: Option<String>,
}

fn read(row: &Row<'_>) -> Option<Message> {
    Some(Message {
        id: row.int8(1)?,
        message_id: row.text(2)?,
        owner: row.oid(3)?,
        automation_id: AutomationId(row.int4(4)?),
        endpoint: row.text(5),
        url: row.text(6)?,
        method: row.text(7)?,
        headers: row.text(8),
        body: row.text(9),
        secret: row.text(10),
        at_most_once: row.text(11)? == "at_most_once",
        timeout_ms: row.int4(12)?,
        max_attempts: row.int4(13)?,
        backoff: row.text(14),
        attempt: row.int4(15)?,
        disabled: row.text(16),
        automation: row.text(17),
    })
}

const CLAIM: &str = "
    WITH chosen AS MATERIALIZED (
        SELECT o.id
          FROM automation_internal.outbox AS o
         WHERE o.id = ANY ($1) AND o.state = 'queued'
         ORDER BY o.id
           FOR UPDATE SKIP LOCKED)
    UPDATE automation_internal.outbox AS o
       SET state = 'sending', attempt = o.attempt + 1, boot = $2
      FROM chosen AS c
     WHERE o.id = c.id
 RETURNING o.id, o.message_id::text, o.owner, o.automation_id, o.endpoint, o.url, o.method, o.headers, o.body,
           -- one that waits for a secret finds it when its endpoint has been given one
           COALESCE(o.secret, (SELECT e.secret FROM automation_internal.endpoint AS e
                                WHERE e.owner = o.owner AND e.name = o.endpoint)),
           o.delivery, o.timeout_ms, o.max_attempts, o.backoff, o.attempt,
           (SELECT e.disabled_reason FROM automation_internal.endpoint AS e
             WHERE e.owner = o.owner AND e.name = o.endpoint),
           (SELECT a.name FROM automation_internal.automation AS a WHERE a.id = o.automation_id)";

/// Claims messages. To be committed before the first byte of them leaves.
pub fn claim(ids: &[i64], boot: i64) -> Vec<Message> {
    as_engine(|| query(CLAIM, &[Arg::int8s(ids), boot.into()], read)).into_iter().flatten().collect()
}

const INTERRUPTED: &str = "
    SELECT o.id, o.message_id::text, o.owner, o.automation_id, o.endpoint, o.url, o.method, o.headers, NULL::text, o.secret,
           o.delivery, o.timeout_ms, o.max_attempts, o.backoff, o.attempt, NULL::text, NULL::text
      FROM automation_internal.outbox AS o
     WHERE o.state = 'sending'
     ORDER BY o.id";

/// The messages that a courier that is gone was sending.
pub fn interrupted() -> Vec<Message> {
    as_engine(|| query(INTERRUPTED, &[], read)).into_iter().flatten().collect()
}

const NEXT: &str = "SELECT pg_catalog.min(o.next_at) FROM automation_internal.outbox AS o WHERE o.state = 'queued'";

/// When the next message is due; None if nothing is queued.
pub fn next() -> Option<Micros> {
    as_engine(|| query_one(NEXT, &[], |row| row.int8(1))).flatten()
}

const NEXT_AFTER: &str = "
    SELECT pg_catalog.min(o.next_at)
      FROM automation_internal.outbox AS o
     WHERE o.next_at > $1 AND o.state = 'queued'";

/// When the next message is due of those that are not due yet.
pub fn next_after(now: Micros) -> Option<Micros> {
    as_engine(|| query_one(NEXT_AFTER, &[Arg::timestamp(now)], |row| row.int8(1))).flatten()
}

const ANY: &str = "SELECT EXISTS (SELECT FROM automation_internal.outbox)";

/// Is a message in the outbox?
pub fn any() -> bool {
    as_engine(|| query_one(ANY, &[], |row| row.bool(1))).flatten().unwrap_or(false)
}

/// How an attempt went, for people.
pub struct Account<'a> {
    pub id: i64,
    pub attempt: i32,
    pub started_at: Micros,
    pub ended_at: Micros,
    pub status: Option<i32>,
    pub error: Option<&'a str>,
    pub body: Option<&'a str>,
}

impl Account<'_> {
    fn duration_ms(&self) -> i32 {
        ((self.ended_at - self.started_at) / 1000).clamp(0, i64::from(i32::MAX)) as i32
    }
}

const ATTEMPT: &str = "
    INSERT INTO automation_internal.delivery_attempt (outbox_id, attempt, started_at, ended_at, status, error)
    VALUES ($1, $2, $3, $4, $5, $6)";

fn record_attempt(account: &Account<'_>) {
    execute(
        ATTEMPT,
        &[
            account.id.into(),
            account.attempt.into(),
            Arg::timestamp(account.started_at),
            Arg::timestamp(account.ended_at),
            account.status.into(),
            account.error.into(),
        ],
    );
}

const AGAIN: &str = "
    UPDATE automation_internal.outbox AS o
       SET state = 'queued', next_at = $3, last_status = $4, last_error = $5
     WHERE o.id = $1 AND o.attempt = $2 AND o.state = 'sending'";

/// The message waits until `at` and is sent again. False if it is not ours any more.
pub fn again(account: &Account<'_>, at: Micros) -> bool {
    as_engine(|| {
        let args = [
            account.id.into(),
            account.attempt.into(),
            Arg::timestamp(at),
            account.status.into(),
            account.error.into(),
        ];
        let ours = execute(AGAIN, &args) == 1;
        if ours {
            record_attempt(account);
        }
        ours
    })
}

const DEFER: &str = "
    UPDATE automation_internal.outbox AS o
       SET state = 'queued', attempt = o.attempt - 1, next_at = $3, last_error = $4
     WHERE o.id = $1 AND o.attempt = $2 AND o.state = 'sending'";

/// The message waits until `at`, and the attempt does not count: nothing was sent.
pub fn defer(account: &Account<'_>, at: Micros) -> bool {
    let args = [account.id.into(), account.attempt.into(), Arg::timestamp(at), account.error.into()];
    as_engine(|| execute(DEFER, &args)) == 1
}

const END: &str = "
    WITH gone AS (
        DELETE FROM automation_internal.outbox AS o
         WHERE o.id = $1 AND o.attempt = $2 AND o.state = 'sending'
     RETURNING o.*)
    INSERT INTO automation_internal.delivery (id, message_id, owner, automation_id, run_id, step, event_id, tenant, endpoint,
                                              url, method, headers, body, secret, delivery, timeout_ms, max_attempts,
                                              backoff, created_at, state, attempt, last_status, last_error, ended_at,
                                              response_status, response_body, duration_ms)
    SELECT g.id, g.message_id, g.owner, g.automation_id, g.run_id, g.step, g.event_id, g.tenant, g.endpoint, g.url,
           g.method, g.headers, g.body, g.secret, g.delivery, g.timeout_ms, g.max_attempts, g.backoff, g.created_at,
           $3, g.attempt, COALESCE($4, g.last_status), $5, $6, $4, $7, $8
      FROM gone AS g";

const LETTER: &str = "
    INSERT INTO automation_internal.dead_letter (at, run_id, event_id, automation_id, owner, reason, error, delivery)
    SELECT $3, o.run_id, o.event_id, o.automation_id, o.owner, $4,
           pg_catalog.json_build_object('message', $5::text, 'status', $6::integer), pg_catalog.row_to_json(o.*)
      FROM automation_internal.outbox AS o
     WHERE o.id = $1 AND o.attempt = $2 AND o.state = 'sending'";

/// The message has ended as `state`. False if it is not ours any more.
pub fn end(account: &Account<'_>, state: &str, letter: Option<&str>) -> bool {
    as_engine(|| {
        let (id, attempt) = (Arg::from(account.id), Arg::from(account.attempt));
        if let Some(reason) = letter {
            let (at, status) = (Arg::timestamp(account.ended_at), account.status.into());
            execute(LETTER, &[id, attempt, at, reason.into(), account.error.into(), status]);
        }
        let args = [
            id,
            attempt,
            state.into(),
            account.status.into(),
            account.error.into(),
            Arg::timestamp(account.ended_at),
            account.body.into(),
            account.duration_ms().into(),
        ];
        let ours = execute(END, &args) == 1;
        if ours {
            record_attempt(account);
        }
        ours
    })
}
