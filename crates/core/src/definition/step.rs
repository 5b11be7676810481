//! The steps of a document. A step stays the JSON object it was written as, brought into one form: known fields only,
//! aliases and nulls gone, an id given, the steps inside it read in the same way.

use super::{MAX_PARTS, Problem, check_id, list, unknown_fields, unknown_word};
use crate::steps::{self, Checking, Field, Holds, StepKind, TimeLimit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// How deep steps may stand inside steps.
pub const MAX_NESTING: usize = 16;

/// The fields that every step takes.
const COMMON: &[&str] = &["id", "do", "condition", "continue_on_error", "timeout", "enabled", "retry"];

/// A step of the document, in its one form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepDef(Map<String, Json>);

impl StepDef {
    /// Name of the step within the automation.
    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// The kind of the step.
    pub fn kind(&self) -> StepKind {
        StepKind::named(self.text("do")).unwrap_or(StepKind::Sql)
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
        // The document is refused anyway, and reading more steps would only take longer.
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
        steps::tidy(&mut item);
        // Defaults are not written down, so that two documents that mean the same are the same.
        item.retain(|field, value| match field.as_str() {
            "continue_on_error" => *value != false,
            "enabled" | "continue_on_timeout" => *value != true,
            _ => true,
        });
        let words = StepKind::ALL.map(StepKind::name);
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
        let inner = Inner { path: &path, place: &place, prefix: &inner, depth };
        // The order of reading decides which of two steps with one id counts as the first.
        for field in kind.form().fields().filter(|field| field.holds == Holds::Steps) {
            inner.read(field, &mut item, ids, problems);
        }
        // Ways are read also in a step that does not take them: every problem of a document is told.
        for field in ways() {
            inner.read(field, &mut item, ids, problems);
        }
        read.push(Json::Object(item));
    }
    read
}

/// The fields of all kinds that hold ways, each once.
fn ways() -> Vec<&'static Field> {
    let all = StepKind::ALL.into_iter().flat_map(|kind| kind.form().fields());
    let mut ways: Vec<&Field> = all.filter(|field| field.holds == Holds::Ways).collect();
    ways.sort_by_key(|field| field.name);
    ways.dedup_by_key(|field| field.name);
    ways
}

/// Where the steps inside of a step stand.
struct Inner<'a> {
    /// The path of the step around them.
    path: &'a str,
    /// The step around them in words.
    place: &'a str,
    /// Begins the ids of those that were given none.
    prefix: &'a str,
    /// How deep the step around them stands.
    depth: usize,
}

impl Inner<'_> {
    /// Reads the steps in one field of a step.
    fn read(&self, field: &Field, step: &mut Map<String, Json>, ids: &mut Vec<String>, problems: &mut Vec<Problem>) {
        let read = match field.holds {
            Holds::Any | Holds::Text => return,
            Holds::Steps => {
                let Some(given) = step.remove(field.name) else { return };
                let path = format!("{}.{}", self.path, field.name);
                // The ways of a choose have their numbers where those of its other steps would be.
                let otherwise = if field.name == "otherwise" { "otherwise_" } else { "" };
                let prefix = format!("{}{otherwise}", self.prefix);
                Json::Array(read_nested(Some(given), &path, &prefix, self.depth + 1, ids, problems))
            }
            Holds::Ways => {
                let Some(given) = step.remove(field.name) else { return };
                read_ways(given, self, ids, problems)
            }
        };
        step.insert(field.name.to_owned(), read);
    }
}

/// The ways of a `choose`, each `{"when": condition, "steps": [...]}`.
fn read_ways(given: Json, inner: &Inner<'_>, ids: &mut Vec<String>, problems: &mut Vec<Problem>) -> Json {
    let Inner { path, place, prefix, depth } = *inner;
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

/// Has a step the fields that its kind needs, of the right type, and no others?
fn check_fields(step: &Map<String, Json>, kind: StepKind, path: &str, place: &str, problems: &mut Vec<Problem>) {
    let form = kind.form();
    let own: Vec<&str> = form.fields().map(|field| field.name).collect();
    for field in form.required.iter().filter(|field| !step.contains_key(field.name)) {
        problems.push(Problem::shape(path, place, format!("{place} needs \"{}\"", field.name)));
    }
    let all = StepKind::ALL.into_iter().flat_map(|kind| kind.form().fields());
    let known: Vec<&str> = all.map(|field| field.name).collect();
    let mut rest = step.clone();
    rest.retain(|field, _| !COMMON.contains(&field.as_str()) && !own.contains(&field.as_str()));
    for field in rest.keys().filter(|field| known.contains(&field.as_str())) {
        problems.push(Problem::shape(path, place, format!("{place} does not take \"{field}\"")));
    }
    rest.retain(|field, _| !known.contains(&field.as_str()));
    let candidates: Vec<&str> = own.iter().chain(COMMON).copied().collect();
    unknown_fields(&rest, &candidates, path, place, problems);
    for field in form.fields().filter(|field| field.holds == Holds::Text).map(|field| field.name) {
        if step.get(field).is_some_and(|value| !value.is_string()) {
            problems.push(Problem::shape(format!("{path}.{field}"), place, format!("\"{field}\" must be a text")));
        }
    }
    for field in ["continue_on_error", "continue_on_timeout", "enabled"] {
        if step.get(field).is_some_and(|value| !value.is_boolean()) {
            let message = format!("\"{field}\" must be true or false");
            problems.push(Problem::shape(format!("{path}.{field}"), place, message));
        }
    }
    if step.contains_key("retry") && !form.retries {
        problems.push(Problem::shape(path, place, format!("{place} does not take \"retry\"")));
    }
    if step.contains_key("timeout") && form.time_limit == TimeLimit::None {
        problems.push(Problem::shape(path, place, format!("{place} does not take \"timeout\"")));
    }
    kind.check(Checking { step, path, place, problems });
}
