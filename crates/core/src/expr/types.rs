//! Coarse static types, for checking and documentation.

use crate::value::Value;
use std::fmt;

/// The type of a value, as far as it is known before the value exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Nothing is known.
    Any,
    /// Null.
    Null,
    /// True or false.
    Bool,
    /// A number.
    Number,
    /// A text.
    Text,
    /// An instant.
    Time,
    /// A date.
    Date,
    /// A length of time.
    Duration,
    /// A list.
    List,
    /// An object.
    Object,
}

impl Type {
    /// With its article: `a number`.
    pub fn phrase(self) -> &'static str {
        match self {
            Type::Any => "anything",
            Type::Null => "null",
            Type::Bool => "a boolean",
            Type::Number => "a number",
            Type::Text => "a text",
            Type::Time => "a time",
            Type::Date => "a date",
            Type::Duration => "a duration",
            Type::List => "a list",
            Type::Object => "an object",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Any => "any",
            Type::Null => "null",
            Type::Bool => "boolean",
            Type::Number => "number",
            Type::Text => "text",
            Type::Time => "time",
            Type::Date => "date",
            Type::Duration => "duration",
            Type::List => "list",
            Type::Object => "object",
        })
    }
}

/// The type of a value.
pub fn type_of(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Number(_) => Type::Number,
        Value::Text(_) => Type::Text,
        Value::Time(_) => Type::Time,
        Value::Date(_) => Type::Date,
        Value::Duration(_) => Type::Duration,
        Value::List(_) => Type::List,
        Value::Object(_) => Type::Object,
    }
}
