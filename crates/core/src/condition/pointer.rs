//! The JSON-Pointer filter: `{"/winner_id": {"eq": "..."}}`. RFC 6901 to the letter; several keys are an `and`.

use super::{fields, invalid};
use crate::expr::ExprError;
use crate::suggest::nearest;
use crate::value::{Timestamp, Value};
use serde_json::Value as Json;
use std::cmp::Ordering;

/// The comparison that a clause makes with the value it points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Equal as jsonb: `1 = 1.0`, `"1" <> 1`, missing is not null.
    Eq,
    /// Not equal; true of a missing value.
    Neq,
    /// Greater, of two numbers or two ISO 8601 times.
    Gt,
    /// Less, of two numbers or two ISO 8601 times.
    Lt,
    /// A part of a text, or an element of a list.
    Contains,
}

const OPERATORS: [(&str, Operator); 5] = [
    ("eq", Operator::Eq),
    ("neq", Operator::Neq),
    ("gt", Operator::Gt),
    ("lt", Operator::Lt),
    ("contains", Operator::Contains),
];

impl Operator {
    /// As written.
    pub fn name(self) -> &'static str {
        OPERATORS.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }
}

/// One clause.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// The pointer as written.
    pub pointer: String,
    path: Vec<String>,
    /// The comparison.
    pub operator: Operator,
    /// The value to compare with.
    pub operand: Value,
}

/// A filter of clauses that must all hold.
#[derive(Clone, Debug, PartialEq)]
pub struct PointerFilter {
    clauses: Vec<Clause>,
}

impl PointerFilter {
    /// Takes an object of pointers; `{}` selects everything.
    pub fn parse(document: &Json) -> Result<PointerFilter, ExprError> {
        let Json::Object(map) = document else {
            return Err(invalid(format!("filter is {}, not an object", fields::name(document))));
        };
        let read = |(pointer, matcher): (&String, &Json)| clause(pointer, matcher);
        let clauses = map.iter().map(read).collect::<Result<_, _>>()?;
        Ok(PointerFilter { clauses })
    }

    /// The clauses.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// Whether all clauses hold for a payload.
    pub fn matches(&self, payload: &Value) -> bool {
        self.clauses.iter().all(|clause| clause.matches(payload))
    }
}

/// A filter whose author forgot that a pointer begins with a slash: `{"total": {"gt": 5}}`.
pub(super) fn without_slash(document: &Json, forms: &[&str]) -> Option<ExprError> {
    let is_operator = |name: &String| OPERATORS.iter().any(|(known, _)| known == name);
    let (key, matcher) = document.as_object()?.iter().find(|(key, matcher)| {
        let operators = matcher.as_object().filter(|map| map.len() == 1 && map.keys().all(is_operator));
        !forms.contains(&key.as_str()) && operators.is_some()
    })?;
    let hint = format!("To match a payload, write a pointer: {{\"/{key}\": {matcher}}}.");
    Some(invalid(format!("condition has an unknown field \"{key}\"")).with_hint(hint).at_key(key))
}

fn clause(pointer: &str, matcher: &Json) -> Result<Clause, ExprError> {
    let path = parse_pointer(pointer).map_err(|e| e.at_key(pointer))?;
    let (operator, operand) = operation(pointer, matcher).map_err(|e| e.in_member(pointer))?;
    Ok(Clause { pointer: pointer.to_owned(), path, operator, operand })
}

fn operation(pointer: &str, matcher: &Json) -> Result<(Operator, Value), ExprError> {
    let Json::Object(map) = matcher else {
        return Err(invalid(format!("matcher of \"{pointer}\" is {}, not an object", fields::name(matcher)))
            .with_hint(format!("Write {{\"{pointer}\": {{\"eq\": {matcher}}}}}.")));
    };
    let mut entries = map.iter();
    let (Some((name, operand)), None) = (entries.next(), entries.next()) else {
        let error = invalid(format!("matcher of \"{pointer}\" has {} operators, not one", map.len()));
        return Err(match map.len() {
            0 => error.with_hint(format!("Write {{\"{pointer}\": {{\"eq\": 5}}}}.")),
            _ => error.with_hint("For two of them write a list: [{\"/a\": {\"gt\": 1}}, {\"/a\": {\"lt\": 5}}]."),
        });
    };
    let Some((_, operator)) = OPERATORS.iter().find(|(known, _)| known == name) else {
        return Err(invalid(format!("operator \"{name}\" of \"{pointer}\" does not exist"))
            .with_detail("There are eq, neq, gt, lt and contains.")
            .with_suggestion(nearest(name, OPERATORS.iter().map(|(known, _)| *known)))
            .at_key(name));
    };
    let operand = Value::from_serde(operand);
    let orders = matches!(&operand, Value::Number(_)) || operand.as_time().is_some();
    if matches!(operator, Operator::Gt | Operator::Lt) && !orders {
        let message = format!("operator \"{name}\" of \"{pointer}\" needs a number or an ISO 8601 time");
        return Err(invalid(message).in_member(name));
    }
    Ok((*operator, operand))
}

/// Splits a pointer; `""` is the whole document and `"/"` the key `""`.
fn parse_pointer(pointer: &str) -> Result<Vec<String>, ExprError> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = pointer.strip_prefix('/') else {
        return Err(invalid(format!("pointer \"{pointer}\" does not start with /")));
    };
    rest.split('/')
        .map(|token| {
            let bytes = token.as_bytes();
            let bad = (0..bytes.len()).any(|i| bytes[i] == b'~' && !matches!(bytes.get(i + 1), Some(b'0' | b'1')));
            if bad {
                return Err(invalid(format!("pointer \"{pointer}\" has a ~ that is not ~0 or ~1")));
            }
            Ok(token.replace("~1", "/").replace("~0", "~"))
        })
        .collect()
}

impl Clause {
    /// The value it points at; `None` if it is missing.
    pub fn target<'a>(&self, payload: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(payload, |value, token| match value {
            Value::Object(object) => object.get(token),
            Value::List(items) => list_index(token).and_then(|i| items.get(i)),
            _ => None,
        })
    }

    /// Whether it holds.
    pub fn matches(&self, payload: &Value) -> bool {
        let target = self.target(payload);
        match self.operator {
            Operator::Eq => target == Some(&self.operand),
            Operator::Neq => target != Some(&self.operand),
            Operator::Gt => target.and_then(|t| order(t, &self.operand)) == Some(Ordering::Greater),
            Operator::Lt => target.and_then(|t| order(t, &self.operand)) == Some(Ordering::Less),
            Operator::Contains => target.is_some_and(|t| contains(t, &self.operand)),
        }
    }
}

/// Only digits without a leading zero are an index.
fn list_index(token: &str) -> Option<usize> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    if plain { token.parse().ok() } else { None }
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Some(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => Some(Timestamp::parse(a)?.cmp(&Timestamp::parse(b)?)),
        _ => None,
    }
}

fn contains(target: &Value, wanted: &Value) -> bool {
    match target {
        Value::List(items) => items.iter().any(|item| item == wanted),
        Value::Null | Value::Object(_) => false,
        scalar => match (scalar.to_text(), wanted) {
            (_, Value::Null | Value::List(_) | Value::Object(_)) | (None, _) => false,
            (Some(text), wanted) => wanted.to_text().is_some_and(|part| text.contains(&part)),
        },
    }
}
