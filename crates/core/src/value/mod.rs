//! The values of expressions: JSON plus exact numbers, instants, dates and durations.
//!
//! A value is cheap to clone: anything that can be large sits behind an `Arc`. Numbers are never rounded on the way
//! in or out, because a `numeric` column is often money.

mod duration;
mod image;
mod json;
mod number;
mod object;
mod shapes;
pub mod tagged;
mod time;

pub use duration::Duration;
pub(crate) use duration::unit_of;
pub use image::{Image, Unreadable};
pub use json::{MAX_LEVELS, levels};
pub(crate) use json::{unescape as unescape_json, write_string as write_json_string};
pub use number::Number;
pub use object::Object;
pub(crate) use time::parse_clock;
pub use time::{Date, Timestamp};

use crate::expr::{ExprError, ExprErrorKind};
use std::sync::Arc;

/// One value of the expression language.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Nothing; also the value of a missing path.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An exact decimal number.
    Number(Number),
    /// Text.
    Text(Arc<str>),
    /// An instant in UTC, in microseconds as Postgres keeps it.
    Time(Timestamp),
    /// A calendar date.
    Date(Date),
    /// A length of time: months, days and microseconds kept apart, as in a Postgres interval.
    Duration(Duration),
    /// A list.
    List(Arc<Vec<Value>>),
    /// An object; keys keep the order in which they came.
    Object(Arc<Object>),
}

impl Value {
    /// Reads a JSON document. Numbers are exact, nesting is limited, a lone surrogate or NUL is an error.
    pub fn from_json(text: &str) -> Result<Value, ExprError> {
        json::parse(text).map_err(|e| {
            let kind = if e.too_costly { ExprErrorKind::BudgetExceeded } else { ExprErrorKind::InvalidValue };
            ExprError::new(kind, e.at..e.at, format!("invalid JSON: {}", e.message))
        })
    }

    /// Converts a parsed serde document.
    pub fn from_serde(value: &serde_json::Value) -> Value {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(b) => Value::Bool(*b),
            // arbitrary_precision keeps the digits as written; a number out of numeric's range stays readable as text
            serde_json::Value::Number(n) => {
                let digits = n.to_string();
                Number::parse(&digits).map_or_else(|| Value::text(digits), Value::Number)
            }
            serde_json::Value::String(s) => Value::text(s.as_str()),
            serde_json::Value::Array(items) => Value::list(items.iter().map(Value::from_serde).collect()),
            serde_json::Value::Object(map) => {
                Value::object(map.iter().map(|(k, v)| (Arc::from(k.as_str()), Value::from_serde(v))).collect())
            }
        }
    }

    /// Makes a text value.
    pub fn text(text: impl AsRef<str>) -> Value {
        Value::Text(Arc::from(text.as_ref()))
    }

    /// Makes a whole number.
    pub fn int(number: i64) -> Value {
        Value::Number(Number::from(number))
    }

    /// Makes a list.
    pub fn list(items: Vec<Value>) -> Value {
        Value::List(Arc::new(items))
    }

    /// Makes an object; of equal keys the last wins.
    pub fn object(entries: Vec<(Arc<str>, Value)>) -> Value {
        Value::Object(Arc::new(Object::new(entries)))
    }

    /// Prints JSON: times as RFC 3339 in UTC, durations as ISO 8601, numbers with every digit.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        json::write(self, &mut out);
        out
    }

    /// Appends the text of [`Value::to_json`].
    pub fn write_json(&self, out: &mut String) {
        json::write(self, out);
    }

    /// The plain text Postgres reads back for any type: `None` for null, text raw, lists and objects as JSON.
    pub fn to_text(&self) -> Option<String> {
        match self {
            Value::Null => None,
            Value::Bool(b) => Some(b.to_string()),
            Value::Number(n) => Some(n.to_string()),
            Value::Text(t) => Some(t.to_string()),
            Value::Time(t) => Some(t.to_postgres()),
            Value::Date(d) => Some(d.to_string()),
            Value::Duration(d) => Some(d.to_string()),
            Value::List(_) | Value::Object(_) => Some(self.to_json()),
        }
    }

    /// The member of an object, or `None` for anything else.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Object(object) => object.get(key),
            _ => None,
        }
    }

    /// The element of a list, counted from 0.
    pub fn at(&self, index: usize) -> Option<&Value> {
        match self {
            Value::List(items) => items.get(index),
            _ => None,
        }
    }

    /// Whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The boolean inside, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The text inside, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(t) => Some(t),
            _ => None,
        }
    }

    /// The name of the type, as messages show it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::Text(_) => "text",
            Value::Time(_) => "time",
            Value::Date(_) => "date",
            Value::Duration(_) => "duration",
            Value::List(_) => "list",
            Value::Object(_) => "object",
        }
    }

    /// An instant: a time, a date at midnight UTC, or text in ISO 8601.
    pub fn as_time(&self) -> Option<Timestamp> {
        match self {
            Value::Time(t) => Some(*t),
            Value::Date(d) => Some(d.midnight()),
            Value::Text(t) => Timestamp::parse(t),
            _ => None,
        }
    }

    /// A duration, or text that spells one.
    pub fn as_duration(&self) -> Option<Duration> {
        match self {
            Value::Duration(d) => Some(*d),
            Value::Text(t) => Duration::parse(t),
            _ => None,
        }
    }

    /// Upper bound of the time to go through all of this value once, in nanoseconds or so; budgets charge it.
    pub(crate) fn work(&self) -> usize {
        match self {
            Value::Null | Value::Bool(_) | Value::Time(_) | Value::Date(_) | Value::Duration(_) => 8,
            Value::Number(n) => n.work(),
            Value::Text(t) => 8 + t.len() / 8,
            Value::List(items) => items.iter().fold(8, |sum: usize, item| sum.saturating_add(item.work())),
            Value::Object(object) => object.iter().fold(8, |sum: usize, (key, value)| {
                sum.saturating_add(16 + key.len() / 8).saturating_add(value.work())
            }),
        }
    }

    /// A number, or text that spells one.
    pub fn as_number(&self) -> Option<Number> {
        match self {
            Value::Number(n) => Some(n.clone()),
            Value::Text(t) => Number::parse(t.trim()),
            _ => None,
        }
    }
}

/// The boolean that a text spells, in the words that Postgres reads as one.
pub fn boolean_from_text(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Strict equality as jsonb has it: `1 = 1.0`, but `"1"` is not `1`.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Number(a), Value::Number(b)) => a == b,
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::Time(a), Value::Time(b)) => a == b,
            (Value::Date(a), Value::Date(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::List(a), Value::List(b)) => a == b,
            (Value::Object(a), Value::Object(b)) => a == b,
            _ => false,
        }
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

impl From<Number> for Value {
    fn from(n: Number) -> Value {
        Value::Number(n)
    }
}
