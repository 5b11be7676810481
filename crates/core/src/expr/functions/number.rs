//! Functions on numbers. Exact; null in, null out.

use super::{Context, Function, Purity, arg, number_of, optional, required, wrong};
use crate::expr::ops::{self, Fault};
use crate::expr::types::Type;
use crate::value::{Number, Value};

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "abs",
        params: &[required("x", Type::Number)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The distance from zero.",
        example: ("abs(-2.5)", "2.5"),
        call: abs,
    },
    Function {
        name: "round",
        params: &[required("x", Type::Number), optional("places", Type::Number)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "Rounded half away from zero.",
        example: ("round(2.345, 2)", "2.35"),
        call: round,
    },
    Function {
        name: "floor",
        params: &[required("x", Type::Number)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The largest whole number not above it.",
        example: ("floor(-2.5)", "-3"),
        call: floor,
    },
    Function {
        name: "ceil",
        params: &[required("x", Type::Number)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The smallest whole number not below it.",
        example: ("ceil(2.1)", "3"),
        call: ceil,
    },
    Function {
        name: "sign",
        params: &[required("x", Type::Number)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "-1, 0 or 1.",
        example: ("sign(-7)", "-1"),
        call: sign,
    },
    Function {
        name: "min",
        params: &[required("value", Type::Any)],
        variadic: true,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "The smallest argument, or element of a list; nulls are left out.",
        example: ("min(3, 1, null)", "1"),
        call: min,
    },
    Function {
        name: "max",
        params: &[required("value", Type::Any)],
        variadic: true,
        returns: Type::Any,
        purity: Purity::Pure,
        doc: "The largest argument, or element of a list; nulls are left out.",
        example: ("max([3, 10])", "10"),
        call: max,
    },
    Function {
        name: "sum",
        params: &[required("list", Type::List)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The sum of the numbers in a list; nulls are left out.",
        example: ("sum([0.1, 0.2])", "0.3"),
        call: sum,
    },
    Function {
        name: "avg",
        params: &[required("list", Type::List)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The mean of the numbers in a list; null if there are none.",
        example: ("avg([1, 2])", "1.5"),
        call: avg,
    },
];

fn map(
    name: &str,
    args: &[Value],
    context: &mut Context<'_>,
    f: impl Fn(&Number) -> Option<Number>,
) -> Result<Value, Fault> {
    match arg(args, 0) {
        Value::Null => Ok(Value::Null),
        value => {
            let number = number_of(value, context)?.ok_or_else(|| wrong(name, "a number", value))?;
            f(&number).map(Value::Number).ok_or_else(|| Fault::out_of_range("number"))
        }
    }
}

fn abs(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map("abs", args, context, |n| Some(n.abs()))
}

fn round(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    context.work(ops::work_to_number(arg(args, 1)))?;
    let places = match args.get(1) {
        None => 0,
        Some(Value::Number(n)) => n.to_i64().unwrap_or(0).clamp(-200_000, 200_000) as i32,
        Some(other) => return Err(wrong("round", "a number of places", other)),
    };
    map("round", args, context, |n| n.round(places))
}

fn floor(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map("floor", args, context, Number::floor)
}

fn ceil(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map("ceil", args, context, Number::ceil)
}

fn sign(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    map("sign", args, context, |n| {
        Some(Number::from(if n.is_zero() {
            0
        } else if n.is_negative() {
            -1
        } else {
            1
        }))
    })
}

/// The arguments, or the elements of the only one if it is a list.
fn items(args: &[Value]) -> &[Value] {
    match args {
        [Value::List(items)] => items,
        args => args,
    }
}

fn extreme(args: &[Value], context: &mut Context<'_>, wanted: std::cmp::Ordering) -> Result<Value, Fault> {
    let values = items(args);
    context.steps(values.len())?;
    let mut best = Value::Null;
    for value in values.iter().filter(|v| !v.is_null()) {
        context.work(ops::work_to_compare(value, &best))?;
        if best.is_null() || ops::order(value, &best)? == Some(wanted) {
            best = value.clone();
        }
    }
    Ok(best)
}

fn min(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    extreme(args, context, std::cmp::Ordering::Less)
}

fn max(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    extreme(args, context, std::cmp::Ordering::Greater)
}

fn total(name: &str, args: &[Value], context: &mut Context<'_>) -> Result<Option<(Number, i64)>, Fault> {
    let list = match arg(args, 0) {
        Value::Null => return Ok(None),
        Value::List(list) => list,
        other => return Err(wrong(name, "a list", other)),
    };
    context.steps(list.len())?;
    let (mut total, mut count) = (Number::from(0), 0);
    for value in list.iter().filter(|v| !v.is_null()) {
        let number = number_of(value, context)?.ok_or_else(|| wrong(name, "numbers", value))?;
        // The sum can be longer than each number added to it.
        context.work(if total.cost() + number.cost() > 2 { total.work().saturating_add(number.work()) } else { 0 })?;
        total = total.add(&number).ok_or_else(|| Fault::out_of_range("number"))?;
        count += 1;
    }
    Ok(Some((total, count)))
}

fn sum(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(total("sum", args, context)?.map_or(Value::Null, |(total, _)| Value::Number(total)))
}

fn avg(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let Some((total, count)) = total("avg", args, context)? else { return Ok(Value::Null) };
    context.work(if total.cost() > 1 { total.work().saturating_mul(4) } else { 0 })?;
    let mean = total.div(&Number::from(count));
    Ok(mean.map_or(Value::Null, Value::Number))
}
