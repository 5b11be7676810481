//! Notifies subscribed sessions of events, by NOTIFY at the commit that routes them.
//!
//! A notification is a hint that an event happened. A batch sends a limited number of them, in all and for each role;
//! the rest is left out and counted in the log: otherwise one role could make the process that routes build millions.
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use automation_core::topic::engine::hears;
use pgrx::pg_sys;

use crate::definitions::derived::Topics;
use crate::definitions::hearing::{Hearing, Privileges};
use crate::event_log::events::{Event, Op};
use crate::pg::{notify, watch};
use crate::store::log::{self, Entry};
use crate::store::subscriptions::Subscription;

/// If the queue of notifications is fuller than this, none is sent: if it overflowed, the commit that routes would
/// fail.
const MOST_FULL: f64 = 0.5;
/// Most notifications of one batch, and of one role in it.
const MOST: usize = 20_000;
const MOST_PER_ROLE: usize = 5_000;

/// The notifications that a batch has sent so far.
#[derive(Default)]
struct Told {
    all: usize,
    by_role: HashMap<pg_sys::Oid, usize>,
    left_out: HashMap<pg_sys::Oid, i64>,
    privileges: Privileges,
}

/// Notifies the subscribers of these events.
pub fn tell(subscriptions: &[Subscription], hearing: &Hearing, events: &[Event], topics: &Topics) {
    if subscriptions.is_empty() || !events.iter().any(is_told) {
        return;
    }
    if notify::queue_usage() > MOST_FULL {
        log::repeated_warning(
            &Entry {
                code: "notifications_left_out",
                message: "events were not told to subscribers: the queue of notifications is more than half full",
                detail: Some(
                    "A session that listens has had a transaction open for long; see pg_notification_queue_usage().",
                ),
                ..Default::default()
            },
            1,
        );
        return;
    }
    let mut told = Told::default();
    for event in events.iter().filter(|event| is_told(event)) {
        watch::serve();
        let own: Rc<str> = event.topic().into();
        let derived = topics.get(&event.id).map_or(&[][..], Vec::as_slice);
        for topic in std::iter::once(&own).chain(derived.iter().map(|derived| &derived.topic)) {
            told.tell(subscriptions, hearing, event, topic);
        }
    }
    for (role, times) in told.left_out {
        log::repeated_warning(
            &Entry {
                code: "notifications_left_out",
                owner: Some(role),
                message: "events were not told to all channels: there are too many notifications at once",
                detail: Some(&format!(
                    "Events that are routed together cause at most {MOST_PER_ROLE} notifications of a role, {MOST} in all."
                )),
                ..Default::default()
            },
            times,
        );
    }
}

fn is_told(event: &Event) -> bool {
    event.op.is_change() || event.op == Op::Emitted
}

impl Told {
    /// Notifies of one event on one of its topics. Each channel gets one notification, however many patterns select the
    /// event.
    fn tell(&mut self, subscriptions: &[Subscription], hearing: &Hearing, event: &Event, topic: &str) {
        let mut payload = None;
        let mut channels: HashSet<&str> = HashSet::new();
        for subscription in subscriptions {
            let channel = subscription.channel.as_str();
            let is_told = || hearing.is_told(subscription.role, event, &self.privileges);
            if channels.contains(channel) || !hears(&subscription.pattern, topic) || !is_told() {
                continue;
            }
            let of_role = self.by_role.entry(subscription.role).or_default();
            if self.all >= MOST || *of_role >= MOST_PER_ROLE {
                *self.left_out.entry(subscription.role).or_default() += 1;
                continue;
            }
            (self.all, *of_role) = (self.all + 1, *of_role + 1);
            channels.insert(channel);
            notify::send(channel, payload.get_or_insert_with(|| payload_of(event, topic)));
        }
    }
}

fn payload_of(event: &Event, topic: &str) -> String {
    let entity = event.kind.as_ref().zip(event.entity_id.as_ref()).map(|(kind, id)| format!("{kind}:{id}"));
    // A notification holds less than 8000 bytes.
    let entity = entity.filter(|entity| entity.len() < 2000);
    serde_json::json!({ "id": event.id, "topic": topic, "ref": entity }).to_string()
}
