//! The steps of a document. A step stays the JSON object it was written as, brought into one form: known fields only,
//! aliases and nulls gone, an id given, the steps inside it read in the same way.

use super::{MAX_PARTS, Problem, check_id, list, unknown_fields, unknown_word};
use crate::webhook::{DELIVERIES, METHODS};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// How deep steps may stand inside steps.
pub const MAX_NESTING: usize = 16;

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
    /// Gives variables their values.
    Set,
    /// Gives an entity without a table its state.
    StoreState,
    /// Sends a message to a receiver outside.
    Webhook,
    /// Starts another automation and waits for its end.
    Run,
    /// Waits for a time.
    Delay,
    /// Waits until a condition holds.
    WaitUntil,
    /// Waits for an event.
    WaitForEvent,
    /// Waits for a signal.
    WaitSignal,
    /// Goes on at one of two steps.
    Branch,
    /// Takes the first way whose condition holds.
    Choose,
    /// Does its steps so many times.
    RepeatCount,
    /// Does its steps while a condition holds.
    RepeatWhile,
    /// Does its steps until a condition holds.
    RepeatUntil,
    /// Does its steps for each item of a list.
    ForEach,
    /// Does its steps for each row of a query, each row in a run of its own.
    Bulk,
    /// Does its steps side by side.
    Parallel,
    /// Does its steps one after the other.
    Sequence,
    /// Ends the sequence it stands in unless a condition holds.
    Require,
    /// Ends the run.
    Stop,
}

/// What a kind of step is called and which fields are its own.
struct Form {
    kind: StepKind,
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    /// It does something that can fail and be tried again.
    acts: bool,
}

const fn form(
    kind: StepKind,
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    acts: bool,
) -> Form {
    Form { kind, name, required, optional, acts }
}

const FORMS: [Form; 23] = [
    form(StepKind::Sql, "sql", &["sql"], &[], true),
    form(StepKind::Call, "call", &["function"], &["args"], true),
    form(StepKind::Publish, "publish", &["topic"], &["payload"], true),
    form(StepKind::Notify, "notify", &["channel"], &["payload"], true),
    form(StepKind::Set, "set", &["variables"], &[], true),
    form(StepKind::StoreState, "store_state", &["kind", "entity", "state"], &[], true),
    form(
        StepKind::Webhook,
        "webhook",
        &[],
        &["url", "endpoint", "body", "method", "headers", "secret", "delivery"],
        true,
    ),
    form(StepKind::Run, "run", &["automation"], &["args"], true),
    form(StepKind::Delay, "delay", &[], &["for", "until"], false),
    form(StepKind::WaitUntil, "wait_until", &["until"], &["continue_on_timeout"], false),
    form(StepKind::WaitForEvent, "wait_for_event", &["topic"], &["filter", "lookback", "continue_on_timeout"], false),
    form(StepKind::WaitSignal, "wait_signal", &["signal"], &["key", "continue_on_timeout"], false),
    form(StepKind::Branch, "branch", &["if"], &["yes", "no"], false),
    form(StepKind::Choose, "choose", &["whens"], &["otherwise"], false),
    form(StepKind::RepeatCount, "repeat_count", &["count", "steps"], &[], false),
    form(StepKind::RepeatWhile, "repeat_while", &["while", "steps"], &[], false),
    form(StepKind::RepeatUntil, "repeat_until", &["until", "steps"], &[], false),
    form(StepKind::ForEach, "for_each", &["in", "steps"], &[], false),
    form(StepKind::Bulk, "bulk", &["query", "steps"], &["rate"], false),
    form(StepKind::Parallel, "parallel", &["lanes"], &[], false),
    form(StepKind::Sequence, "sequence", &["steps"], &[], false),
    form(StepKind::Require, "require", &["if"], &[], false),
    form(StepKind::Stop, "stop", &[], &["status", "message"], false),
];

/// The fields that are texts wherever they occur.
const TEXTS: [&str; 19] = [
    "sql",
    "query",
    "function",
    "topic",
    "channel",
    "kind",
    "entity",
    "automation",
    "signal",
    "key",
    "yes",
    "no",
    "status",
    "message",
    "url",
    "endpoint",
    "method",
    "secret",
    "delivery",
];

const COMMON: &[&str] = &["id", "do", "condition", "continue_on_error", "timeout", "enabled", "retry"];

impl StepKind {
    fn form(self) -> &'static Form {
        // Every kind has a form: the table is tested against the kinds.
        FORMS.iter().find(|form| form.kind == self).unwrap_or(&FORMS[0])
    }

    /// The name under which documents and views know it.
    pub fn name(self) -> &'static str {
        self.form().name
    }

    /// Does it something that can fail and be tried again?
    pub fn acts(self) -> bool {
        self.form().acts
    }

    /// Is it a wait that can be given a timeout?
    pub fn waits(self) -> bool {
        matches!(self, StepKind::WaitUntil | StepKind::WaitForEvent | StepKind::WaitSignal)
    }

    /// Can it take so long that a limit is of use?
    fn takes_timeout(self) -> bool {
        self.acts() || self.waits() || self == StepKind::Bulk
    }

    /// Is it one of the steps whose end `wait` tells about?
    pub fn is_wait(self) -> bool {
        self.waits() || self == StepKind::Delay
    }

    /// The fields that hold lists of steps.
    fn blocks(self) -> &'static [&'static str] {
        match self {
            StepKind::RepeatCount
            | StepKind::RepeatWhile
            | StepKind::RepeatUntil
            | StepKind::ForEach
            | StepKind::Bulk
            | StepKind::Sequence => &["steps"],
            StepKind::Parallel => &["lanes"],
            StepKind::Choose => &["otherwise"],
            _ => &[],
        }
    }
}

/// A step of the document, in its one form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepDef(Map<String, Json>);

impl StepDef {
    /// Name of the step within the automation.
    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// What it does.
    pub fn kind(&self) -> StepKind {
        let word = self.text("do");
        FORMS.iter().find(|form| form.name == word).map_or(StepKind::Sql, |form| form.kind)
    }

    /// One of its fields.
    pub fn get(&self, field: &str) -> Option<&Json> {
        self.0.get(field)
    }

    /// A field that is a text; empty if it is not given.
    pub fn text(&self, field: &str) -> &str {
        self.get(field).and_then(Json::as_str).unwrap_or_default()
    }

    /// A field that is true or false.
    pub fn flag(&self, field: &str, otherwise: bool) -> bool {
        self.get(field).and_then(Json::as_bool).unwrap_or(otherwise)
    }

    /// The steps in one of its fields.
    pub fn steps(&self, field: &str) -> Vec<StepDef> {
        steps_of(self.get(field))
    }

    /// The ways of a `choose`: condition and steps.
    pub fn whens(&self) -> Vec<(Json, Vec<StepDef>)> {
        let ways = self.get("whens").and_then(Json::as_array).cloned().unwrap_or_default();
        ways.into_iter().map(|way| (way["when"].clone(), steps_of(way.get("steps")))).collect()
    }
}

fn steps_of(list: Option<&Json>) -> Vec<StepDef> {
    list.and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_object().cloned().map(StepDef))
        .collect()
}

/// Reads a list of steps. `prefix` begins the ids of steps that were given none.
pub(super) fn read_list(
    given: Option<Json>,
    path: &str,
    prefix: &str,
    ids: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> Vec<StepDef> {
    read_nested(given, path, prefix, 0, ids, problems)
        .into_iter()
        .filter_map(|step| if let Json::Object(step) = step { Some(StepDef(step)) } else { None })
        .collect()
}

fn read_nested(
    given: Option<Json>,
    path: &str,
    prefix: &str,
    depth: usize,
    ids: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> Vec<Json> {
    if depth > MAX_NESTING {
        problems.push(Problem::shape(path, "definition", format!("steps nest more than {MAX_NESTING} deep")));
        return Vec::new();
    }
    let mut read = Vec::new();
    for (i, item) in list(given, path, problems).into_iter().enumerate() {
        // The document is refused anyway, and what follows takes the longer the more there is.
        if ids.len() > MAX_PARTS {
            break;
        }
        let path = format!("{path}[{i}]");
        let place = format!("step {}", i + 1);
        let Json::Object(mut item) = item else {
            problems.push(Problem::shape(&path, &place, "a step must be a JSON object"));
            continue;
        };
        item.retain(|_, value| !value.is_null());
        if let Some(alias) = item.remove("allow_failure") {
            item.insert("continue_on_error".into(), alias);
        }
        // `{"do": "delay", "duration": 3, "unit": "days"}` is another way to say for how long.
        if item.get("do").is_some_and(|word| *word == "delay")
            && item.contains_key("duration")
            && !item.contains_key("for")
        {
            let length = ["duration", "unit"].map(|part| (part.to_owned(), item.remove(part).unwrap_or_default()));
            item.insert("for".into(), Json::Object(Map::from_iter(length)));
        }
        // Methods are known in capitals and written as people like.
        if let Some(Json::String(method)) = item.get_mut("method") {
            method.make_ascii_uppercase();
        }
        // What is so anyway is not written down, so that two documents that mean the same are the same.
        item.retain(|field, value| match field.as_str() {
            "continue_on_error" => *value != false,
            "enabled" | "continue_on_timeout" => *value != true,
            "method" => *value != METHODS[0],
            "delivery" => *value != DELIVERIES[0],
            _ => true,
        });
        let words: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
        if let Some(problem) = unknown_word(&item, "do", "step", &words, &path, &place) {
            problems.push(problem);
            continue;
        }
        let kind = StepDef(item.clone()).kind();
        let id = match item.get("id") {
            Some(Json::String(id)) => id.clone(),
            Some(_) => {
                problems.push(Problem::shape(&path, &place, "\"id\" must be a text"));
                continue;
            }
            None => format!("{}_{prefix}{}", kind.name(), i + 1),
        };
        let place = format!("step \"{id}\"");
        check_id(&id, ids, &path, &place, problems);
        ids.push(id.clone());
        item.insert("id".into(), id.into());
        check_fields(&item, kind, &path, &place, problems);
        let inner = format!("{prefix}{}_", i + 1);
        for field in kind.blocks() {
            if let Some(given) = item.remove(*field) {
                let path = format!("{path}.{field}");
                // the ways of a choose have their numbers there
                let inner = if *field == "otherwise" { format!("{inner}otherwise_") } else { inner.clone() };
                let steps = read_nested(Some(given), &path, &inner, depth + 1, ids, problems);
                item.insert((*field).to_owned(), Json::Array(steps));
            }
        }
        if let Some(given) = item.remove("whens") {
            let ways = read_ways(given, &path, &place, &inner, depth, ids, problems);
            item.insert("whens".into(), ways);
        }
        read.push(Json::Object(item));
    }
    read
}

/// The ways of a `choose`, each `{"when": condition, "steps": [...]}`.
fn read_ways(
    given: Json,
    path: &str,
    place: &str,
    prefix: &str,
    depth: usize,
    ids: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> Json {
    let mut read = Vec::new();
    for (i, way) in list(Some(given), &format!("{path}.whens"), problems).into_iter().enumerate() {
        let path = format!("{path}.whens[{i}]");
        let Json::Object(mut way) = way else {
            problems.push(Problem::shape(&path, place, "a way of choose must be a JSON object"));
            continue;
        };
        way.retain(|_, value| !value.is_null());
        for (alias, field) in [("condition", "when"), ("if", "when"), ("then", "steps"), ("sequence", "steps")] {
            if let Some(value) = way.remove(alias) {
                way.insert(field.into(), value);
            }
        }
        unknown_fields(&way, &["when", "steps"], &path, place, problems);
        let Some(condition) = way.remove("when") else {
            problems.push(Problem::shape(&path, place, "a way of choose needs \"when\""));
            continue;
        };
        let inner = format!("{prefix}{}_", i + 1);
        let steps = read_nested(way.remove("steps"), &format!("{path}.steps"), &inner, depth + 1, ids, problems);
        read.push(serde_json::json!({ "when": condition, "steps": steps }));
    }
    Json::Array(read)
}

/// Has it the fields that its kind needs, of the right type, and no others?
fn check_fields(step: &Map<String, Json>, kind: StepKind, path: &str, place: &str, problems: &mut Vec<Problem>) {
    let form = kind.form();
    let own: Vec<&str> = form.required.iter().chain(form.optional).copied().collect();
    for field in form.required.iter().filter(|field| !step.contains_key(**field)) {
        problems.push(Problem::shape(path, place, format!("{place} needs \"{field}\"")));
    }
    let known: Vec<&str> = FORMS.iter().flat_map(|form| form.required.iter().chain(form.optional)).copied().collect();
    let mut rest = step.clone();
    rest.retain(|field, _| !COMMON.contains(&field.as_str()) && !own.contains(&field.as_str()));
    for field in rest.keys().filter(|field| known.contains(&field.as_str())) {
        problems.push(Problem::shape(path, place, format!("{place} does not take \"{field}\"")));
    }
    rest.retain(|field, _| !known.contains(&field.as_str()));
    let candidates: Vec<&str> = own.iter().chain(COMMON).copied().collect();
    unknown_fields(&rest, &candidates, path, place, problems);
    for field in TEXTS {
        if step.get(field).is_some_and(|value| own.contains(&field) && !value.is_string()) {
            problems.push(Problem::shape(format!("{path}.{field}"), place, format!("\"{field}\" must be a text")));
        }
    }
    for field in ["continue_on_error", "continue_on_timeout", "enabled"] {
        if step.get(field).is_some_and(|value| !value.is_boolean()) {
            let message = format!("\"{field}\" must be true or false");
            problems.push(Problem::shape(format!("{path}.{field}"), place, message));
        }
    }
    if step.contains_key("retry") && !form.acts {
        problems.push(Problem::shape(path, place, format!("{place} does not take \"retry\"")));
    }
    if step.contains_key("timeout") && !kind.takes_timeout() {
        problems.push(Problem::shape(path, place, format!("{place} does not take \"timeout\"")));
    }
    if kind == StepKind::Delay && step.get("until").is_some_and(|until| !until.is_string()) {
        problems.push(Problem::shape(format!("{path}.until"), place, "\"until\" must be a text"));
    }
    if kind == StepKind::Delay && step.contains_key("for") == step.contains_key("until") {
        problems.push(Problem::shape(path, place, format!("{place} needs either \"for\" or \"until\"")));
    }
}

#[cfg(test)]
mod tests {
    use super::{FORMS, StepKind};

    #[test]
    fn every_kind_has_one_form_and_its_serde_name() {
        for form in &FORMS {
            let word: StepKind = serde_json::from_value(form.name.into()).expect("a kind of this name");
            assert_eq!(word, form.kind);
            assert_eq!(form.kind.name(), form.name);
        }
    }
}
