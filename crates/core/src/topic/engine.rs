//! The engine's own events: a run started, a step failed, an automation was paused.
//!
//! A pattern hears them only if its first word is `automation` itself: `#` means all that happens in the application,
//! and would otherwise make every run tell of itself.

use super::matches;
use crate::lifecycle::LEGAL_EDGES;
use crate::value::Value;

/// The beginning of the topics of all these events.
const PREFIX: &str = "automation.";

/// Events about runs and steps, which are written only if listened to. Events about automations are always written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A run began.
    Started,
    /// A run ended well.
    Completed,
    /// A run failed.
    Failed,
    /// A run was cancelled.
    Cancelled,
    /// A step began.
    StepStarted,
    /// A step was done.
    StepCompleted,
    /// A step failed, once.
    StepFailed,
}

impl Told {
    /// All events about runs and steps.
    pub const ALL: [Told; 7] = [
        Told::Started,
        Told::Completed,
        Told::Failed,
        Told::Cancelled,
        Told::StepStarted,
        Told::StepCompleted,
        Told::StepFailed,
    ];

    /// The topic of the event.
    pub fn topic(self) -> &'static str {
        match self {
            Told::Started => "automation.started",
            Told::Completed => "automation.completed",
            Told::Failed => "automation.failed",
            Told::Cancelled => "automation.cancelled",
            Told::StepStarted => "automation.step.started",
            Told::StepCompleted => "automation.step.completed",
            Told::StepFailed => "automation.step.failed",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The set of events about runs and steps that automations listen to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted(u8);

impl Wanted {
    /// The events that these patterns, or topics, listen to.
    pub fn by<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Wanted {
        let mut wanted = Wanted::default();
        for pattern in patterns {
            let heard = Told::ALL.into_iter().filter(|told| hears(pattern.as_ref(), told.topic()));
            wanted.0 |= heard.fold(0, |bits, told| bits | told.bit());
        }
        wanted
    }

    /// Does any automation listen to this event?
    pub fn has(self, told: Told) -> bool {
        self.0 & told.bit() != 0
    }

    /// Does any automation listen to any of these events?
    pub fn any(self) -> bool {
        self.0 != 0
    }
}

/// Every topic on which the engine publishes events of its own.
pub fn topics() -> impl Iterator<Item = &'static str> {
    let lifecycle = LEGAL_EDGES.iter().map(|(_, _, topic)| *topic);
    Told::ALL.into_iter().map(Told::topic).chain(lifecycle)
}

/// Is the topic one of the engine's own?
pub fn is_engines(topic: &str) -> bool {
    topic.starts_with(PREFIX)
}

/// Does a listener with this pattern hear a topic?
pub fn hears(pattern: &str, topic: &str) -> bool {
    (!is_engines(topic) || pattern.trim_start().starts_with(PREFIX)) && matches(pattern, topic)
}

/// Does an event of the engine's own go back to a run of this automation? Its payload lists in `chain` the automations
/// whose runs led to it, the nearest first.
pub fn goes_back_to(payload: Option<&str>, automation: &str) -> bool {
    let payload = payload.and_then(|text| Value::from_json(text).ok());
    match payload.as_ref().and_then(|payload| payload.get("chain")) {
        Some(Value::List(chain)) => chain.iter().any(|link| link.to_text().as_deref() == Some(automation)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Told, Wanted, goes_back_to, hears};

    #[test]
    fn only_who_names_the_engine_hears_of_it_r001_14() {
        for pattern in ["automation.failed", "automation.*", "automation.#", "automation.f*"] {
            assert!(hears(pattern, "automation.failed"), "{pattern}");
        }
        for pattern in ["#", "", "*.failed", "*.#", "automation.step.*", "aut*.failed"] {
            assert!(!hears(pattern, "automation.failed"), "{pattern}");
        }
        assert!(hears("#", "orders.failed") && hears("*.failed", "orders.failed"));
    }

    #[test]
    fn what_nobody_listens_to_is_not_wanted() {
        assert!(!Wanted::by(["#", "orders.*", "automation.paused", "automation.invocation.x"]).any());
        let wanted = Wanted::by(["automation.step.*", "automation.failed"]);
        let told: Vec<&str> = Told::ALL.into_iter().filter(|told| wanted.has(*told)).map(Told::topic).collect();
        assert_eq!(
            told,
            ["automation.failed", "automation.step.started", "automation.step.completed", "automation.step.failed"]
        );
    }

    #[test]
    fn an_event_names_the_chain_it_goes_back_to() {
        let payload = Some(r#"{"automation": "b", "chain": ["b", "a"]}"#);
        assert!(goes_back_to(payload, "a") && goes_back_to(payload, "b"));
        assert!(!goes_back_to(payload, "c") && !goes_back_to(None, "a") && !goes_back_to(Some("[]"), "a"));
    }
}
