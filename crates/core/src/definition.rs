//! An automation as its author wrote it: one JSON document, checked field by field.
//!
//! The document is what is stored, compared and given back; [`crate::program`] turns it into something that runs.

use crate::expr::{ExprError, ExprErrorKind};
use crate::suggest::nearest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Most characters an id or name may have.
pub const MAX_NAME: usize = 64;
/// Most steps or triggers one automation may have.
pub const MAX_PARTS: usize = 1000;

/// A problem in a document: where, in whose text, and what.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Path into the document, e.g. `steps[0].sql`.
    pub path: String,
    /// The same place in words, e.g. `sql of step "charge"`.
    pub place: String,
    /// The user's text that `error.span` points into, if the problem is inside one.
    pub text: Option<String>,
    /// What is wrong.
    pub error: ExprError,
}

impl Problem {
    /// A problem with the document's shape rather than with a text inside it.
    pub fn shape(path: impl Into<String>, place: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem {
            path: path.into(),
            place: place.into(),
            text: None,
            error: ExprError::new(ExprErrorKind::InvalidValue, 0..0, message),
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.error = self.error.with_hint(hint);
        self
    }
}

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

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Runs SQL as the owner.
    Sql,
    /// Calls a function that takes and returns jsonb.
    Call,
    /// Publishes an event.
    Publish,
    /// Sends a NOTIFY.
    Notify,
}

impl StepKind {
    /// The name under which documents and views know it.
    pub fn name(self) -> &'static str {
        match self {
            StepKind::Sql => "sql",
            StepKind::Call => "call",
            StepKind::Publish => "publish",
            StepKind::Notify => "notify",
        }
    }

    fn fields(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            StepKind::Sql => (&["sql"], &[]),
            StepKind::Call => (&["function"], &["args"]),
            StepKind::Publish => (&["topic"], &["payload"]),
            StepKind::Notify => (&["channel"], &["payload"]),
        }
    }
}

/// A step of the document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDef {
    /// Name of the step within the automation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it does.
    #[serde(rename = "do")]
    pub kind: StepKind,
    /// Statement of a `sql` step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// Function of a `call` step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Argument of a `call` step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Json>,
    /// Topic of a `publish` step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Channel of a `notify` step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// What a `publish` or `notify` step sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// The step is skipped unless this holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Json>,
    /// The run goes on though the step failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continue_on_error: bool,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// False leaves the step out.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub enabled: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn yes() -> bool {
    true
}

/// Whose runs start in the order of their events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    /// Those of one entity.
    #[default]
    Entity,
    /// Those of one tenant.
    Tenant,
    /// No order.
    None,
}

/// A whole automation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Unique name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What starts it.
    pub triggers: Vec<TriggerDef>,
    /// Checked before each run, on the state of that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Json>,
    /// Expression that names what a run is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it does.
    pub steps: Vec<StepDef>,
    /// Whose runs start in order.
    #[serde(default)]
    pub ordering: Ordering,
    /// Only events of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

const FIELDS: &[&str] =
    &["name", "description", "trigger", "triggers", "condition", "key", "steps", "ordering", "tenant"];
const TRIGGER_FIELDS: &[&str] = &["id", "on", "kind", "columns", "topic", "filter"];
const STEP_FIELDS: &[&str] = &[
    "id",
    "do",
    "sql",
    "function",
    "args",
    "topic",
    "channel",
    "payload",
    "condition",
    "continue_on_error",
    "allow_failure",
    "timeout",
    "enabled",
];

/// Reads a document and fills in what it leaves open: ids, lists, aliases. All problems of shape are returned, not
/// only the first.
pub fn read(document: &Json) -> Result<Document, Vec<Problem>> {
    let Json::Object(fields) = document else {
        return Err(vec![Problem::shape("", "document", "a definition must be a JSON object")]);
    };
    let mut problems = Vec::new();
    let mut fields = fields.clone();
    fields.retain(|_, value| !value.is_null());
    unknown_fields(&fields, FIELDS, "", "definition", &mut problems);
    if let Some(one) = fields.remove("trigger") {
        if fields.contains_key("triggers") {
            problems.push(Problem::shape("trigger", "definition", "give either \"trigger\" or \"triggers\", not both"));
        }
        fields.insert("triggers".into(), Json::Array(vec![one]));
    }
    let name = match fields.get("name") {
        Some(Json::String(name)) => name.clone(),
        _ => {
            problems.push(Problem::shape("name", "definition", "a definition needs a \"name\""));
            String::new()
        }
    };
    check_name(&name, "name", "automation", &mut problems);
    let triggers = parts::<TriggerDef>(&mut fields, "triggers", "trigger", TRIGGER_FIELDS, &mut problems);
    let steps = parts::<StepDef>(&mut fields, "steps", "step", STEP_FIELDS, &mut problems);
    let rest = ["name", "triggers", "steps"].iter().fold(fields, |mut fields, field| {
        fields.remove(*field);
        fields
    });
    let mut document = Document {
        name,
        description: None,
        triggers,
        condition: None,
        key: None,
        steps,
        ordering: Ordering::default(),
        tenant: None,
    };
    options(&mut document, rest, &mut problems);
    name_parts(&mut document, &mut problems);
    if problems.is_empty() { Ok(document) } else { Err(problems) }
}

fn options(document: &mut Document, rest: Map<String, Json>, problems: &mut Vec<Problem>) {
    for (field, value) in rest {
        let target = match field.as_str() {
            "condition" => {
                document.condition = Some(value);
                continue;
            }
            "description" => &mut document.description,
            "key" => &mut document.key,
            "tenant" => &mut document.tenant,
            "ordering" => {
                match serde_json::from_value(value.clone()) {
                    Ok(ordering) => document.ordering = ordering,
                    Err(_) => problems.push(
                        Problem::shape("ordering", "definition", format!("invalid ordering {value}"))
                            .hint("Use entity, tenant or none."),
                    ),
                }
                continue;
            }
            _ => continue,
        };
        match value {
            Json::String(text) => *target = Some(text),
            _ => problems.push(Problem::shape(&field, "definition", format!("\"{field}\" must be a text"))),
        }
    }
    if document.tenant.as_deref().is_some_and(|tenant| tenant.is_empty() || tenant.starts_with('_')) {
        problems.push(
            Problem::shape("tenant", "definition", "invalid tenant")
                .hint("A tenant is not empty; names that begin with an underscore are reserved."),
        );
    }
}

/// Takes a list of triggers or steps out of the document and reads each of them.
fn parts<T: serde::de::DeserializeOwned>(
    fields: &mut Map<String, Json>,
    list: &str,
    noun: &str,
    known: &[&str],
    problems: &mut Vec<Problem>,
) -> Vec<T> {
    let items = match fields.remove(list) {
        None => return Vec::new(),
        Some(Json::Array(items)) => items,
        Some(_) => {
            problems.push(Problem::shape(list, "definition", format!("\"{list}\" must be a list")));
            return Vec::new();
        }
    };
    if items.len() > MAX_PARTS {
        problems.push(Problem::shape(list, "definition", format!("more than {MAX_PARTS} {list}")));
        return Vec::new();
    }
    let mut read = Vec::with_capacity(items.len());
    for (i, item) in items.into_iter().enumerate() {
        let path = format!("{list}[{i}]");
        let place = format!("{noun} {}", i + 1);
        let Json::Object(mut item) = item else {
            problems.push(Problem::shape(&path, &place, format!("a {noun} must be a JSON object")));
            continue;
        };
        item.retain(|_, value| !value.is_null());
        let before = problems.len();
        unknown_fields(&item, known, &path, &place, problems);
        if let Some(alias) = item.remove("allow_failure") {
            item.insert("continue_on_error".into(), alias);
        }
        if problems.len() > before {
            continue;
        }
        if let Some(problem) = unknown_word(&item, noun, &path, &place) {
            problems.push(problem);
            continue;
        }
        match serde_json::from_value(Json::Object(item)) {
            Ok(part) => read.push(part),
            Err(error) => problems.push(Problem::shape(&path, &place, format!("invalid {noun}: {error}"))),
        }
    }
    read
}

/// A trigger's `on` or a step's `do` that is no word of ours.
fn unknown_word(item: &Map<String, Json>, noun: &str, path: &str, place: &str) -> Option<Problem> {
    let (field, known): (&str, &[&str]) = match noun {
        "trigger" => ("on", &["created", "updated", "deleted", "changed", "event", "call"]),
        _ => ("do", &["sql", "call", "publish", "notify"]),
    };
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

/// Gives every part an id, checks that ids are unique and that each part has the fields its kind needs.
fn name_parts(document: &mut Document, problems: &mut Vec<Problem>) {
    let mut ids: Vec<String> = Vec::new();
    for (i, trigger) in document.triggers.iter_mut().enumerate() {
        let id = trigger.id.get_or_insert_with(|| default_trigger_id(trigger.on, i)).clone();
        let (path, place) = (format!("triggers[{i}]"), format!("trigger \"{id}\""));
        check_id(&id, &ids, &path, &place, problems);
        check_trigger(trigger, &path, &place, problems);
        ids.push(id);
    }
    ids.clear();
    for (i, step) in document.steps.iter_mut().enumerate() {
        let id = step.id.get_or_insert_with(|| format!("{}_{}", step.kind.name(), i + 1)).clone();
        let (path, place) = (format!("steps[{i}]"), format!("step \"{id}\""));
        check_id(&id, &ids, &path, &place, problems);
        check_step(step, &path, &place, problems);
        ids.push(id);
    }
}

fn default_trigger_id(on: On, place: usize) -> String {
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

fn check_id(id: &str, taken: &[String], path: &str, place: &str, problems: &mut Vec<Problem>) {
    check_name(id, &format!("{path}.id"), place, problems);
    if taken.iter().any(|other| other == id) {
        problems.push(Problem::shape(format!("{path}.id"), place, format!("id \"{id}\" is used twice")));
    }
}

fn check_trigger(trigger: &TriggerDef, path: &str, place: &str, problems: &mut Vec<Problem>) {
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

fn check_step(step: &StepDef, path: &str, place: &str, problems: &mut Vec<Problem>) {
    let (required, optional) = step.kind.fields();
    let given = [
        ("sql", step.sql.is_some()),
        ("function", step.function.is_some()),
        ("args", step.args.is_some()),
        ("topic", step.topic.is_some()),
        ("channel", step.channel.is_some()),
        ("payload", step.payload.is_some()),
    ];
    for (field, present) in given {
        if required.contains(&field) && !present {
            problems.push(Problem::shape(path, place, format!("{place} needs \"{field}\"")));
        } else if present && !required.contains(&field) && !optional.contains(&field) {
            problems.push(Problem::shape(path, place, format!("{place} does not take \"{field}\"")));
        }
    }
}
