//! The gate `window`: lets pass so many occurrences within a trailing time.
use automation_core::expr::Budget;
use automation_core::gate::key;
use automation_core::gate::window::Window;
use automation_core::ids::AutomationId;
use automation_core::program::Trigger;

use super::Refusal;
use crate::event_log::events::Event;
use crate::pg::clock::{self, Micros};
use crate::pg::key_lock::{Sort, hash, try_take};
use crate::runs::run::Run;
use crate::runs::scope::RunScope;
use crate::store::gates::{Occurrence, Partition, count_window};

/// Occurrences are counted no further than this, so that an event in a flood costs no more than any other.
const MOST: u64 = 100;

/// An occurrence of a trigger with a window.
pub struct Counted<'a> {
    window: &'a Window,
    automation_id: AutomationId,
    trigger: i64,
    key: String,
    at: Micros,
}

impl<'a> Counted<'a> {
    pub fn of(run: &Run, trigger: &'a Trigger, event: &Event, scope: &RunScope<'_>) -> Option<Counted<'a>> {
        let window = trigger.window.as_ref()?;
        let tenant = event.tenant.as_deref();
        let own = key::context(tenant, event.kind.as_deref(), event.entity_id.as_deref(), &event.topic());
        Some(Counted {
            window,
            automation_id: run.automation_id,
            trigger: hash(&[&trigger.id, &trigger.fingerprint.to_string()]),
            key: key::partition(window.per.as_ref(), scope, &mut Budget::default(), tenant, &own),
            at: clock::as_seen(event.occurred_at),
        })
    }

    fn partition(&self) -> Partition<'_> {
        Partition { automation_id: self.automation_id, trigger: self.trigger, key: &self.key }
    }

    /// Keeps other transactions from counting in the same partition. False if another transaction does so now.
    pub fn lock(&self) -> bool {
        try_take(Sort::Window, hash(&[&self.automation_id.to_string(), &self.trigger.to_string(), &self.key]))
    }

    /// Counts the occurrence. The event that fills the window passes, and carries the count.
    pub fn count(self, event: &Event) -> Result<Event, Refusal> {
        let within = self.window.within;
        // Counted by the time at which it happened, so that a backlog which is executed at once is no flood. An
        // occurrence that happened later but was counted before counts like an earlier one at the same distance.
        let (from, to) = (self.at.saturating_sub(within), self.at.saturating_add(within));
        let most = self.window.count.max(MOST) as i64;
        let occurrence = Occurrence { event_id: event.id, at: self.at, from, to };
        let earlier = count_window(self.partition(), occurrence, most);
        let counted = self.window.decide(earlier);
        match counted.verdict {
            Ok(()) => {
                let value = self.window.value(counted.count, &self.key);
                Ok(Event { window: Some(value.to_json()), ..event.clone() })
            }
            Err(reason) => Err(Refusal::Counted(reason.code)),
        }
    }
}
