//! The triggers of a document. Each is brought into one form: known fields only, defaults and nulls gone, durations and
//! lists in one spelling, an id given.

use super::values::{self, Reader, normalise};
use super::{Problem, check_id, unknown_fields, unknown_word};
use crate::triggers::{Checking, Form, On};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The fields that every trigger takes.
const COMMON: [&str; 5] = ["id", "on", "filter", "window", "enabled"];

/// How the values of fields are read; a filter is for the compiler.
const VALUES: [(&str, Reader); 20] = [
    ("kind", values::text),
    ("entity", values::ids),
    ("columns", values::names),
    ("topic", topic),
    ("field", values::text),
    ("from", values::values),
    ("to", values::values),
    ("not_from", values::values),
    ("not_to", values::values),
    ("value", values::bound),
    ("above", values::bound),
    ("below", values::bound),
    ("level", values::off_unless_given),
    ("expr", spaced),
    ("timezone", zone),
    ("missed", values::missed),
    ("overlap", values::overlap),
    ("every", values::every),
    ("hold_for", values::hold),
    ("window", values::window),
];

/// Other spellings of fields.
const ALIASES: [(&str, &str); 3] = [("for", "hold_for"), ("entity_id", "entity"), ("attribute", "field")];

/// A trigger of the document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerDef {
    /// Name of the trigger within the automation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The kind of the trigger.
    pub on: On,
    /// Kind of entity, for changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only this entity, or these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<Json>,
    /// For updates: fire only if one of these changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Topic or pattern, for events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The field that `state` and `numeric` are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// For `state`: the value before the change, one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Json>,
    /// For `state`: the value after the change, one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Json>,
    /// For `state`: the value before the change is none of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_from: Option<Json>,
    /// For `state`: the value after the change is none of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_to: Option<Json>,
    /// For `numeric`: an expression over the changed entity, instead of a field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// The range begins above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<Json>,
    /// The range ends below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<Json>,
    /// Fire on every change inside the range, not only on coming into it.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub level: bool,
    /// The schedule of `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expr: Option<String>,
    /// In this time zone; UTC if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// How missed ticks are treated: `once`, `skip` or `{"all": n}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Json>,
    /// How a tick is treated while the run of an earlier tick is under way: `skip`, `allow` or `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// How often an `interval` comes round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// Condition over the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Json>,
    /// Fire only if the state that fired the trigger is still so after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_for: Option<String>,
    /// Fire only at so many occurrences within a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Json>,
    /// False switches the trigger off.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub enabled: bool,
}

fn is_true(value: &bool) -> bool {
    *value
}

fn yes() -> bool {
    true
}

/// Reads one trigger.
pub(super) fn read(
    mut item: Map<String, Json>,
    i: usize,
    ids: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> Option<TriggerDef> {
    let path = format!("triggers[{i}]");
    let place = format!("trigger {}", i + 1);
    let before = problems.len();
    for (alias, field) in ALIASES {
        if let Some(value) = item.remove(alias) {
            item.entry(field).or_insert(value);
        }
    }
    let on = item.get("on").and_then(Json::as_str).and_then(On::named);
    if let Some(on) = on {
        on.tidy(&mut item);
    }
    item.retain(|_, value| !value.is_null());
    let all = On::ALL.into_iter().flat_map(|on| on.form().required.iter().chain(on.form().optional));
    let known: Vec<&str> = COMMON.iter().chain(all).copied().collect();
    unknown_fields(&item, &known, &path, &place, problems);
    let words = On::ALL.map(On::name);
    problems.extend(unknown_word(&item, "on", "trigger", &words, &path, &place));
    if problems.len() > before {
        return None;
    }
    let on = on?;
    let id = match item.get("id") {
        Some(Json::String(id)) => id.clone(),
        // a number names a trigger too, as in conditions
        Some(Json::Number(number)) => number.to_string(),
        Some(_) => {
            problems.push(Problem::shape(&path, &place, "\"id\" must be a text"));
            return None;
        }
        None if i == 0 => on.name().to_owned(),
        None => format!("{}_{}", on.name(), i + 1),
    };
    item.insert("id".into(), id.clone().into());
    let place = format!("trigger \"{id}\"");
    check_id(&id, ids, &path, &place, problems);
    ids.push(id);
    check_fields(&item, on.form(), &path, &place, problems);
    let wrong = |field: &str, value: &Json, hint: String| {
        let message = format!("invalid {field} {value} of {place}");
        problems.push(Problem::shape(format!("{path}.{field}"), &place, message).hint(hint));
    };
    let readers: Vec<(&str, Reader)> =
        VALUES.into_iter().chain([("enabled", values::on_unless_given as Reader)]).collect();
    normalise(&mut item, &readers, wrong);
    check_together(&item, &path, &place, problems);
    on.check(Checking { trigger: &item, path: &path, place: &place, problems });
    match serde_json::from_value(Json::Object(item)) {
        _ if problems.len() > before => None,
        Ok(def) => Some(def),
        Err(error) => {
            problems.push(Problem::shape(&path, &place, format!("invalid trigger: {error}")));
            None
        }
    }
}

/// Has a trigger the fields that its kind needs, and no others?
fn check_fields(item: &Map<String, Json>, form: &Form, path: &str, place: &str, problems: &mut Vec<Problem>) {
    for field in form.required.iter().filter(|field| !item.contains_key(**field)) {
        problems.push(Problem::shape(path, place, format!("{place} needs \"{field}\"")));
    }
    let own = |field: &str| form.required.contains(&field) || form.optional.contains(&field) || COMMON.contains(&field);
    for field in item.keys().filter(|field| !own(field)) {
        let problem = Problem::shape(path, place, format!("{place} does not take \"{field}\""));
        problems.push(match field.as_str() {
            "hold_for" => problem.hint("Nothing can be held that is over at once. Use a delay step."),
            _ => problem,
        });
    }
}

/// Do the values of a trigger's fields go together?
fn check_together(item: &Map<String, Json>, path: &str, place: &str, problems: &mut Vec<Problem>) {
    let has = |field: &str| item.contains_key(field);
    let mut wrong = |field: &str, message: String, hint: &str| {
        problems.push(Problem::shape(format!("{path}.{field}"), place, message).hint(hint));
    };
    if item.get("columns").and_then(Json::as_array).is_some_and(Vec::is_empty) {
        wrong(
            "columns",
            format!("{place}: \"columns\" is empty and would never fire"),
            "Leave it out for all columns.",
        );
    }
    for (field, other) in [("not_from", "from"), ("not_to", "to")] {
        if has(field) && has(other) {
            let message = format!("{place} has both \"{other}\" and \"{field}\"");
            wrong(field, message, "Say which values fire, or which do not.");
        }
    }
}

/// A topic or pattern; blank selects everything.
fn topic(given: &Json) -> super::values::Kept {
    match given {
        Json::String(_) => Ok(Some(given.clone())),
        _ => Err("It is a topic, or a pattern such as orders.* or billing.#.".into()),
    }
}

/// A schedule with single spaces.
fn spaced(given: &Json) -> super::values::Kept {
    values::text(given)?;
    Ok(given.as_str().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ").into()))
}

/// A time zone by its proper name. A text that names no zone stays as it is: the compiler refuses it and suggests the
/// nearest zone.
fn zone(given: &Json) -> super::values::Kept {
    values::text(given)?;
    let name = given.as_str().unwrap_or_default();
    let name = crate::cron::parse_zone(name).map_or(name, |zone| zone.name());
    Ok((name != "UTC").then(|| name.into()))
}
