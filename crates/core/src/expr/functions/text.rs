//! Functions on text. Null in, null out; other types are taken as their text.

use super::{Context, Function, Purity, arg, optional, pattern, required, text_of, wrong};
use crate::expr::ops::{self, Fault};
use crate::expr::types::Type;
use crate::value::Value;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "lower",
        params: &[required("text", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "In lower case.",
        example: ("lower('ABC')", "\"abc\""),
        call: lower,
    },
    Function {
        name: "upper",
        params: &[required("text", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "In upper case.",
        example: ("upper('abc')", "\"ABC\""),
        call: upper,
    },
    Function {
        name: "capitalize",
        params: &[required("text", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "With the first letter in upper case.",
        example: ("capitalize('paid')", "\"Paid\""),
        call: capitalize,
    },
    Function {
        name: "trim",
        params: &[required("text", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "Without space at either end.",
        example: ("trim('  a ')", "\"a\""),
        call: trim,
    },
    Function {
        name: "replace",
        params: &[required("text", Type::Text), required("from", Type::Text), required("to", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "With every occurrence replaced.",
        example: ("replace('a-b-c', '-', '.')", "\"a.b.c\""),
        call: replace,
    },
    Function {
        name: "substring",
        params: &[required("text", Type::Text), required("start", Type::Number), optional("length", Type::Number)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "A part, counted from 1 as in SQL.",
        example: ("substring('paid', 2, 2)", "\"ai\""),
        call: substring,
    },
    Function {
        name: "left",
        params: &[required("text", Type::Text), required("count", Type::Number)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "The first characters.",
        example: ("left('paid', 2)", "\"pa\""),
        call: left,
    },
    Function {
        name: "right",
        params: &[required("text", Type::Text), required("count", Type::Number)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "The last characters.",
        example: ("right('paid', 2)", "\"id\""),
        call: right,
    },
    Function {
        name: "truncate",
        params: &[required("text", Type::Text), required("count", Type::Number)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "At most this many characters, with … if it was cut.",
        example: ("truncate('a long text', 7)", "\"a long…\""),
        call: truncate,
    },
    Function {
        name: "pad_left",
        params: &[required("text", Type::Text), required("width", Type::Number), optional("fill", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "Filled up on the left, with spaces unless told otherwise.",
        example: ("pad_left(7, 3, '0')", "\"007\""),
        call: pad_left,
    },
    Function {
        name: "starts_with",
        params: &[required("text", Type::Text), required("part", Type::Text)],
        variadic: false,
        returns: Type::Bool,
        purity: Purity::Pure,
        doc: "Whether it begins so.",
        example: ("starts_with('paid', 'pa')", "true"),
        call: starts_with,
    },
    Function {
        name: "ends_with",
        params: &[required("text", Type::Text), required("part", Type::Text)],
        variadic: false,
        returns: Type::Bool,
        purity: Purity::Pure,
        doc: "Whether it ends so.",
        example: ("ends_with('paid', 'id')", "true"),
        call: ends_with,
    },
    Function {
        name: "matches",
        params: &[required("text", Type::Text), required("pattern", Type::Text)],
        variadic: false,
        returns: Type::Bool,
        purity: Purity::Pure,
        doc: "Whether a regular expression is found in it; no look-around, no back references.",
        example: ("matches('AB-12', '^[A-Z]+-[0-9]+$')", "true"),
        call: matches,
    },
    Function {
        name: "extract",
        params: &[required("text", Type::Text), required("pattern", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "The first group of a regular expression, or all that it matched; null if it is not found.",
        example: ("extract('order 42', '[0-9]+')", "\"42\""),
        call: extract,
    },
    Function {
        name: "split",
        params: &[required("text", Type::Text), required("separator", Type::Text)],
        variadic: false,
        returns: Type::List,
        purity: Purity::Pure,
        doc: "The parts between separators.",
        example: ("split('a,b', ',')", "[\"a\", \"b\"]"),
        call: split,
    },
    Function {
        name: "join",
        params: &[required("list", Type::List), optional("separator", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "The elements as one text; null elements are left out.",
        example: ("join([1, 'a', null], '-')", "\"1-a\""),
        call: join,
    },
    Function {
        name: "slug",
        params: &[required("text", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "Lower-case letters and digits joined by dashes.",
        example: ("slug('Hello, World!')", "\"hello-world\""),
        call: slug,
    },
];

fn map(args: &[Value], context: &mut Context<'_>, f: impl Fn(&str) -> String) -> Result<Value, Fault> {
    let Some(text) = text_of(arg(args, 0), context)? else { return Ok(Value::Null) };
    context.output(text.len())?;
    Ok(Value::text(f(&text)))
}

/// Both texts, or `None` if one is null.
fn two(args: &[Value], context: &mut Context<'_>) -> Result<Option<(String, String)>, Fault> {
    Ok(text_of(arg(args, 0), context)?.zip(text_of(arg(args, 1), context)?))
}

fn lower(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map(args, context, str::to_lowercase)
}

fn upper(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map(args, context, str::to_uppercase)
}

fn capitalize(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map(args, context, |text| {
        let mut chars = text.chars();
        chars.next().map(|c| c.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
    })
}

fn trim(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map(args, context, |text| text.trim().to_owned())
}

fn replace(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let (both, to) = (two(args, context)?, text_of(arg(args, 2), context)?);
    let (Some((text, from)), Some(to)) = (both, to) else { return Ok(Value::Null) };
    if from.is_empty() {
        return Ok(Value::text(text));
    }
    let found = text.matches(&from).count();
    context.output(text.len() + found.saturating_mul(to.len()))?;
    Ok(Value::text(text.replace(&from, &to)))
}

/// A count of characters; fractions are cut off and numbers below zero count as zero.
fn count(name: &str, value: &Value, context: &mut Context<'_>) -> Result<i64, Fault> {
    context.work(ops::work_to_number(value))?;
    match value {
        Value::Number(n) => n.floor().and_then(|n| n.to_i64()).ok_or_else(|| Fault::out_of_range("number")),
        other => Err(wrong(name, "a number", other)),
    }
}

fn substring(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    if args.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let start = count("substring", arg(args, 1), context)?;
    let end = match args.get(2) {
        Some(length) => match count("substring", length, context)? {
            length if length < 0 => return Err(Fault::invalid("negative substring length not allowed")),
            length => start.saturating_add(length),
        },
        None => i64::MAX,
    };
    let skip = usize::try_from(start.max(1) - 1).unwrap_or(usize::MAX);
    let take = usize::try_from(end.saturating_sub(start.max(1)).max(0)).unwrap_or(usize::MAX);
    map(args, context, |text| text.chars().skip(skip).take(take).collect())
}

fn left(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    if args.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let wanted = usize::try_from(count("left", arg(args, 1), context)?).unwrap_or(0);
    map(args, context, |text| text.chars().take(wanted).collect())
}

fn right(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    if args.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let wanted = usize::try_from(count("right", arg(args, 1), context)?).unwrap_or(0);
    map(args, context, |text| text.chars().skip(text.chars().count().saturating_sub(wanted)).collect())
}

fn truncate(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    if args.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let wanted = usize::try_from(count("truncate", arg(args, 1), context)?).unwrap_or(0);
    map(args, context, |text| {
        if text.chars().count() <= wanted {
            return text.to_owned();
        }
        text.chars().take(wanted.saturating_sub(1)).chain((wanted > 0).then_some('…')).collect()
    })
}

fn pad_left(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    if args.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let fill = text_of(arg(args, 2), context)?.and_then(|f| f.chars().next()).unwrap_or(' ');
    let wanted = usize::try_from(count("pad_left", arg(args, 1), context)?).unwrap_or(0);
    context.output(wanted.saturating_mul(fill.len_utf8()))?;
    map(args, context, |text| {
        let missing = wanted.saturating_sub(text.chars().count());
        std::iter::repeat_n(fill, missing).chain(text.chars()).collect()
    })
}

fn starts_with(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(Value::Bool(two(args, context)?.is_some_and(|(text, part)| text.starts_with(&part))))
}

fn ends_with(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(Value::Bool(two(args, context)?.is_some_and(|(text, part)| text.ends_with(&part))))
}

fn matches(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some((text, pattern)) = two(args, context)? else { return Ok(Value::Bool(false)) };
    Ok(Value::Bool(pattern::is_match(&pattern, &text, context)?))
}

fn extract(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some((text, pattern)) = two(args, context)? else { return Ok(Value::Null) };
    Ok(pattern::extract(&pattern, &text, context)?.map_or(Value::Null, |group| Value::text(&text[group])))
}

fn split(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some((text, separator)) = two(args, context)? else { return Ok(Value::Null) };
    if separator.is_empty() {
        return Ok(Value::list(vec![Value::text(text)]));
    }
    context.output(text.len() + text.matches(&separator).count() * 16)?;
    Ok(Value::list(text.split(&separator).map(Value::text).collect()))
}

fn join(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let separator = text_of(arg(args, 1), context)?.unwrap_or_default();
    match arg(args, 0) {
        Value::Null => Ok(Value::Null),
        Value::List(items) => {
            let mut parts = Vec::with_capacity(items.len());
            for item in items.iter() {
                let Some(text) = text_of(item, context)? else { continue };
                context.output(text.len() + separator.len())?;
                parts.push(text);
            }
            Ok(Value::text(parts.join(&separator)))
        }
        other => Err(wrong("join", "a list", other)),
    }
}

fn slug(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map(args, context, |text| {
        let lower = text.to_lowercase();
        let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
        words.join("-")
    })
}
