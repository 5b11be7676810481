//! An automation as its author wrote it: one JSON document, checked field by field.
//!
//! This document is stored, compared and given back; [`crate::program`] turns it into something that runs.

mod options;
mod problem;
mod step;
mod trigger;
mod values;

pub use crate::steps::StepKind;
pub use crate::triggers::On;
pub use options::{DedupDef, Mode, RateDef};
pub use problem::Problem;
pub use step::{MAX_NESTING, StepDef};
pub use trigger::TriggerDef;
pub(crate) use values::{DEFAULT_TTL, MAX_HOLD, in_words, micros, spelled};

use crate::suggest::nearest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Most characters an id or name may have.
pub const MAX_NAME: usize = 64;
/// Most steps or triggers one automation may have.
pub const MAX_PARTS: usize = 1000;
/// How many steps a run may execute unless its definition says otherwise.
pub const DEFAULT_MAX_STEPS: u32 = 100;

/// The runs among which each starts in the order of its event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    /// The runs for one entity.
    #[default]
    Entity,
    /// The runs of one tenant.
    Tenant,
    /// No order.
    None,
}

/// How runs under way are treated when an automation is paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnPause {
    /// The next step that comes due cancels the run.
    #[default]
    Drain,
    /// The runs go on to their end.
    Finish,
    /// The runs stop where they are until the automation is active again.
    Freeze,
}

/// A whole automation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Unique name.
    pub name: String,
    /// The purpose of the automation, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The triggers that start it.
    pub triggers: Vec<TriggerDef>,
    /// Checked before each run, on the state of that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Json>,
    /// Expression for the key of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The steps of a run.
    pub steps: Vec<StepDef>,
    /// The steps taken when a run has failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<StepDef>,
    /// The runs among which each starts in the order of its event.
    #[serde(default)]
    pub ordering: Ordering,
    /// How runs under way are treated when the automation is paused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_pause: OnPause,
    /// Most steps a run may execute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// How long a run may take from its start to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Only events of this tenant start runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// How a firing is treated while a run with the same key is under way.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
    /// Most runs with the same key that are under way or queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u32>,
    /// More executions than this within a time pause the automation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_executions: Option<RateDef>,
    /// No other automation that asks for it works on the same entity at the same time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub entity_lock: bool,
    /// Which events count as equal, so that only the first starts a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<DedupDef>,
    /// Runs of higher priority start first among those of one owner and tenant.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// How long, or how many, ended runs are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Json>,
    /// Most runs that execute at the same time; further runs wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// After how many failed runs in a row the automation is paused; false for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Json>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The fields that are not options.
const FIELDS: [&str; 6] = ["name", "trigger", "triggers", "condition", "steps", "on_failure"];

/// Reads a document and fills in ids, lists and aliases that it leaves out. All problems of shape are returned, not
/// only the first.
pub fn read(document: &Json) -> Result<Document, Vec<Problem>> {
    let Json::Object(fields) = document else {
        return Err(vec![Problem::shape("", "document", "a definition must be a JSON object")]);
    };
    let mut problems = Vec::new();
    let mut fields = fields.clone();
    fields.retain(|_, value| !value.is_null());
    let known: Vec<&str> = FIELDS.into_iter().chain(options::OPTIONS.iter().map(|(field, _)| *field)).collect();
    unknown_fields(&fields, &known, "", "definition", &mut problems);
    if let Some(one) = fields.remove("trigger") {
        if fields.contains_key("triggers") {
            problems.push(Problem::shape("trigger", "definition", "give either \"trigger\" or \"triggers\", not both"));
        }
        fields.insert("triggers".into(), Json::Array(vec![one]));
    }
    let name = match fields.remove("name") {
        Some(Json::String(name)) => name,
        _ => {
            problems.push(Problem::shape("name", "definition", "a definition needs a \"name\""));
            String::new()
        }
    };
    check_name(&name, "name", "automation", &mut problems);
    let triggers = triggers(fields.remove("triggers"), &mut problems);
    let mut ids = Vec::new();
    let steps = step::read_list(fields.remove("steps"), "steps", "", &mut ids, &mut problems);
    let on_failure = step::read_list(fields.remove("on_failure"), "on_failure", "failure_", &mut ids, &mut problems);
    if ids.len() > MAX_PARTS {
        problems.push(Problem::shape("steps", "definition", format!("more than {MAX_PARTS} steps")));
    }
    let mut document = Document {
        name,
        description: None,
        triggers,
        condition: None,
        key: None,
        steps,
        on_failure,
        ordering: Ordering::default(),
        on_pause: OnPause::default(),
        max_steps: None,
        timeout: None,
        tenant: None,
        mode: Mode::default(),
        max_runs: None,
        max_executions: None,
        entity_lock: false,
        dedup: None,
        priority: 0,
        retention: None,
        concurrency: None,
        breaker: None,
    };
    options::read(&mut document, fields, &mut problems);
    if problems.is_empty() { Ok(document) } else { Err(problems) }
}

/// Takes a list out of the document.
fn list(given: Option<Json>, field: &str, problems: &mut Vec<Problem>) -> Vec<Json> {
    match given {
        None => Vec::new(),
        Some(Json::Array(items)) if items.len() > MAX_PARTS => {
            problems.push(Problem::shape(field, "definition", format!("more than {MAX_PARTS} {field}")));
            Vec::new()
        }
        Some(Json::Array(items)) => items,
        Some(_) => {
            problems.push(Problem::shape(field, "definition", format!("\"{field}\" must be a list")));
            Vec::new()
        }
    }
}

fn triggers(given: Option<Json>, problems: &mut Vec<Problem>) -> Vec<TriggerDef> {
    let mut read = Vec::new();
    let mut ids = Vec::new();
    for (i, item) in list(given, "triggers", problems).into_iter().enumerate() {
        match item {
            Json::Object(item) => read.extend(trigger::read(item, i, &mut ids, problems)),
            _ => problems.push(Problem::shape(
                format!("triggers[{i}]"),
                format!("trigger {}", i + 1),
                "a trigger must be a JSON object",
            )),
        }
    }
    read
}

/// The problem of a trigger's `on` or a step's `do` that names no kind.
fn unknown_word(
    item: &Map<String, Json>,
    field: &str,
    noun: &str,
    known: &[&str],
    path: &str,
    place: &str,
) -> Option<Problem> {
    let word = match item.get(field) {
        Some(Json::String(word)) if known.contains(&word.as_str()) => return None,
        Some(Json::String(word)) => word,
        Some(_) => return Some(Problem::shape(path, place, format!("\"{field}\" must be a text"))),
        None => return Some(Problem::shape(path, place, format!("a {noun} needs \"{field}\""))),
    };
    let problem = Problem::shape(format!("{path}.{field}"), place, format!("unknown kind of {noun} \"{word}\""));
    Some(match nearest(word, known.iter().copied()) {
        Some(close) => problem.hint(format!("Did you mean \"{close}\"?")),
        None => problem.hint(format!("Known are {}.", known.join(", "))),
    })
}

fn unknown_fields(fields: &Map<String, Json>, known: &[&str], path: &str, place: &str, problems: &mut Vec<Problem>) {
    for field in fields.keys().filter(|field| !known.contains(&field.as_str())) {
        let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
        let mut problem = Problem::shape(path, place, format!("unknown field \"{field}\""));
        if let Some(close) = nearest(field, known.iter().copied()) {
            problem = problem.hint(format!("Did you mean \"{close}\"?"));
        }
        problems.push(problem);
    }
}

fn check_name(name: &str, path: &str, noun: &str, problems: &mut Vec<Problem>) {
    let bad = name.is_empty()
        || name.chars().count() > MAX_NAME
        || name.trim() != name
        || name.chars().any(|c| c.is_control() || c == '\u{200b}' || ('\u{202a}'..='\u{202e}').contains(&c));
    if bad {
        problems.push(Problem::shape(path, noun, format!("invalid name {name:?}")).hint(format!(
            "A name has 1 to {MAX_NAME} characters, without control characters and spaces at its ends."
        )));
    }
}

fn check_id(id: &str, taken: &[String], path: &str, place: &str, problems: &mut Vec<Problem>) {
    check_name(id, &format!("{path}.id"), place, problems);
    if taken.iter().any(|other| other == id) {
        problems.push(Problem::shape(format!("{path}.id"), place, format!("id \"{id}\" is used twice")));
    }
}
