//! The triggers of a document.

use super::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The words of `on`.
pub(super) const WORDS: &[&str] = &["created", "updated", "deleted", "changed", "event", "call"];
/// Every field a trigger may have.
pub(super) const FIELDS: &[&str] = &["id", "on", "kind", "columns", "topic", "filter"];

/// What starts a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// An entity came into being.
    Created,
    /// An entity changed.
    Updated,
    /// An entity is gone.
    Deleted,
    /// Any of the three.
    Changed,
    /// An event on a topic.
    Event,
    /// Only by hand or by another automation.
    Call,
}

/// A trigger of the document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerDef {
    /// Name of the trigger within the automation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it fires on.
    pub on: On,
    /// Kind of entity, for changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// For updates: fire only if one of these changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Topic or pattern, for events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Condition over the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Json>,
}

/// The id of a trigger that was given none.
pub(super) fn default_id(on: On, place: usize) -> String {
    let name = match on {
        On::Created => "created",
        On::Updated => "updated",
        On::Deleted => "deleted",
        On::Changed => "changed",
        On::Event => "event",
        On::Call => "call",
    };
    if place == 0 { name.to_owned() } else { format!("{name}_{}", place + 1) }
}

/// Has it the fields that its kind needs, and no others?
pub(super) fn check(trigger: &TriggerDef, path: &str, place: &str, problems: &mut Vec<Problem>) {
    let mut need = |present: bool, field: &str, wanted: bool| {
        if wanted && !present {
            problems.push(Problem::shape(path, place, format!("{place} needs \"{field}\"")));
        } else if !wanted && present {
            problems.push(Problem::shape(path, place, format!("{place} does not take \"{field}\"")));
        }
    };
    let change = matches!(trigger.on, On::Created | On::Updated | On::Deleted | On::Changed);
    need(trigger.kind.is_some(), "kind", change);
    need(trigger.topic.is_some(), "topic", trigger.on == On::Event);
    if trigger.on != On::Updated {
        need(trigger.columns.is_some(), "columns", false);
    }
    if trigger.columns.as_ref().is_some_and(Vec::is_empty) {
        problems.push(Problem::shape(path, place, format!("{place}: \"columns\" is empty and would never fire")));
    }
}
