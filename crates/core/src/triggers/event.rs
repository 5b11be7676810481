//! The `event` trigger: an event on a topic.

use super::{Backfill, Form, TriggerKind};
use crate::definition::TriggerDef;
use crate::program::Parts;
use crate::topic;

/// An event on a topic.
pub(super) struct Event;

impl TriggerKind for Event {
    const FORM: Form = Form { name: "event", required: &["topic"], optional: &["hold_for"], backfill: Backfill::Event };

    fn patterns(def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Vec<String>> {
        let text = def.topic.as_deref().unwrap_or_default();
        parts.parsed(topic::validate(text), "topic", text)?;
        Some(vec![topic::canonical(text)])
    }
}
