//! Null handling, conversion and JSON.

use super::{Context, Function, Purity, arg, required, text_of, wrong};
use crate::expr::ExprErrorKind;
use crate::expr::ops::{self, Fault};
use crate::expr::types::Type;
use crate::value::{Number, Value};

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "coalesce",
        params: &[required("value", Type::Any)],
        variadic: true,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "The first argument that is not null.",
        example: ("coalesce(null, 'a', 'b')", "\"a\""),
        call: coalesce,
    },
    Function {
        name: "default",
        params: &[required("value", Type::Any), required("fallback", Type::Any)],
        variadic: false,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "The value, or the fallback if it is null.",
        example: ("null | default('n/a')", "\"n/a\""),
        call: coalesce,
    },
    Function {
        name: "nullif",
        params: &[required("value", Type::Any), required("other", Type::Any)],
        variadic: false,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "Null if both are equal, else the value.",
        example: ("nullif('', '')", "null"),
        call: nullif,
    },
    Function {
        name: "text",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "The value as text; null stays null.",
        example: ("text(1.50) + '!'", "\"1.50!\""),
        call: to_text,
    },
    Function {
        name: "number",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The text or boolean as an exact number; null if it is none.",
        example: ("number('12.5') * 2", "25.0"),
        call: to_number,
    },
    Function {
        name: "boolean",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Bool,
        purity: Purity::Pure,
        doc: "The texts 'true', 'yes', 'on', 't', '1' and their opposites as a boolean; null if it is none.",
        example: ("boolean('yes')", "true"),
        call: to_boolean,
    },
    Function {
        name: "json",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "The value as JSON text.",
        example: ("json({\"a\": [1, null]})", "\"{\\\"a\\\": [1, null]}\""),
        call: json,
    },
    Function {
        name: "parse_json",
        params: &[required("text", Type::Text)],
        variadic: false,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "The value a JSON text stands for; null if it is not JSON.",
        example: ("parse_json('[1, 2]')[1]", "2"),
        call: parse_json,
    },
    Function {
        name: "type_of",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "The name of the type: null, boolean, number, text, time, date, duration, list or object.",
        example: ("type_of([1])", "\"list\""),
        call: type_of,
    },
];

fn coalesce(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(args.iter().find(|v| !v.is_null()).cloned().unwrap_or_default())
}

fn nullif(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let value = arg(args, 0);
    context.work(ops::work_to_compare(value, arg(args, 1)))?;
    Ok(if ops::equal(value, arg(args, 1)) { Value::Null } else { value.clone() })
}

fn to_text(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some(text) = text_of(arg(args, 0), context)? else { return Ok(Value::Null) };
    context.output(text.len())?;
    Ok(Value::text(text))
}

fn to_number(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(match arg(args, 0) {
        Value::Bool(b) => Value::int(i64::from(*b)),
        Value::Text(text) => {
            context.output(text.len())?;
            context.work(Number::work_to_parse(text))?;
            Number::parse(text.trim()).map_or(Value::Null, Value::Number)
        }
        value @ Value::Number(_) => value.clone(),
        _ => Value::Null,
    })
}

fn to_boolean(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    context.work(ops::work_to_print(arg(args, 0)))?;
    Ok(match arg(args, 0) {
        Value::Bool(b) => Value::Bool(*b),
        Value::Number(n) => Value::Bool(!n.is_zero()),
        Value::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "on" | "1" => Value::Bool(true),
            "false" | "f" | "no" | "n" | "off" | "0" => Value::Bool(false),
            _ => Value::Null,
        },
        _ => Value::Null,
    })
}

fn json(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    context.work(ops::work_to_print(arg(args, 0)))?;
    let text = arg(args, 0).to_json();
    context.output(text.len())?;
    Ok(Value::text(text))
}

fn parse_json(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    match arg(args, 0) {
        Value::Null => Ok(Value::Null),
        Value::Text(text) => {
            context.output(text.len())?;
            let value = match Value::from_json(text) {
                Ok(value) => value,
                Err(error) if error.kind == ExprErrorKind::BudgetExceeded => {
                    return Err(Fault::new(error.kind, error.message));
                }
                Err(_) => Value::Null,
            };
            // The numbers in the value can be much longer than they are written.
            context.work(value.work())?;
            Ok(value)
        }
        other => Err(wrong("parse_json", "a text", other)),
    }
}

fn type_of(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(Value::text(arg(args, 0).type_name()))
}
