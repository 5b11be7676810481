//! Functions on lists and objects. Null in, null out.

use super::{Context, Function, Purity, arg, optional, required, text_of, wrong};
use crate::expr::ops::{self, Fault};
use crate::expr::types::Type;
use crate::value::Value;
use std::sync::Arc;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "length",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "Characters of a text, elements of a list, keys of an object.",
        example: ("length('paid')", "4"),
        call: length,
    },
    Function {
        name: "is_empty",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Bool,
        purity: Purity::Pure,
        doc: "Whether it is null, '', [] or {}.",
        example: ("is_empty([])", "true"),
        call: is_empty,
    },
    Function {
        name: "contains",
        params: &[required("value", Type::Any), required("item", Type::Any)],
        variadic: false,
        returns: Type::Bool,
        purity: Purity::Pure,
        doc: "Whether a list has the element, an object the key, or a text the part.",
        example: ("contains(['a', 'b'], 'a')", "true"),
        call: contains,
    },
    Function {
        name: "first",
        params: &[required("list", Type::List)],
        variadic: false,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "The first element.",
        example: ("first([1, 2])", "1"),
        call: first,
    },
    Function {
        name: "last",
        params: &[required("list", Type::List)],
        variadic: false,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "The last element.",
        example: ("last([1, 2])", "2"),
        call: last,
    },
    Function {
        name: "slice",
        params: &[required("list", Type::List), required("start", Type::Number), optional("count", Type::Number)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "A part of a list, counted from 0; a negative start counts from the end.",
        example: ("slice([1, 2, 3], 1)", "[2, 3]"),
        call: slice,
    },
    Function {
        name: "reverse",
        params: &[required("list", Type::List)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "In reverse order.",
        example: ("reverse([1, 2])", "[2, 1]"),
        call: reverse,
    },
    Function {
        name: "sort",
        params: &[required("list", Type::List)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "In order; nulls last.",
        example: ("sort([3, 1, 2])", "[1, 2, 3]"),
        call: sort,
    },
    Function {
        name: "unique",
        params: &[required("list", Type::List)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "Every element once.",
        example: ("unique([1, 1.0, 2])", "[1, 2]"),
        call: unique,
    },
    Function {
        name: "keys",
        params: &[required("object", Type::Object)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "The keys of an object.",
        example: ("keys({\"a\": 1})", "[\"a\"]"),
        call: keys,
    },
    Function {
        name: "values",
        params: &[required("object", Type::Object)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "The values of an object.",
        example: ("values({\"a\": 1})", "[1]"),
        call: values,
    },
    Function {
        name: "get",
        params: &[required("value", Type::Any), required("path", Type::Text), optional("fallback", Type::Any)],
        variadic: false,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "The member at a dotted path, or the fallback.",
        example: ("get({\"a\": {\"b\": 1}}, 'a.b')", "1"),
        call: get,
    },
    Function {
        name: "pluck",
        params: &[required("list", Type::List), required("key", Type::Text)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "The member of each element of a list.",
        example: ("pluck([{\"id\": 1}, {\"id\": 2}], 'id')", "[1, 2]"),
        call: pluck,
    },
    Function {
        name: "merge",
        params: &[required("object", Type::Object)],
        variadic: true,
        returns: Type::Object,
        purity: Purity::Pure,
        doc: "The objects as one; later keys win.",
        example: ("merge({\"a\": 1}, {\"a\": 2, \"b\": 3})", "{\"a\": 2, \"b\": 3}"),
        call: merge,
    },
    Function {
        name: "without",
        params: &[required("object", Type::Object), required("key", Type::Text)],
        variadic: true,
        returns: Type::Object,
        purity: Purity::Pure,
        doc: "The object without these keys.",
        example: ("without({\"a\": 1, \"b\": 2}, 'a')", "{\"b\": 2}"),
        call: without,
    },
    Function {
        name: "range",
        params: &[required("start", Type::Number), required("end", Type::Number)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "Whole numbers from start up to and including end.",
        example: ("range(1, 3)", "[1, 2, 3]"),
        call: range,
    },
];

fn length(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let length = match arg(args, 0) {
        Value::Null => return Ok(Value::Null),
        Value::List(items) => items.len(),
        Value::Object(object) => object.len(),
        value => text_of(value, context)?.map_or(0, |text| text.chars().count()),
    };
    Ok(Value::int(length as i64))
}

fn is_empty(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(Value::Bool(match arg(args, 0) {
        Value::Null => true,
        Value::Text(text) => text.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    }))
}

fn contains(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let item = arg(args, 1);
    Ok(Value::Bool(match arg(args, 0) {
        Value::Null => false,
        Value::List(items) => {
            context.steps(items.len())?;
            for other in items.iter() {
                context.work(ops::work_to_compare(other, item))?;
            }
            items.iter().any(|other| ops::equal(other, item))
        }
        Value::Object(object) => text_of(item, context)?.is_some_and(|key| object.get(&key).is_some()),
        value => match (text_of(value, context)?, text_of(item, context)?) {
            (Some(text), Some(part)) => text.contains(&part),
            _ => false,
        },
    }))
}

/// The list in the first argument; `None` for null.
fn list<'a>(name: &str, args: &'a [Value], context: &mut Context<'_>) -> Result<Option<&'a Arc<Vec<Value>>>, Fault> {
    match arg(args, 0) {
        Value::Null => Ok(None),
        Value::List(items) => {
            context.steps(items.len() / 4)?;
            Ok(Some(items))
        }
        other => Err(wrong(name, "a list", other)),
    }
}

fn first(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(list("first", args, context)?.and_then(|items| items.first().cloned()).unwrap_or_default())
}

fn last(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(list("last", args, context)?.and_then(|items| items.last().cloned()).unwrap_or_default())
}

fn slice(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some(items) = list("slice", args, context)? else { return Ok(Value::Null) };
    context.work(args[1..].iter().fold(0, |sum: usize, value| sum.saturating_add(ops::work_to_number(value))))?;
    let whole = |value: &Value| match value {
        Value::Number(n) => n.floor().and_then(|n| n.to_i64()).ok_or_else(|| Fault::out_of_range("number")),
        other => Err(wrong("slice", "a number", other)),
    };
    let start = match whole(arg(args, 1))? {
        start if start < 0 => items.len().saturating_sub(start.unsigned_abs() as usize),
        start => start as usize,
    };
    let count = match args.get(2) {
        Some(count) => usize::try_from(whole(count)?).unwrap_or(0),
        None => usize::MAX,
    };
    context.output(items.len().min(count) * 16)?;
    Ok(Value::list(items.iter().skip(start).take(count).cloned().collect()))
}

fn reverse(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some(items) = list("reverse", args, context)? else { return Ok(Value::Null) };
    context.output(items.len() * 16)?;
    Ok(Value::list(items.iter().rev().cloned().collect()))
}

fn sort(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some(items) = list("sort", args, context)? else { return Ok(Value::Null) };
    context.output(items.len() * 16)?;
    context.steps(items.len().saturating_mul(4))?;
    // Each element is compared as often as the list can be halved, and once before.
    let turns = 2 + items.len().checked_ilog2().unwrap_or(0) as usize;
    for item in items.iter() {
        context.work(item.work().saturating_mul(turns))?;
    }
    let mut sorted: Vec<Value> = items.iter().filter(|v| !v.is_null()).cloned().collect();
    // every pair has an order if each has one with the first of its type
    for pair in sorted.windows(2) {
        if pair[0].type_name() != pair[1].type_name() {
            return Err(Fault::mismatch(format!(
                "cannot sort {} and {} together",
                ops::with_article(&pair[0]),
                ops::with_article(&pair[1])
            )));
        }
        ops::order(&pair[0], &pair[1])?;
    }
    sorted.sort_by(total_order);
    sorted.resize(items.len(), Value::Null);
    Ok(Value::list(sorted))
}

/// A total order among values of one type; texts by code point only, so that it is consistent.
fn total_order(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        _ => ops::order(a, b).ok().flatten().unwrap_or(std::cmp::Ordering::Equal),
    }
}

fn unique(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some(items) = list("unique", args, context)? else { return Ok(Value::Null) };
    let mut kept: Vec<Value> = Vec::new();
    let mut work_of_kept = 0_usize;
    for item in items.iter() {
        context.steps(1 + kept.len() / 8)?;
        let work = if matches!(item, Value::Number(n) if n.cost() == 1) { 0 } else { item.work() };
        context.work(work.saturating_mul(kept.len()).saturating_add(if work == 0 { 0 } else { work_of_kept }))?;
        work_of_kept = work_of_kept.saturating_add(work);
        if !kept.contains(item) {
            kept.push(item.clone());
        }
    }
    context.output(kept.len() * 16)?;
    Ok(Value::list(kept))
}

fn keys(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    match arg(args, 0) {
        Value::Null => Ok(Value::Null),
        Value::Object(object) => {
            context.output(object.len() * 16)?;
            Ok(Value::list(object.iter().map(|(key, _)| Value::Text(key.clone())).collect()))
        }
        other => Err(wrong("keys", "an object", other)),
    }
}

fn values(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    match arg(args, 0) {
        Value::Null => Ok(Value::Null),
        Value::Object(object) => {
            context.output(object.len() * 16)?;
            Ok(Value::list(object.iter().map(|(_, value)| value.clone()).collect()))
        }
        other => Err(wrong("values", "an object", other)),
    }
}

fn get(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let path = arg(args, 1).as_str().ok_or_else(|| wrong("get", "a path as text", arg(args, 1)))?;
    context.steps(path.len() / 64)?;
    let mut value = arg(args, 0);
    for name in path.split('.') {
        let next = match value {
            Value::List(_) => name.parse().ok().and_then(|i| value.at(i)),
            _ => value.get(name),
        };
        match next {
            Some(next) => value = next,
            None => return Ok(arg(args, 2).clone()),
        }
    }
    Ok(if value.is_null() { arg(args, 2).clone() } else { value.clone() })
}

fn pluck(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some(items) = list("pluck", args, context)? else { return Ok(Value::Null) };
    let key = arg(args, 1).as_str().ok_or_else(|| wrong("pluck", "a key as text", arg(args, 1)))?;
    context.output(items.len() * 16)?;
    Ok(Value::list(items.iter().map(|item| item.get(key).cloned().unwrap_or_default()).collect()))
}

fn merge(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let mut entries = Vec::new();
    for value in args {
        match value {
            Value::Null => {}
            Value::Object(object) => {
                context.output(object.len() * 32)?;
                entries.extend(object.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            other => return Err(wrong("merge", "objects", other)),
        }
    }
    Ok(Value::object(entries))
}

fn without(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let object = match arg(args, 0) {
        Value::Null => return Ok(Value::Null),
        Value::Object(object) => object,
        other => return Err(wrong("without", "an object", other)),
    };
    let mut dropped: Vec<String> = Vec::with_capacity(args.len());
    for key in &args[1..] {
        dropped.extend(text_of(key, context)?);
    }
    context.output(object.len() * 32)?;
    context.steps(object.len().saturating_mul(dropped.len()))?;
    let kept = object.iter().filter(|(key, _)| !dropped.iter().any(|d| **d == ***key));
    Ok(Value::object(kept.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

fn range(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let bound = |at: usize| match arg(args, at) {
        Value::Number(n) => n.to_i64().ok_or_else(|| Fault::invalid("range needs whole numbers")),
        other => Err(wrong("range", "numbers", other)),
    };
    context.work(ops::work_to_number(arg(args, 0)).saturating_add(ops::work_to_number(arg(args, 1))))?;
    let (start, end) = (bound(0)?, bound(1)?);
    let count = end.saturating_sub(start).saturating_add(1).max(0);
    context.output(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(16))?;
    Ok(Value::list((start..start + count).map(Value::int).collect()))
}
