//! What expressions see of an event.
use std::cell::OnceCell;

use automation_core::expr::Scope;
use automation_core::value::{Timestamp, Value};

use crate::pg::clock::{Micros, POSTGRES_EPOCH};
use crate::pg::names;
use crate::store::events::{Event, Op, images};

/// Postgres' microseconds as the core's instant (which counts from the Unix epoch).
pub fn instant(at: Micros) -> Timestamp {
    Timestamp(at + POSTGRES_EPOCH)
}

/// The roots that come from the event alone. Each is worked out when it is first asked for.
pub struct EventScope<'a> {
    event: &'a Event,
    now: Timestamp,
    images: OnceCell<(Value, Value)>,
    payload: OnceCell<Value>,
    envelope: OnceCell<Value>,
    context: OnceCell<Value>,
}

impl<'a> EventScope<'a> {
    pub fn new(event: &'a Event, now: Micros) -> Self {
        EventScope {
            event,
            now: instant(now),
            images: OnceCell::new(),
            payload: OnceCell::new(),
            envelope: OnceCell::new(),
            context: OnceCell::new(),
        }
    }

    fn images(&self) -> &(Value, Value) {
        self.images.get_or_init(|| images(self.event))
    }

    fn payload(&self) -> &Value {
        self.payload.get_or_init(|| match &self.event.payload {
            Some(text) => Value::from_json(text).unwrap_or_default(),
            None if self.event.op == Op::Deleted => self.images().0.clone(),
            None => self.images().1.clone(),
        })
    }

    fn envelope(&self) -> &Value {
        self.envelope.get_or_init(|| {
            let event = self.event;
            let text = |text: &Option<String>| text.as_ref().map_or(Value::Null, Value::text);
            let (prev, next) = self.images();
            let changed: Vec<Value> = event.changed.iter().map(Value::text).collect();
            let delta = event
                .changed
                .iter()
                .map(|name| (name.as_str().into(), next.get(name).cloned().unwrap_or_default()))
                .collect();
            let actor = event.actor.clone().or_else(|| names::role_name(event.role));
            let entry = |name: &str, value: Value| (name.into(), value);
            Value::object(vec![
                entry("event_id", Value::int(event.id)),
                entry("topic", Value::text(event.topic())),
                entry("op", Value::text(event.op.verb())),
                entry("kind", text(&event.kind)),
                entry("id", text(&event.entity_id)),
                entry("prev", prev.clone()),
                entry("next", if event.op == Op::Started { Value::Null } else { next.clone() }),
                entry("delta", Value::object(delta)),
                entry("changed", Value::list(changed)),
                entry("payload", self.payload().clone()),
                entry("actor", text(&actor)),
                entry("tenant", text(&event.tenant)),
                entry("truncated", Value::Bool(event.truncated)),
                entry("depth", Value::int(i64::from(event.depth))),
                entry("cause_run", event.cause_run.map_or(Value::Null, Value::int)),
                entry("occurred_at", Value::Time(instant(event.occurred_at))),
            ])
        })
    }
}

impl Scope for EventScope<'_> {
    fn root(&self, name: &str) -> Option<&Value> {
        Some(match name {
            "new" | "next" if self.event.op != Op::Started => &self.images().1,
            "old" | "prev" if self.event.op != Op::Started => &self.images().0,
            "payload" => self.payload(),
            "event" => self.envelope(),
            "ctx" => self.context.get_or_init(|| {
                let empty = |name: &str, value: Value| (name.into(), value);
                Value::object(vec![
                    empty("input", self.envelope().clone()),
                    empty("output", Value::Null),
                    empty("error", Value::text("")),
                ])
            }),
            _ => return None,
        })
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}
