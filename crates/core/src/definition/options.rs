//! The options of a document: everything but its name, triggers and steps.

use super::values::{self, Reader, normalise};
use super::{Document, Problem};
use crate::gate::tenant_view::MAX_TENANT;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// How a firing is treated while a run with the same key is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Another run starts beside the one under way.
    #[default]
    Parallel,
    /// The firing is skipped.
    Single,
    /// The run under way is cancelled, and the new one starts.
    Restart,
    /// The new run waits for its turn.
    Queued,
}

/// A limit: so many executions within a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateDef {
    /// How many executions.
    pub count: u32,
    /// Within which time.
    pub window: String,
}

/// Which events count as equal, so that only the first starts a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DedupDef {
    /// Expression; events for which it has the same value are equal.
    pub key: String,
    /// For how long an event is remembered; ten minutes if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

/// The options and how each is read.
pub(super) const OPTIONS: [(&str, Reader); 16] = [
    ("description", description),
    ("key", values::text),
    ("ordering", |given| values::word(given, &["entity", "tenant", "none"])),
    ("on_pause", |given| values::word(given, &["drain", "finish", "freeze"])),
    ("max_steps", |given| values::whole(given, 1..=1_000_000)),
    ("timeout", timeout),
    ("tenant", tenant),
    ("mode", |given| values::word(given, &["parallel", "single", "restart", "queued"])),
    ("max_runs", |given| values::whole(given, 1..=1000)),
    ("max_executions", values::rate),
    ("entity_lock", values::off_unless_given),
    ("dedup", values::dedup),
    ("priority", priority),
    ("retention", values::retention),
    ("concurrency", |given| values::whole(given, 1..=10_000)),
    ("breaker", values::breaker),
];

/// Takes the options out of the rest of a document.
pub(super) fn read(document: &mut Document, mut rest: Map<String, Json>, problems: &mut Vec<Problem>) {
    document.condition = rest.remove("condition");
    normalise(&mut rest, &OPTIONS, |field, value, hint| {
        problems.push(Problem::shape(field, "definition", format!("invalid {field} {value}")).hint(hint));
    });
    document.description = take(&mut rest, "description");
    document.key = take(&mut rest, "key");
    document.ordering = take(&mut rest, "ordering").unwrap_or_default();
    document.on_pause = take(&mut rest, "on_pause").unwrap_or_default();
    document.max_steps = take(&mut rest, "max_steps");
    document.timeout = take(&mut rest, "timeout");
    document.tenant = take(&mut rest, "tenant");
    document.mode = take(&mut rest, "mode").unwrap_or_default();
    document.max_runs = take(&mut rest, "max_runs");
    document.max_executions = take(&mut rest, "max_executions");
    document.entity_lock = take(&mut rest, "entity_lock").unwrap_or_default();
    document.dedup = take(&mut rest, "dedup");
    document.priority = take(&mut rest, "priority").unwrap_or_default();
    document.retention = take(&mut rest, "retention");
    document.concurrency = take(&mut rest, "concurrency");
    document.breaker = take(&mut rest, "breaker");
    if document.max_runs.is_some() && matches!(document.mode, Mode::Single | Mode::Restart) {
        problems.push(
            Problem::shape("max_runs", "definition", "\"max_runs\" has no meaning in this mode")
                .hint("Modes single and restart have one run per key. Use mode parallel or queued, or leave it out."),
        );
    }
}

/// Takes the value of a field, which was checked and brought into its one form before, as its type.
fn take<T: DeserializeOwned>(rest: &mut Map<String, Json>, field: &str) -> Option<T> {
    serde_json::from_value(rest.remove(field)?).ok()
}

fn description(given: &Json) -> values::Kept {
    if given.is_string() { Ok(Some(given.clone())) } else { Err("It is a text.".into()) }
}

/// Checks that `timeout` is a text; the compiler reads it.
fn timeout(given: &Json) -> values::Kept {
    if given.is_string() { Ok(Some(given.clone())) } else { Err("It is a duration like '5 minutes'.".into()) }
}

fn tenant(given: &Json) -> values::Kept {
    match given.as_str() {
        Some(tenant) if tenant.len() > MAX_TENANT => Err(format!("A tenant has at most {MAX_TENANT} bytes.")),
        Some(tenant) if !tenant.is_empty() && !tenant.starts_with('_') => Ok(Some(given.clone())),
        _ => Err("A tenant is a text that is not empty; names that begin with an underscore are reserved.".into()),
    }
}

fn priority(given: &Json) -> values::Kept {
    Ok(values::whole(given, -100..=100)?.filter(|priority| priority.as_i64() != Some(0)))
}
