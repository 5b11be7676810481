//! Reading single values of a document into the one form in which they are kept: two documents that mean the same are
//! the same, so that defining one again is no change.

use crate::program::length;
use crate::value::{Duration, Number};
use serde_json::{Map, Value as Json};
use std::ops::RangeInclusive;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Longest `hold_for`.
pub const MAX_HOLD: i64 = 30 * DAY;
/// Longest `within` of a window; older occurrences are forgotten.
pub const MAX_WINDOW: i64 = DAY;
/// How long a claim of `dedup` lasts unless it says otherwise.
pub const DEFAULT_TTL: i64 = 600 * SECOND;
/// How many missed ticks `"missed": "all"` makes up for.
pub const DEFAULT_CATCH_UP: u64 = 100;
/// Most missed ticks that can be made up for.
pub const MAX_CATCH_UP: u64 = 1000;

/// The kept form of a value; `None` if it is the default. The error is the hint.
pub(super) type Kept = Result<Option<Json>, String>;

/// How a field's value is read.
pub(super) type Reader = fn(&Json) -> Kept;

/// Reads the fields of an object that have a reader. `wrong` is told the name, the value and the hint of a bad one.
pub(super) fn normalise(
    fields: &mut Map<String, Json>,
    readers: &[(&str, Reader)],
    mut wrong: impl FnMut(&str, &Json, String),
) {
    for (field, reader) in readers {
        let Some(given) = fields.get(*field) else { continue };
        match reader(given) {
            Ok(Some(kept)) => {
                fields.insert((*field).to_owned(), kept);
            }
            Ok(None) => {
                fields.remove(*field);
            }
            Err(hint) => {
                let given = fields.remove(*field).unwrap_or_default();
                wrong(field, &given, hint);
            }
        }
    }
}

/// A text that is not empty.
pub(super) fn text(given: &Json) -> Kept {
    match given {
        Json::String(text) if !text.trim().is_empty() => Ok(Some(given.clone())),
        _ => Err("It is a text that is not empty.".into()),
    }
}

/// True or false; the default is false.
pub(super) fn off_unless_given(given: &Json) -> Kept {
    flag(given, false)
}

/// True or false; the default is true.
pub(super) fn on_unless_given(given: &Json) -> Kept {
    flag(given, true)
}

fn flag(given: &Json, otherwise: bool) -> Kept {
    match given {
        Json::Bool(value) => Ok((*value != otherwise).then(|| given.clone())),
        _ => Err("It is true or false.".into()),
    }
}

/// A whole number within a range.
pub(super) fn whole(given: &Json, range: RangeInclusive<i64>) -> Kept {
    let number = given.as_i64().or_else(|| Number::parse(&given.to_string()).filter(Number::is_whole)?.to_i64());
    match number.filter(|number| range.contains(number)) {
        Some(number) => Ok(Some(number.into())),
        None => Err(format!("It is a whole number from {} to {}.", range.start(), range.end())),
    }
}

/// A number, in its shortest spelling, or an expression.
pub(super) fn bound(given: &Json) -> Kept {
    match given {
        Json::Number(number) => Ok(Some(shortest(&number.to_string()).unwrap_or_else(|| given.clone()))),
        Json::String(text) if !text.trim().is_empty() => Ok(Some(shortest(text).unwrap_or_else(|| given.clone()))),
        _ => Err("It is a number or an expression.".into()),
    }
}

fn shortest(digits: &str) -> Option<Json> {
    let number = Number::parse(digits.trim())?.trimmed();
    serde_json::from_str(&number.to_string()).ok()
}

/// One of a few words; the first is the default.
pub(super) fn word(given: &Json, words: &[&str]) -> Kept {
    match given.as_str() {
        Some(word) if word == words[0] => Ok(None),
        Some(word) if words.contains(&word) => Ok(Some(given.clone())),
        other => {
            let near = other.and_then(|word| crate::suggest::nearest(word, words.iter().copied()));
            Err(match near {
                Some(near) => format!("Did you mean \"{near}\"?"),
                None => format!("Use {}.", listed(words)),
            })
        }
    }
}

fn listed(words: &[&str]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        _ => words.join(", "),
    }
}

/// Values to compare with: one, or a list of them. A list of one is that one; null can only stand in a list, where it
/// means that there is no value.
pub(super) fn values(given: &Json) -> Kept {
    let hint = || "It is a text, a number, true or false, or a list of these; null can stand in a list.".to_owned();
    let scalar = |value: &Json| !value.is_array() && !value.is_object();
    match given {
        Json::Array(items) if items.is_empty() || !items.iter().all(scalar) => Err(hint()),
        Json::Array(items) => {
            let mut kept: Vec<Json> = Vec::new();
            for item in items.iter().map(plain) {
                if !kept.contains(&item) {
                    kept.push(item);
                }
            }
            Ok(Some(if kept.len() == 1 && !kept[0].is_null() { kept.remove(0) } else { Json::Array(kept) }))
        }
        one if scalar(one) => Ok(Some(plain(one))),
        _ => Err(hint()),
    }
}

/// A value with its number, if it is one, in its shortest spelling.
fn plain(value: &Json) -> Json {
    match value {
        Json::Number(number) => shortest(&number.to_string()).unwrap_or_else(|| value.clone()),
        other => other.clone(),
    }
}

/// Ids of entities: one, or a list of them; a number is the id that is written so.
pub(super) fn ids(given: &Json) -> Kept {
    let id = |value: &Json| match value {
        Json::String(text) if !text.is_empty() => Some(Json::String(text.clone())),
        Json::Number(number) => Some(Json::String(number.to_string())),
        _ => None,
    };
    let found: Option<Vec<Json>> = match given {
        Json::Array(items) => items.iter().map(id).collect(),
        other => id(other).map(|id| vec![id]),
    };
    match found.filter(|ids| !ids.is_empty()) {
        Some(ids) => values(&Json::Array(ids)),
        None => Err("It is the id of an entity, or a list of them.".into()),
    }
}

/// Names of columns.
pub(super) fn names(given: &Json) -> Kept {
    match given {
        Json::Array(items) if items.iter().all(Json::is_string) => Ok(Some(given.clone())),
        _ => Err("It is a list of column names.".into()),
    }
}

/// A length of time in microseconds.
pub(crate) fn micros(given: &Json) -> Option<i64> {
    let text = match given {
        Json::String(text) => text.clone(),
        Json::Number(number) => format!("{number} seconds"),
        _ => return None,
    };
    length(&text).map(|duration| duration.total_micros() as i64)
}

/// A length of time within a range, in one spelling: `PT90S` and `1.5 minutes` are the same.
pub(super) fn duration(given: &Json, range: RangeInclusive<i64>) -> Kept {
    match micros(given).filter(|micros| range.contains(micros)) {
        Some(micros) => Ok(Some(spelled(micros).into())),
        None => Err(format!(
            "It is a duration like '5 minutes', from {} to {}.",
            in_words(*range.start()),
            in_words(*range.end())
        )),
    }
}

/// ISO 8601, with days if they are whole.
pub(crate) fn spelled(micros: i64) -> String {
    let days = micros / DAY;
    match i32::try_from(days) {
        Ok(days) if micros % DAY == 0 => Duration { months: 0, days, micros: 0 }.to_string(),
        _ => Duration::from_micros(micros).to_string(),
    }
}

/// For people: `24 hours`, `30 days`, `1 second`.
pub(crate) fn in_words(micros: i64) -> String {
    const UNITS: [(i64, &str); 5] =
        [(DAY, "day"), (3600 * SECOND, "hour"), (60 * SECOND, "minute"), (SECOND, "second"), (1000, "millisecond")];
    for (unit, name) in UNITS {
        // a single day is shown as 24 hours
        if micros % unit == 0 && micros > 0 && !(name == "day" && micros == unit) {
            let count = micros / unit;
            return format!("{count} {name}{}", if count == 1 { "" } else { "s" });
        }
    }
    format!("{micros} microseconds")
}

/// `hold_for`: a duration, or a text with `{{ }}` that is worked out when the time begins to run.
pub(super) fn hold(given: &Json) -> Kept {
    match given {
        Json::String(text) if text.contains("{{") => Ok(Some(given.clone())),
        _ => duration(given, 1000..=MAX_HOLD),
    }
}

/// How often an interval comes round.
pub(super) fn every(given: &Json) -> Kept {
    if given.as_str().and_then(length).is_some_and(|duration| duration.months != 0) {
        return Err("Months are not all as long as each other. Use a cron trigger, as in 0 0 1 * *.".into());
    }
    duration(given, SECOND..=366 * DAY)
}

/// How missed ticks are treated.
pub(super) fn missed(given: &Json) -> Kept {
    let all =
        |count: Json| whole(&count, 1..=MAX_CATCH_UP as i64).map(|count| Some(serde_json::json!({ "all": count })));
    match given {
        Json::String(word) if word == "all" => all(DEFAULT_CATCH_UP.into()),
        // "all 24", for authors that write a text
        Json::String(text) if text.strip_prefix("all ").is_some_and(|count| count.trim().parse::<u64>().is_ok()) => {
            let count = text.strip_prefix("all ").and_then(|count| count.trim().parse::<u64>().ok());
            all(count.into()).map_err(|hint| format!("\"all\" says how many at most. {hint}"))
        }
        Json::Object(fields) if fields.len() == 1 && fields.contains_key("all") => {
            all(fields["all"].clone()).map_err(|hint| format!("\"all\" says how many at most. {hint}"))
        }
        _ => word(given, &["once", "skip", "all"]).map_err(|hint| match hint.as_str() {
            "Use once, skip or all." => format!("{hint} 'all 24' makes up for at most 24 ticks."),
            _ => hint,
        }),
    }
}

/// How a tick is treated while the run of an earlier tick is under way.
pub(super) fn overlap(given: &Json) -> Kept {
    word(given, &["skip", "allow", "queue"])
}

/// `{"count": 3, "within": "10 minutes", "per": "new.customer", "refire": "once"}`; `minutes` and `partition_by` are
/// other spellings.
pub(super) fn window(given: &Json) -> Kept {
    const HINT: &str = "For example {\"count\": 3, \"within\": \"10 minutes\"}.";
    let Json::Object(fields) = given else { return Err(HINT.into()) };
    let mut fields = fields.clone();
    fields.retain(|_, value| !value.is_null());
    if let Some(minutes) = fields.remove("minutes") {
        fields.insert("within".into(), format!("{minutes} minutes").into());
    }
    if let Some(partition) = fields.remove("partition_by") {
        fields.insert("per".into(), partition);
    }
    const KNOWN: [&str; 4] = ["count", "within", "per", "refire"];
    if let Some(field) = fields.keys().find(|field| !KNOWN.contains(&field.as_str())) {
        return Err(format!("It has no \"{field}\". {HINT}"));
    }
    if let Some(field) = ["count", "within"].iter().find(|field| !fields.contains_key(**field)) {
        return Err(format!("It needs \"{field}\". {HINT}"));
    }
    let readers: [(&str, Reader); 4] = [
        ("count", |given| whole(given, 1..=1000)),
        ("within", |given| duration(given, SECOND..=MAX_WINDOW)),
        ("per", |given| text(given).map(|_| given.as_str().map(|text| text.trim().into()))),
        ("refire", |given| word(given, &["every", "once"])),
    ];
    let mut bad = None;
    normalise(&mut fields, &readers, |field, value, hint| {
        bad.get_or_insert(format!("\"{field}\" cannot be {value}. {hint}"));
    });
    bad.map_or(Ok(Some(Json::Object(fields))), Err)
}

/// `10 per 1 minute`, or `{"count": 10, "window": "PT1M"}`.
pub(super) fn rate(given: &Json) -> Kept {
    const HINT: &str = "For example '10 per 1 minute' or {\"count\": 10, \"window\": \"PT1M\"}.";
    let (count, window) = match given {
        Json::String(text) => {
            let (count, window) = text.split_once(" per ").ok_or(HINT)?;
            let window = window.trim();
            // "10 per minute"
            let window = if window.starts_with(|c: char| c.is_ascii_digit() || c == 'P') {
                window.to_owned()
            } else {
                format!("1 {window}")
            };
            (serde_json::from_str(count.trim()).map_err(|_| HINT)?, Json::String(window))
        }
        Json::Object(fields) if fields.len() == 2 => {
            (fields.get("count").ok_or(HINT)?.clone(), fields.get("window").ok_or(HINT)?.clone())
        }
        _ => return Err(HINT.into()),
    };
    let count = whole(&count, 1..=1_000_000).map_err(|hint| format!("Its count is wrong. {hint}"))?;
    let window = duration(&window, SECOND..=31 * DAY).map_err(|hint| format!("Its window is wrong. {hint}"))?;
    Ok(Some(serde_json::json!({ "count": count, "window": window })))
}

/// An expression, or `{"key": expression, "ttl": duration}`.
pub(super) fn dedup(given: &Json) -> Kept {
    const HINT: &str = "For example {\"key\": \"new.id\", \"ttl\": \"10 minutes\"}.";
    let mut fields = match given {
        Json::String(_) => Map::from_iter([("key".to_owned(), given.clone())]),
        Json::Object(fields) => fields.clone(),
        _ => return Err(HINT.into()),
    };
    fields.retain(|_, value| !value.is_null());
    if !fields.contains_key("key") || fields.keys().any(|field| field != "key" && field != "ttl") {
        return Err(HINT.into());
    }
    let readers: [(&str, Reader); 2] = [("key", text), ("ttl", |given| duration(given, SECOND..=30 * DAY))];
    let mut bad = None;
    normalise(&mut fields, &readers, |field, value, hint| {
        bad.get_or_insert(format!("\"{field}\" cannot be {value}. {hint}"));
    });
    if fields.get("ttl").and_then(Json::as_str) == Some(&spelled(DEFAULT_TTL)) {
        fields.remove("ttl");
    }
    bad.map_or(Ok(Some(Json::Object(fields))), Err)
}

/// How long, or how many, ended runs are kept: a duration, or `{"age": "30 days", "runs": 1000}`.
pub(super) fn retention(given: &Json) -> Kept {
    const HINT: &str = "For example '30 days' or {\"age\": \"30 days\", \"runs\": 1000}.";
    let age: Reader = |given| duration(given, 60 * SECOND..=36_600 * DAY);
    let Json::Object(fields) = given else { return age(given).map_err(|hint| format!("{hint} {HINT}")) };
    let mut fields = fields.clone();
    fields.retain(|_, value| !value.is_null());
    if fields.is_empty() || fields.keys().any(|field| field != "age" && field != "runs") {
        return Err(HINT.into());
    }
    let readers: [(&str, Reader); 2] = [("age", age), ("runs", |given| whole(given, 1..=1_000_000_000))];
    let mut bad = None;
    normalise(&mut fields, &readers, |field, value, hint| {
        bad.get_or_insert(format!("\"{field}\" cannot be {value}. {hint}"));
    });
    match (bad, fields.len(), fields.get("age")) {
        (Some(bad), ..) => Err(bad),
        (None, 1, Some(age)) => Ok(Some(age.clone())),
        _ => Ok(Some(Json::Object(fields))),
    }
}

/// After how many failed runs in a row the automation is paused: a number, or false for never. The default is five.
pub(super) fn breaker(given: &Json) -> Kept {
    match given {
        Json::Bool(true) => Ok(None),
        Json::Bool(false) => Ok(Some(given.clone())),
        _ => whole(given, 1..=1000)
            .map(|count| count.filter(|count| count.as_u64() != Some(u64::from(crate::gate::breaker::DEFAULT))))
            .map_err(|hint| format!("{hint} false switches it off.")),
    }
}
