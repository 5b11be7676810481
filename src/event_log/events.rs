//! The event log: appending to it and reading it back.
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use automation_core::ids::{EventId, RunId};
use automation_core::order::{Order, Start};
use automation_core::topic::engine;
use pgrx::pg_sys;

use super::pending::{self, Pending};
use crate::pg::append::Texts;
use crate::pg::clock::{self, Micros};
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity;
use crate::pg::read_only;
use crate::pg::server_text;
use crate::pg::snapshot::assigned_transaction;
use crate::pg::statement_alone;
use crate::provenance::{self, Cause};
use crate::signal::at_commit;

/// The kind of an event, as the `op` column has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Created,
    Updated,
    Deleted,
    Truncated,
    /// A custom event.
    Emitted,
    /// An order to start a run, or the tick of a schedule, in `next`.
    Started,
    /// A signal: its name is the kind, its key the entity.
    Signalled,
    /// A run that another waits for has ended: its number is the entity.
    Ended,
    /// An order to move runs that wait, in `next`.
    Moved,
}

impl Op {
    pub fn code(self) -> u8 {
        match self {
            Op::Created => b'c',
            Op::Updated => b'u',
            Op::Deleted => b'd',
            Op::Truncated => b't',
            Op::Emitted => b'e',
            Op::Started => b's',
            Op::Signalled => b'g',
            Op::Ended => b'r',
            Op::Moved => b'm',
        }
    }

    pub fn from_code(code: i8) -> Option<Self> {
        Some(match code as u8 {
            b'c' => Op::Created,
            b'u' => Op::Updated,
            b'd' => Op::Deleted,
            b't' => Op::Truncated,
            b'e' => Op::Emitted,
            b's' => Op::Started,
            b'g' => Op::Signalled,
            b'r' => Op::Ended,
            b'm' => Op::Moved,
            _ => return None,
        })
    }

    /// Last segment of the topic of an entity's change.
    pub fn verb(self) -> &'static str {
        match self {
            Op::Created => "created",
            Op::Updated => "updated",
            Op::Deleted => "deleted",
            Op::Truncated => "truncated",
            Op::Emitted => "emitted",
            Op::Started => "started",
            Op::Signalled => "signalled",
            Op::Ended => "ended",
            Op::Moved => "moved",
        }
    }

    /// Is the event a change of an entity's state?
    pub fn is_change(self) -> bool {
        matches!(self, Op::Created | Op::Updated | Op::Deleted | Op::Truncated)
    }
}

/// An event to be written.
#[derive(Default)]
pub struct NewEvent<'a> {
    pub op: Option<Op>,
    pub relation: Option<pg_sys::Oid>,
    pub truncated: bool,
    /// The fields that are bytes come from a table, in the database's encoding. Otherwise they are UTF-8, as texts are.
    pub from_table: bool,
    pub kind: Option<&'a str>,
    pub entity_id: Option<&'a [u8]>,
    pub topic: Option<&'a str>,
    pub tenant: Option<&'a [u8]>,
    pub dedup_key: Option<&'a str>,
    pub changed: Option<pg_sys::Datum>,
    pub prev: Option<&'a [u8]>,
    pub next: Option<&'a [u8]>,
    pub payload: Option<&'a [u8]>,
    /// The cause of the event, if it is not the run or session that this process works for.
    pub cause: Option<Cause>,
    /// When it happens, if not now. Never the time of a clock that a session has set for itself: events are found
    /// by the day on the wall clock.
    pub at: Option<Micros>,
    /// Whose event it is, if not the writer's.
    pub role: Option<pg_sys::Oid>,
}

thread_local!(static PENDING: RefCell<Pending> = const { RefCell::new(Pending::new()) });

/// The number of the command under way, for events that are inserted together.
pub fn current_command() -> pg_sys::CommandId {
    // SAFETY: reads the current command's number.
    #[allow(unsafe_code)]
    unsafe {
        pg_sys::GetCurrentCommandId(true)
    }
}

/// Appends one event to the log, behind the events that wait to be inserted, and arms the wake-up for this
/// transaction's commit. Returns its id.
pub fn append_event(event: &NewEvent<'_>) -> EventId {
    // The row is inserted without a statement that Postgres would refuse.
    read_only::refuse_insert();
    insert_buffered();
    buffer_event(event, current_command());
    insert_buffered();
    EventId(pending::last_id())
}

/// Appends an order to move runs that wait. It is carried out by the router after this transaction's commit.
pub fn append_move(order: &Order) {
    append_event(&NewEvent { op: Some(Op::Moved), next: Some(order.encode().as_bytes()), ..Default::default() });
}

/// Notes an event that a command has caused. It is inserted when the outermost statement ends, or when enough wait, in
/// the order of commands: a trigger may change a row before the statement that fired it has come to that row.
pub fn buffer_event(event: &NewEvent<'_>, command: pg_sys::CommandId) {
    // Assigns the transaction its id if it has none; must come before the event's id is drawn, since the router relies
    // on ids of transactions younger than a snapshot being younger than that snapshot.
    let xid = assigned_transaction();
    let cause = event.cause.clone().unwrap_or_else(provenance::cause);
    let at = event.at.unwrap_or_else(clock::now);
    let texts = [
        event.kind.map(str::as_bytes),
        event.entity_id,
        event.topic.map(str::as_bytes),
        event.tenant,
        cause.actor.as_deref().map(str::as_bytes),
        event.dedup_key.map(str::as_bytes),
        event.prev,
        event.next,
        event.payload,
    ];
    let texts = match server_text::is_utf8() {
        true => Texts::with_room_for(&texts),
        false => {
            let converted = converted(event, texts);
            Texts::with_room_for(&converted.each_ref().map(|text| text.as_deref()))
        }
    };
    let [kind, entity_id, topic, tenant, actor, dedup_key, prev, next, payload] = texts.datums;
    let row = [
        // drawn when it is inserted
        Some(pg_sys::Datum::from(0i64)),
        Some(pg_sys::Datum::from(xid)),
        Some(pg_sys::Datum::from(at)),
        // set in the first of each group when it is inserted
        Some(pg_sys::Datum::from(0i32)),
        cause.run.map(|run| pg_sys::Datum::from(run.0)),
        event.relation.map(pg_sys::Datum::from),
        Some(pg_sys::Datum::from(event.role.unwrap_or(cause.role))),
        Some(pg_sys::Datum::from(cause.depth)),
        Some(pg_sys::Datum::from(event.op.unwrap_or(Op::Emitted).code() as i8)),
        Some(pg_sys::Datum::from(event.truncated)),
        kind,
        entity_id,
        topic,
        tenant,
        actor,
        dedup_key,
        event.changed,
        prev,
        next,
        payload,
    ];
    // First, because it also sees to it that we hear of rollbacks.
    at_commit::conductor_at_commit();
    // If the table is gone, the extension is being dropped under us, and no conductor is left to tell.
    PENDING.with(|pending| pending.borrow_mut().add("event", at, command, row));
}

/// The texts of an event, from its kind to its payload, in the database's encoding.
fn converted<'a>(event: &NewEvent<'_>, texts: [Option<&'a [u8]>; 9]) -> [Option<Cow<'a, [u8]>>; 9] {
    let is_bytes = [false, true, false, true, false, false, true, true, true];
    let mut places = is_bytes.into_iter().enumerate();
    // Of an order to start or to move runs no view shows `next`.
    let is_order = matches!(event.op, Some(Op::Started | Op::Moved));
    const NEXT: usize = 7;
    texts.map(|text| {
        let (place, is_bytes) = places.next().unwrap_or_default();
        text.map(|text| match (is_bytes && event.from_table, std::str::from_utf8(text)) {
            (false, Ok(order)) if place == NEXT && is_order => server_text::write_json(order),
            (false, Ok(utf8)) => server_text::write(utf8),
            (true, _) | (false, Err(_)) => text.into(),
        })
    })
}

/// Do events wait?
pub fn any_buffered() -> bool {
    PENDING.with(|pending| pending.try_borrow().is_ok_and(|pending| !pending.is_empty()))
}

/// Inserts the events that wait.
pub fn insert_buffered() {
    insert_waiting(false);
}

/// Inserts the events that wait, at the end of a statement that no trigger runs.
pub fn insert_at_end_of_statement() {
    insert_waiting(statement_alone::transaction_ends());
}

fn insert_waiting(ends: bool) {
    PENDING.with(|pending| {
        if !pending.borrow().is_empty() {
            pending.borrow_mut().insert_all(ends);
        }
    });
}

/// A subtransaction was rolled back.
pub fn discard_buffered(subtransaction: pg_sys::SubTransactionId) {
    settle(|pending| pending.discard(subtransaction));
}

/// A subtransaction has ended well.
pub fn hand_over_buffered(subtransaction: pg_sys::SubTransactionId, parent: pg_sys::SubTransactionId) {
    settle(|pending| pending.hand_over(subtransaction, parent));
}

/// The transaction is over.
pub fn forget_buffered() {
    settle(Pending::forget);
}

/// A session that is terminated while it inserts ends there: its rollback finds the waiting events borrowed, and does
/// not need them any more. A panic instead would end the rollback before it has released the locks.
fn settle(work: impl FnOnce(&mut Pending)) {
    PENDING.with(|pending| {
        if let Ok(mut pending) = pending.try_borrow_mut() {
            work(&mut pending);
        }
    });
}

/// An event as it was read back.
#[derive(Clone, Debug)]
pub struct Event {
    pub id: EventId,
    pub xid: u64,
    pub occurred_at: Micros,
    pub cause_run: Option<RunId>,
    pub relation: Option<pg_sys::Oid>,
    pub role: pg_sys::Oid,
    pub depth: i16,
    pub op: Op,
    pub truncated: bool,
    pub kind: Option<String>,
    pub entity_id: Option<String>,
    pub topic: Option<String>,
    pub tenant: Option<String>,
    pub actor: Option<String>,
    pub changed: Vec<String>,
    pub prev: Option<String>,
    pub next: Option<String>,
    pub payload: Option<String>,
    /// JSON: the count of the trigger's window. Not part of the log.
    pub window: Option<String>,
}

impl Event {
    /// Reads the eighteen columns from id to payload, in the order of this struct; `first` is the number of the first.
    pub fn read(row: &Row<'_>, first: usize) -> Option<Event> {
        Self::read_columns(row, |place| first + place)
    }

    /// Reads a row of the log itself, which has two columns more: group_span and dedup_key.
    pub fn read_logged(row: &Row<'_>) -> Option<Event> {
        Self::read_columns(row, |place| match place {
            0..=2 => place + 1,
            3..=13 => place + 2,
            _ => place + 3,
        })
    }

    fn read_columns(row: &Row<'_>, column: impl Fn(usize) -> usize) -> Option<Event> {
        let id = EventId(row.int8(column(0))?);
        let op = row.char(column(7)).and_then(Op::from_code)?;
        let prev = row.text(column(15));
        let changed = match (op, &prev, row.is_null(column(14))) {
            (Op::Updated, Some(prev), true) => names_in(prev),
            _ => row.text_array(column(14)),
        };
        Some(Event {
            id,
            xid: row.int8(column(1)).unwrap_or_default() as u64,
            occurred_at: row.int8(column(2)).unwrap_or_default(),
            cause_run: row.int8(column(3)).map(RunId),
            relation: row.oid(column(4)),
            role: row.oid(column(5)).unwrap_or(pg_sys::InvalidOid),
            depth: row.int2(column(6)).unwrap_or_default(),
            op,
            truncated: row.bool(column(8)).unwrap_or_default(),
            kind: row.text(column(9)),
            entity_id: row.text(column(10)),
            topic: row.text(column(11)),
            tenant: row.text(column(12)),
            actor: row.text(column(13)),
            changed,
            prev,
            next: row.text(column(16)),
            payload: row.text(column(17)),
            window: None,
        })
    }

    /// The event as a suspended run keeps it.
    pub fn to_json(&self) -> String {
        serde_json::json!({
            "id": self.id,
            "xid": self.xid,
            "occurred_at": self.occurred_at,
            "cause_run": self.cause_run,
            "relation": self.relation.map(pg_sys::Oid::to_u32),
            "role": self.role.to_u32(),
            "depth": self.depth,
            "op": self.op.code(),
            "truncated": self.truncated,
            "kind": self.kind,
            "entity_id": self.entity_id,
            "topic": self.topic,
            "tenant": self.tenant,
            "actor": self.actor,
            "changed": self.changed,
            "prev": self.prev,
            "next": self.next,
            "payload": self.payload,
            "window": self.window,
        })
        .to_string()
    }

    /// Reads the text that `to_json` wrote.
    pub fn from_json(text: &str) -> Option<Event> {
        let json: serde_json::Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| json[name].as_str().map(str::to_owned);
        let oid = |name: &str| json[name].as_u64().map(|oid| pg_sys::Oid::from(oid as u32));
        let changed = json["changed"].as_array().into_iter().flatten();
        Some(Event {
            id: EventId(json["id"].as_i64()?),
            xid: json["xid"].as_u64()?,
            occurred_at: json["occurred_at"].as_i64()?,
            cause_run: json["cause_run"].as_i64().map(RunId),
            relation: oid("relation"),
            role: oid("role")?,
            depth: json["depth"].as_i64()? as i16,
            op: Op::from_code(json["op"].as_i64()? as i8)?,
            truncated: json["truncated"].as_bool()?,
            kind: text("kind"),
            entity_id: text("entity_id"),
            topic: text("topic"),
            tenant: text("tenant"),
            actor: text("actor"),
            changed: changed.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            prev: text("prev"),
            next: text("next"),
            payload: text("payload"),
            window: text("window"),
        })
    }

    /// Is this one of the engine's own events?
    pub fn is_engines(&self) -> bool {
        self.op == Op::Emitted && self.topic.as_deref().is_some_and(engine::is_engines)
    }

    /// The order that the event is, if it is one.
    pub fn order(&self) -> Option<Order> {
        let is_order = matches!(self.op, Op::Started | Op::Moved | Op::Ended);
        Order::decode(self.next.as_deref().filter(|_| is_order)?)
    }

    /// The order to start a run that the event is, if it is one.
    pub fn start(&self) -> Option<Box<Start>> {
        match self.order()? {
            Order::Start(start) => Some(start),
            Order::Tick { .. }
            | Order::Thaw { .. }
            | Order::Look { .. }
            | Order::Bulk { .. }
            | Order::Turn { .. }
            | Order::Skip { .. }
            | Order::Freed { .. } => None,
        }
    }

    /// The event that an order to start a run brings along, if it does.
    pub fn ordered(&self) -> Option<Event> {
        let event = Event::from_json(self.start()?.event.as_deref()?)?;
        // An event that was made up for the start has no id of its own and takes that of its order.
        Some(if event.id == EventId(0) { Event { id: self.id, xid: self.xid, ..event } } else { event })
    }

    /// The event as it is heard on a derived topic; None for its own.
    pub fn on_topic(self: &Rc<Event>, topic: Option<&str>) -> Rc<Event> {
        match topic {
            Some(topic) => Rc::new(Event { topic: Some(topic.to_owned()), ..Event::clone(self) }),
            None => self.clone(),
        }
    }

    /// The topic under which triggers see it.
    pub fn topic(&self) -> String {
        match (&self.topic, &self.kind) {
            (Some(topic), _) => topic.clone(),
            (None, Some(kind)) => format!("{kind}.{}", self.op.verb()),
            (None, None) => String::new(),
        }
    }
}

/// The names of an object's fields, sorted.
fn names_in(object: &str) -> Vec<String> {
    type Fields<'a> = std::collections::BTreeMap<std::borrow::Cow<'a, str>, serde::de::IgnoredAny>;
    let fields: Fields<'_> = serde_json::from_str(object).unwrap_or_default();
    fields.into_keys().map(std::borrow::Cow::into_owned).collect()
}

/// Puts an event into the log once more, because the first time it could not be routed. Returns the new id.
pub fn append_again(event: &Event) -> EventId {
    fn bytes(text: &Option<String>) -> Option<&[u8]> {
        text.as_deref().map(str::as_bytes)
    }
    let changed = (!event.changed.is_empty()).then(|| Arg::texts(&event.changed).datum()).flatten();
    append_event(&NewEvent {
        op: Some(event.op),
        relation: event.relation,
        truncated: event.truncated,
        kind: event.kind.as_deref(),
        entity_id: bytes(&event.entity_id),
        topic: event.topic.as_deref(),
        tenant: bytes(&event.tenant),
        dedup_key: None,
        changed,
        prev: bytes(&event.prev),
        next: bytes(&event.next),
        payload: bytes(&event.payload),
        // The event stays that of the role that emitted it, whichever role tries again.
        role: Some(event.role),
        ..Default::default()
    })
}

/// One event by its id, without a check of the caller's rights.
pub fn one(id: EventId) -> Option<Event> {
    identity::as_engine(|| query_one(ONE, &[id.0.into()], |row| Event::read(row, 1)).flatten())
}

const ONE: &str = "
    SELECT e.id, e.xid, e.occurred_at, e.cause_run, e.relation, e.role, e.depth, e.op, e.truncated, e.kind,
           e.entity_id, e.topic, e.tenant, e.actor, e.changed, e.prev, e.next, e.payload
      FROM automation_internal.event AS e
     WHERE e.id = $1";

pub const MANY: &str = "
    SELECT e.id, e.xid, e.occurred_at, e.cause_run, e.relation, e.role, e.depth, e.op, e.truncated, e.kind,
           e.entity_id, e.topic, e.tenant, e.actor, e.changed, e.prev, e.next, e.payload
      FROM automation_internal.event AS e
     WHERE e.id = ANY ($1)
       AND e.occurred_at >= $2
       AND e.occurred_at <= $3";

/// Events by id; the times, between which all of them lie, spare the partitions that cannot hold them.
pub fn many(ids: &[EventId], from: Micros, to: Micros) -> Vec<Event> {
    let numbers: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let args = [Arg::int8s(&numbers), Arg::timestamp(from), Arg::timestamp(to)];
    identity::as_engine(|| query(MANY, &args, |row| Event::read(row, 1))).into_iter().flatten().collect()
}

const CLAIM_DEDUP: &str = "
    INSERT INTO automation_internal.event_dedup AS d (role, tenant, topic, dedup_key, event_id)
    VALUES ($4, COALESCE($1, ''), $2, $3, 0)
        ON CONFLICT (role, tenant, topic, dedup_key) DO UPDATE SET event_id = d.event_id
 RETURNING d.event_id";
const NAME_DEDUP: &str = "
    UPDATE automation_internal.event_dedup AS d
       SET event_id = $4
     WHERE d.role = $5 AND d.tenant = COALESCE($1, '') AND d.topic = $2 AND d.dedup_key = $3";

/// Claims a dedup key of the current user's: 0 if it was free, else the id of the event that has it.
pub fn claim_dedup(tenant: Option<&str>, topic: &str, key: &str) -> EventId {
    let args: [Arg; 4] = [tenant.into(), topic.into(), key.into(), identity::current_user().into()];
    identity::as_engine(|| query_one(CLAIM_DEDUP, &args, |row| row.int8(1).map(EventId))).flatten().unwrap_or_default()
}

const CLAIM_START: &str = "
    INSERT INTO automation_internal.event_dedup AS d (role, tenant, topic, dedup_key, event_id, created_at)
    VALUES ($6, COALESCE($1, ''), $2, pg_catalog.md5($3), 0, $4)
        ON CONFLICT (role, tenant, topic, dedup_key) DO UPDATE
       SET event_id = CASE WHEN d.created_at > $5 THEN d.event_id ELSE 0 END,
           created_at = CASE WHEN d.created_at > $5 THEN d.created_at ELSE excluded.created_at END
 RETURNING d.event_id, d.dedup_key";

/// Claims the fingerprint of something for a time: 0 and the key if it was free, else the id of the event that has it.
pub fn claim_fingerprint(tenant: Option<&str>, topic: &str, of: &str, now: Micros, ttl: Micros) -> (EventId, String) {
    let args: [Arg; 6] = [
        tenant.into(),
        topic.into(),
        of.into(),
        Arg::timestamp(now),
        Arg::timestamp(now - ttl),
        identity::current_user().into(),
    ];
    let read = |row: &Row<'_>| row.int8(1).map(EventId).zip(row.text(2));
    identity::as_engine(|| query_one(CLAIM_START, &args, read)).flatten().unwrap_or_default()
}

/// Says which event a claimed key belongs to.
pub fn name_dedup(tenant: Option<&str>, topic: &str, key: &str, event: EventId) {
    let args: [Arg; 5] = [tenant.into(), topic.into(), key.into(), event.0.into(), identity::current_user().into()];
    identity::as_engine(|| execute(NAME_DEDUP, &args));
}
