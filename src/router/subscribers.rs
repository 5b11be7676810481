//! Telling sessions outside of events, by NOTIFY at the commit that routes them.
use std::rc::Rc;

use automation_core::topic::engine::hears;

use super::derived::Topics;
use crate::hearing::{Hearing, Privileges};
use crate::pg::notify;
use crate::store::events::{Event, Op};
use crate::store::log::{self, Entry};
use crate::store::subscriptions::Subscription;

/// A queue of notifications that is fuller than this is left alone: if it overflowed, the commit that routes would fail.
const MOST_FULL: f64 = 0.5;

/// Tells of these events whoever has subscribed to them.
pub fn tell(subscriptions: &[Subscription], hearing: &Hearing, events: &[Event], topics: &Topics) {
    if subscriptions.is_empty() {
        return;
    }
    let privileges = Privileges::default();
    let mut told = Vec::new();
    for event in events.iter().filter(|event| event.op.is_change() || event.op == Op::Emitted) {
        let own: Rc<str> = event.topic().into();
        let derived = topics.get(&event.id).map_or(&[][..], Vec::as_slice);
        for topic in std::iter::once(&own).chain(derived.iter().map(|derived| &derived.topic)) {
            let may_read = |s: &Subscription| hearing.may_read(s.role, event, &privileges);
            let wanted = subscriptions.iter().filter(|s| hears(&s.pattern, topic) && may_read(s));
            told.extend(wanted.map(|subscription| (subscription.channel.as_str(), payload(event, topic))));
        }
    }
    if told.is_empty() {
        return;
    }
    if notify::queue_usage() > MOST_FULL {
        log::warning(&Entry {
            code: "notifications_left_out",
            message: "events were not told to subscribers: the queue of notifications is more than half full",
            detail: Some(
                "A session that listens has had a transaction open for long; see pg_notification_queue_usage().",
            ),
            ..Default::default()
        });
        return;
    }
    for (channel, payload) in told {
        notify::send(channel, &payload);
    }
}

fn payload(event: &Event, topic: &str) -> String {
    let entity = event.kind.as_ref().zip(event.entity_id.as_ref()).map(|(kind, id)| format!("{kind}:{id}"));
    // A notification holds less than 8000 bytes.
    let entity = entity.filter(|entity| entity.len() < 2000);
    serde_json::json!({ "id": event.id, "topic": topic, "ref": entity }).to_string()
}
