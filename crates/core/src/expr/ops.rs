//! The operators on values: equality, order and arithmetic.
//!
//! Two-valued: null equals only null, and ordering against null is false.

use super::ast::{ArithmeticOp, CompareOp};
use super::error::{ExprError, ExprErrorKind};
use crate::value::{Number, Timestamp, Value};
use std::cmp::Ordering;

/// A failure without its place; the evaluator adds it.
pub struct Fault {
    /// The kind of mistake.
    pub kind: ExprErrorKind,
    /// Lower case, no full stop.
    pub message: String,
    /// A text to write instead.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(kind: ExprErrorKind, message: impl Into<String>) -> Fault {
        Fault { kind, message: message.into(), hint: None }
    }

    /// A value that is not allowed.
    pub fn invalid(message: impl Into<String>) -> Fault {
        Fault::new(ExprErrorKind::InvalidValue, message)
    }

    /// A number, time or duration that is too large.
    pub fn out_of_range(what: &str) -> Fault {
        Fault::new(ExprErrorKind::OutOfRange, format!("{what} out of range"))
    }

    /// A division by zero.
    pub fn division_by_zero() -> Fault {
        Fault::new(ExprErrorKind::DivisionByZero, "division by zero")
    }

    /// Values of the wrong type.
    pub fn mismatch(message: impl Into<String>) -> Fault {
        Fault::new(ExprErrorKind::TypeMismatch, message)
    }

    /// Adds a hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Box<ExprError>> for Fault {
    fn from(error: Box<ExprError>) -> Fault {
        Fault { kind: error.kind, message: error.message, hint: error.hint }
    }
}

/// Upper bound of the time to tell whether two values are equal or which comes first, in nanoseconds or so.
pub fn work_to_compare(a: &Value, b: &Value) -> usize {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => a.len().min(b.len()) / 8,
        (Value::Number(n), Value::Text(t)) | (Value::Text(t), Value::Number(n)) => {
            n.work().saturating_mul(4).saturating_add(Number::work_to_parse(t)).saturating_add(t.len() / 8)
        }
        // Numbers of different scales are brought to the same one.
        (Value::Number(a), Value::Number(b)) if a.cost() + b.cost() > 2 => a.work_to_align(b),
        (Value::List(_), Value::List(_)) | (Value::Object(_), Value::Object(_)) => {
            a.work().saturating_add(b.work()).saturating_mul(2)
        }
        _ => 0,
    }
}

/// Upper bound of the time to write a value as text.
pub fn work_to_print(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len() / 8,
        Value::Number(n) if n.cost() == 1 => 0,
        Value::List(_) | Value::Object(_) => value.work().saturating_mul(4),
        other => other.work().saturating_mul(2),
    }
}

/// Upper bound of the time to read a value as a number and to do something with it.
pub fn work_to_number(value: &Value) -> usize {
    match value {
        Value::Text(text) => Number::work_to_parse(text).saturating_mul(2),
        Value::Number(n) if n.cost() > 1 => n.work().saturating_mul(2),
        _ => 0,
    }
}

/// `a = b`. Same types compare by value; a number and a text compare as text; times meet texts as instants.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(n), Value::Text(t)) | (Value::Text(t), Value::Number(n)) => number_is_text(n, t),
        (Value::Time(t), other) | (other, Value::Time(t)) => other.as_time() == Some(*t),
        (Value::Date(d), other @ Value::Text(_)) | (other @ Value::Text(_), Value::Date(d)) => {
            other.as_time() == Some(d.midnight())
        }
        (Value::Duration(d), other @ Value::Text(_)) | (other @ Value::Text(_), Value::Duration(d)) => {
            other.as_duration() == Some(*d)
        }
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b)),
        _ => a == b,
    }
}

fn number_is_text(number: &Number, text: &str) -> bool {
    text.len() <= 1024 && number.trimmed().to_string() == text || number.to_string() == text
}

/// The order of two values, `Ok(None)` if one is null; an error if they have no order.
pub fn order(a: &Value, b: &Value) -> Result<Option<Ordering>, Fault> {
    Ok(Some(match (a, b) {
        (Value::Null, _) | (_, Value::Null) => return Ok(None),
        (Value::Number(a), Value::Number(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => order_texts(a, b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Number(n), Value::Text(t)) => order_number_text(n, t),
        (Value::Text(t), Value::Number(n)) => order_number_text(n, t).reverse(),
        (Value::Duration(_), Value::Text(_)) | (Value::Text(_), Value::Duration(_)) => {
            match (a.as_duration(), b.as_duration()) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => return Err(no_order(a, b)),
            }
        }
        (Value::Time(_) | Value::Date(_), Value::Time(_) | Value::Date(_) | Value::Text(_))
        | (Value::Text(_), Value::Time(_) | Value::Date(_)) => match (a.as_time(), b.as_time()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => return Err(no_order(a, b)),
        },
        (Value::List(_) | Value::Object(_), _) | (_, Value::List(_) | Value::Object(_)) => return Err(no_order(a, b)),
        _ => return Err(no_order(a, b)),
    }))
}

/// Texts that are both ISO instants compare as instants, also with different offsets; others by code point.
fn order_texts(a: &str, b: &str) -> Ordering {
    match (Timestamp::parse(a), Timestamp::parse(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.cmp(b),
    }
}

fn order_number_text(number: &Number, text: &str) -> Ordering {
    match Number::parse(text.trim()) {
        Some(other) => number.cmp(&other),
        None => number.to_string().as_str().cmp(text),
    }
}

fn no_order(a: &Value, b: &Value) -> Fault {
    Fault::mismatch(format!("cannot order {} and {}", with_article(a), with_article(b)))
}

/// `a text`, `an object`.
pub fn with_article(value: &Value) -> String {
    let name = value.type_name();
    match name.as_bytes()[0] {
        b'o' => format!("an {name}"),
        _ => format!("a {name}"),
    }
}

/// Applies a comparison operator.
#[inline]
pub fn compare(op: CompareOp, a: &Value, b: &Value) -> Result<bool, Fault> {
    Ok(match op {
        CompareOp::Equal => equal(a, b),
        CompareOp::NotEqual => !equal(a, b),
        CompareOp::Less => order(a, b)? == Some(Ordering::Less),
        CompareOp::LessOrEqual => matches!(order(a, b)?, Some(Ordering::Less | Ordering::Equal)),
        CompareOp::Greater => order(a, b)? == Some(Ordering::Greater),
        CompareOp::GreaterOrEqual => matches!(order(a, b)?, Some(Ordering::Greater | Ordering::Equal)),
    })
}

/// Applies an arithmetic operator. Anything with null is null.
pub fn arithmetic(op: ArithmeticOp, a: &Value, b: &Value) -> Result<Value, Fault> {
    use ArithmeticOp::{Add, Divide, Multiply, Remainder, Subtract};
    match (op, a, b) {
        (_, Value::Null, _) | (_, _, Value::Null) => Ok(Value::Null),
        (_, Value::Number(a), Value::Number(b)) => numbers(op, a, b),
        (Add, Value::Text(_), _) | (Add, Value::Number(_) | Value::Bool(_), Value::Text(_)) => join(a, b),
        (Add, Value::Time(t), Value::Duration(_) | Value::Text(_)) => shift_time(*t, a, b, false),
        (Add, Value::Duration(_), Value::Time(t)) => shift_time(*t, b, a, false),
        (Subtract, Value::Time(t), Value::Duration(_)) => shift_time(*t, a, b, true),
        (Add | Subtract, Value::Date(d), Value::Duration(length)) => {
            // a whole number of days keeps a date a date
            let moved = shift_time(d.midnight(), a, b, op == Subtract)?;
            Ok(match moved {
                Value::Time(t) if length.micros == 0 => Value::Date(t.date()),
                other => other,
            })
        }
        (Add, Value::Duration(_), Value::Date(_)) => arithmetic(Add, b, a),
        (Add | Subtract, Value::Date(d), Value::Number(n)) => {
            let days = n.to_i64().and_then(|n| if op == Add { Some(n) } else { n.checked_neg() });
            let day = days.and_then(|n| i64::from(d.0).checked_add(n)).and_then(|n| i32::try_from(n).ok());
            day.map(|n| Value::Date(crate::value::Date(n))).ok_or_else(|| Fault::out_of_range("date"))
        }
        (Subtract, Value::Date(a), Value::Date(b)) => Ok(Value::int(i64::from(a.0) - i64::from(b.0))),
        (Subtract, Value::Time(_) | Value::Date(_), _) | (Subtract, _, Value::Time(_) | Value::Date(_)) => {
            time_difference(a, b)
        }
        (Add | Subtract, Value::Duration(d), other) | (Add, other, Value::Duration(d)) => {
            let second = other.as_duration().ok_or_else(|| no_operator(op, a, b))?;
            let second = if op == Subtract { second.negated() } else { Some(second) };
            let sum = second.and_then(|second| d.plus(second));
            sum.map(Value::Duration).ok_or_else(|| Fault::out_of_range("duration"))
        }
        (Subtract, Value::Text(_), Value::Duration(_)) => match a.as_time() {
            Some(t) => shift_time(t, a, b, true),
            None => Err(no_operator(op, a, b)),
        },
        (Multiply, Value::Duration(d), Value::Number(n)) | (Multiply, Value::Number(n), Value::Duration(d)) => {
            d.times(n).map(Value::Duration).ok_or_else(|| Fault::out_of_range("duration"))
        }
        (Divide, Value::Duration(d), Value::Number(n)) => {
            let part = Number::from(1).div(n).ok_or_else(Fault::division_by_zero)?;
            d.times(&part).map(Value::Duration).ok_or_else(|| Fault::out_of_range("duration"))
        }
        (Subtract | Multiply | Divide | Remainder, Value::Text(_), Value::Number(_) | Value::Text(_))
        | (Subtract | Multiply | Divide | Remainder, Value::Number(_), Value::Text(_)) => {
            // texts that spell numbers count as numbers, as they do when compared
            match (a.as_number(), b.as_number()) {
                (Some(a), Some(b)) => numbers(op, &a, &b),
                _ => Err(no_operator(op, a, b)),
            }
        }
        (Add, Value::List(a), Value::List(b)) => Ok(Value::list(a.iter().chain(b.iter()).cloned().collect())),
        _ => Err(no_operator(op, a, b)),
    }
}

fn numbers(op: ArithmeticOp, a: &Number, b: &Number) -> Result<Value, Fault> {
    let divides = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Remainder);
    if divides && b.is_zero() {
        return Err(Fault::division_by_zero());
    }
    let result = match op {
        ArithmeticOp::Add => a.add(b),
        ArithmeticOp::Subtract => a.sub(b),
        ArithmeticOp::Multiply => a.mul(b),
        ArithmeticOp::Divide => a.div(b),
        ArithmeticOp::Remainder => a.rem(b),
    };
    result.map(Value::Number).ok_or_else(|| Fault::out_of_range("number"))
}

fn join(a: &Value, b: &Value) -> Result<Value, Fault> {
    match (a.to_text(), b.to_text()) {
        (Some(a), Some(b)) => Ok(Value::text(a + &b)),
        _ => Ok(Value::Null),
    }
}

fn shift_time(time: Timestamp, a: &Value, length: &Value, back: bool) -> Result<Value, Fault> {
    let Some(length) = length.as_duration() else {
        return Err(no_operator(ArithmeticOp::Add, a, length)
            .with_hint("To join a time and a text, write text(time) + 'text'."));
    };
    let length = if back { length.negated() } else { Some(length) };
    let moved = length.and_then(|length| time.plus(length));
    moved.map(Value::Time).ok_or_else(|| Fault::out_of_range("time"))
}

fn time_difference(a: &Value, b: &Value) -> Result<Value, Fault> {
    if let (Value::Time(t), None, Value::Text(_)) = (a, b.as_time(), b) {
        return shift_time(*t, a, b, true);
    }
    match (a.as_time(), b.as_time()) {
        (Some(a), Some(b)) => a.minus(b).map(Value::Duration).ok_or_else(|| Fault::out_of_range("duration")),
        _ => Err(no_operator(ArithmeticOp::Subtract, a, b)),
    }
}

fn no_operator(op: ArithmeticOp, a: &Value, b: &Value) -> Fault {
    Fault::mismatch(format!("operator {} does not take {} and {}", op.symbol(), with_article(a), with_article(b)))
}

/// SQL `LIKE`: `%` any run, `_` any character, `\` escapes. Linear in the product of the lengths at worst.
pub fn like(text: &str, pattern: &str, any_case: bool) -> bool {
    let fold =
        |s: &str| -> Vec<char> { if any_case { s.to_lowercase().chars().collect() } else { s.chars().collect() } };
    let (text, pattern) = (fold(text), fold(pattern));
    let (mut t, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        let (matched, width) = match pattern.get(p) {
            Some('%') => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('_') => (true, 1),
            Some('\\') => (pattern.get(p + 1) == text.get(t), 2),
            Some(c) => (*c == text[t], 1),
            None => (false, 0),
        };
        if matched {
            t += 1;
            p += width;
        } else if let Some((after, from)) = retry {
            retry = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '%')
}
