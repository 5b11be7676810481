//! The scope in which expressions over an event are evaluated.
use std::borrow::Cow;
use std::cell::OnceCell;

use automation_core::expr::Scope;
use automation_core::value::{Image, Timestamp, Unreadable, Value};

use crate::event_log::events::{Event, Op};
use crate::pg::clock::{Micros, POSTGRES_EPOCH};
use crate::pg::names;

/// Postgres' microseconds as the core's instant (which counts from the Unix epoch).
pub fn instant(at: Micros) -> Timestamp {
    Timestamp(at.saturating_add(POSTGRES_EPOCH))
}

/// The core's instant as Postgres' microseconds.
pub fn micros(at: Timestamp) -> Micros {
    at.0.saturating_sub(POSTGRES_EPOCH)
}

/// The roots that come from the event alone. A value is computed only when an expression asks for it.
pub struct EventScope<'a> {
    event: &'a Event,
    /// The derived topic on which the event is heard, if that is not its own.
    topic: Option<&'a str>,
    now: Timestamp,
    /// The row after the change.
    next: Image<'a>,
    /// The row before the change; of an update only the fields that changed.
    prev: Image<'a>,
    payload: Image<'a>,
    old: OnceCell<Result<Value, Unreadable>>,
    envelope: OnceCell<Result<Value, Unreadable>>,
    context: OnceCell<Result<Value, Unreadable>>,
    window: OnceCell<Value>,
}

impl<'a> EventScope<'a> {
    pub fn new(event: &'a Event, now: Micros) -> Self {
        Self::on_topic(event, now, None)
    }

    /// The event as it is heard on a derived topic.
    pub fn on_topic(event: &'a Event, now: Micros, topic: Option<&'a str>) -> Self {
        EventScope {
            event,
            topic,
            now: instant(now),
            next: Image::new(event.next.as_deref()),
            prev: Image::new(event.prev.as_deref()),
            payload: Image::new(event.payload.as_deref()),
            old: OnceCell::new(),
            envelope: OnceCell::new(),
            context: OnceCell::new(),
            window: OnceCell::new(),
        }
    }

    pub fn event(&self) -> &'a Event {
        self.event
    }

    /// Has the event images of rows? In an order to start a run, `next` is the order itself, which expressions do not
    /// see.
    fn has_rows(&self) -> bool {
        self.event.op != Op::Started
    }

    fn old(&self) -> Result<&Value, Unreadable> {
        match self.event.op {
            Op::Updated => shared(self.old.get_or_init(|| Ok(overlay(self.next.whole()?, self.prev.whole()?)))),
            _ => self.prev.whole(),
        }
    }

    fn old_member(&self, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        match self.prev.member(name)? {
            None if self.event.op == Op::Updated => self.next.member(name),
            changed => Ok(changed),
        }
    }

    fn payload(&self) -> Result<&Value, Unreadable> {
        match (&self.event.payload, self.event.op) {
            (Some(_), _) => self.payload.whole(),
            (None, Op::Deleted) => self.old(),
            (None, _) => self.next.whole(),
        }
    }

    fn payload_member(&self, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        match (&self.event.payload, self.event.op) {
            (Some(_), _) => self.payload.member(name),
            (None, Op::Deleted) => self.old_member(name),
            (None, _) => self.next.member(name),
        }
    }

    fn envelope(&self) -> Result<&Value, Unreadable> {
        shared(self.envelope.get_or_init(|| {
            let member = |name: &&str| Ok(((*name).into(), self.envelope_member(name)?.unwrap_or_default()));
            ENVELOPE.iter().map(member).collect::<Result<_, Unreadable>>().map(Value::object)
        }))
    }

    /// A member of `event`, None if it has no such member.
    fn envelope_member(&self, name: &str) -> Result<Option<Value>, Unreadable> {
        let event = self.event;
        let text = |text: Option<&str>| text.map_or(Value::Null, Value::text);
        Ok(Some(match name {
            "event_id" => Value::int(event.id.0),
            "topic" => self.topic.map_or_else(|| Value::text(event.topic()), Value::text),
            "op" => Value::text(event.op.verb()),
            "kind" => text(event.kind.as_deref()),
            "id" => text(event.entity_id.as_deref()),
            "prev" => self.old()?.clone(),
            "next" if self.has_rows() => self.next.whole()?.clone(),
            "next" => Value::Null,
            "delta" => {
                let next = self.next.whole()?;
                let value = |name: &String| next.get(name).cloned().unwrap_or_default();
                Value::object(event.changed.iter().map(|name| (name.as_str().into(), value(name))).collect())
            }
            "changed" => Value::list(event.changed.iter().map(Value::text).collect()),
            "payload" => self.payload()?.clone(),
            "actor" => match &event.actor {
                Some(actor) => Value::text(actor),
                None => text(names::role_name(event.role).as_deref()),
            },
            "tenant" => text(event.tenant.as_deref()),
            "truncated" => Value::Bool(event.truncated),
            "depth" => Value::int(i64::from(event.depth)),
            "cause_run" => event.cause_run.map_or(Value::Null, |run| Value::int(run.0)),
            "occurred_at" => Value::Time(instant(event.occurred_at)),
            _ => return Ok(None),
        }))
    }
}

/// Lends a result that is computed once.
fn shared(kept: &Result<Value, Unreadable>) -> Result<&Value, Unreadable> {
    kept.as_ref().map_err(|error| *error)
}

/// The members of `event`, in order.
const ENVELOPE: [&str; 16] = [
    "event_id",
    "topic",
    "op",
    "kind",
    "id",
    "prev",
    "next",
    "delta",
    "changed",
    "payload",
    "actor",
    "tenant",
    "truncated",
    "depth",
    "cause_run",
    "occurred_at",
];

/// The row before an update: the row after it, with the old values of the changed fields.
pub fn overlay(whole: &Value, fields: &Value) -> Value {
    let (Value::Object(whole), Value::Object(fields)) = (whole, fields) else { return whole.clone() };
    let merged = whole.iter().map(|(name, value)| (name.clone(), fields.get(name).unwrap_or(value).clone())).collect();
    Value::object(merged)
}

impl Scope for EventScope<'_> {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        Ok(Some(match name {
            "new" | "next" if self.has_rows() => self.next.whole()?,
            "old" | "prev" if self.has_rows() => self.old()?,
            "payload" => self.payload()?,
            "event" => self.envelope()?,
            "window" => self.window.get_or_init(|| {
                self.event.window.as_deref().and_then(|text| Value::from_json(text).ok()).unwrap_or_default()
            }),
            "ctx" => shared(self.context.get_or_init(|| {
                let empty = |name: &str, value: Value| (name.into(), value);
                Ok(Value::object(vec![
                    empty("input", self.envelope()?.clone()),
                    empty("output", Value::Null),
                    empty("error", Value::text("")),
                ]))
            }))?,
            _ => return Ok(None),
        }))
    }

    fn member(&self, root: &str, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        let found = match root {
            "new" | "next" if self.has_rows() => self.next.member(name)?,
            "old" | "prev" if self.has_rows() => self.old_member(name)?,
            "payload" => self.payload_member(name)?,
            "event" => self.envelope_member(name)?.map(Cow::Owned),
            _ => return Ok(None),
        };
        Ok(Some(found.unwrap_or_default()))
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}
