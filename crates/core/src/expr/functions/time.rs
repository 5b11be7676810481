//! Functions on times, dates and durations. Null in, null out; a text in ISO 8601 counts as a time.

use super::{Context, Function, Purity, arg, number_of, optional, required, wrong};
use crate::expr::ops::Fault;
use crate::expr::types::Type;
use crate::value::{Date, Duration, Number, Timestamp, Value};
use chrono::{DateTime, Datelike, NaiveDateTime, Timelike, Utc};
use chrono_tz::Tz;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "now",
        params: &[],
        variadic: false,
        returns: Type::Time,
        purity: Purity::Clock,
        doc: "The current time; the same throughout one evaluation.",
        example: ("now()", "\"2026-01-05T10:00:00Z\""),
        call: now,
    },
    Function {
        name: "today",
        params: &[optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Date,
        purity: Purity::Clock,
        doc: "The current date, in UTC unless a time zone is given.",
        example: ("today()", "\"2026-01-05\""),
        call: today,
    },
    Function {
        name: "time",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Time,
        purity: Purity::Pure,
        doc: "The text or date as a time; null if it is none.",
        example: ("time('2026-01-05 12:00+02')", "\"2026-01-05T10:00:00Z\""),
        call: time,
    },
    Function {
        name: "date",
        params: &[required("value", Type::Any), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Date,
        purity: Purity::Pure,
        doc: "The date of a time, in UTC unless a time zone is given; null if it is none.",
        example: ("date('2026-01-05T23:30:00Z', 'Europe/Berlin')", "\"2026-01-06\""),
        call: date,
    },
    Function {
        name: "duration",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Duration,
        purity: Purity::Pure,
        doc: "The text as a duration; null if it is none.",
        example: ("duration('1 hour 30 min')", "\"PT1H30M\""),
        call: duration,
    },
    Function {
        name: "since",
        params: &[required("time", Type::Time)],
        variadic: false,
        returns: Type::Duration,
        purity: Purity::Clock,
        doc: "How long ago a time was.",
        example: ("since('2026-01-05T09:45:00Z')", "\"PT15M\""),
        call: since,
    },
    Function {
        name: "until",
        params: &[required("time", Type::Time)],
        variadic: false,
        returns: Type::Duration,
        purity: Purity::Clock,
        doc: "How far ahead a time is.",
        example: ("until('2026-01-05T10:05:00Z')", "\"PT5M\""),
        call: until,
    },
    Function {
        name: "older_than",
        params: &[required("time", Type::Time), required("age", Type::Duration)],
        variadic: false,
        returns: Type::Bool,
        purity: Purity::Clock,
        doc: "Whether a time is more than this long ago.",
        example: ("older_than('2026-01-05T09:00:00Z', 30 minutes)", "true"),
        call: older_than,
    },
    Function {
        name: "newer_than",
        params: &[required("time", Type::Time), required("age", Type::Duration)],
        variadic: false,
        returns: Type::Bool,
        purity: Purity::Clock,
        doc: "Whether a time is less than this long ago.",
        example: ("newer_than('2026-01-05T09:00:00Z', 30 minutes)", "false"),
        call: newer_than,
    },
    Function {
        name: "year",
        params: &[required("time", Type::Time), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The year.",
        example: ("year('2026-01-05')", "2026"),
        call: year,
    },
    Function {
        name: "month",
        params: &[required("time", Type::Time), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The month, 1 to 12.",
        example: ("month('2026-01-05')", "1"),
        call: month,
    },
    Function {
        name: "day",
        params: &[required("time", Type::Time), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The day of the month.",
        example: ("day('2026-01-05')", "5"),
        call: day,
    },
    Function {
        name: "weekday",
        params: &[required("time", Type::Time), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The day of the week, 1 is Monday and 7 is Sunday.",
        example: ("weekday('2026-01-05')", "1"),
        call: weekday,
    },
    Function {
        name: "hour",
        params: &[required("time", Type::Time), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The hour, 0 to 23.",
        example: ("hour('2026-01-05T10:00:00Z', 'America/New_York')", "5"),
        call: hour,
    },
    Function {
        name: "minute",
        params: &[required("time", Type::Time), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "The minute, 0 to 59.",
        example: ("minute('2026-01-05T10:30:00Z')", "30"),
        call: minute,
    },
    Function {
        name: "epoch",
        params: &[required("value", Type::Any)],
        variadic: false,
        returns: Type::Number,
        purity: Purity::Pure,
        doc: "Seconds since 1970 of a time, or the length of a duration in seconds.",
        example: ("epoch(90 minutes)", "5400"),
        call: epoch,
    },
    Function {
        name: "from_epoch",
        params: &[required("seconds", Type::Number)],
        variadic: false,
        returns: Type::Time,
        purity: Purity::Pure,
        doc: "The time this many seconds after 1970.",
        example: ("from_epoch(1767607200)", "\"2026-01-05T10:00:00Z\""),
        call: from_epoch,
    },
    Function {
        name: "trunc_time",
        params: &[required("time", Type::Time), required("unit", Type::Text), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Time,
        purity: Purity::Pure,
        doc: "The start of the year, month, week, day, hour or minute.",
        example: ("trunc_time('2026-01-05T10:20:30Z', 'hour')", "\"2026-01-05T10:00:00Z\""),
        call: trunc_time,
    },
    Function {
        name: "format_time",
        params: &[required("time", Type::Time), required("format", Type::Text), optional("zone", Type::Text)],
        variadic: false,
        returns: Type::Text,
        purity: Purity::Pure,
        doc: "The time as text, with %Y %m %d %H %M %S and their like.",
        example: ("format_time('2026-01-05T10:00:00Z', '%d.%m.%Y')", "\"05.01.2026\""),
        call: format_time,
    },
];

fn now(_: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(Value::Time(context.now))
}

/// The civil time of an instant in an optional zone.
fn civil(time: Timestamp, zone: &Value) -> Result<NaiveDateTime, Fault> {
    let moment: DateTime<Utc> = time.civil().ok_or_else(|| Fault::out_of_range("time"))?;
    Ok(match zone_of(zone)? {
        Some(zone) => moment.with_timezone(&zone).naive_local(),
        None => moment.naive_utc(),
    })
}

fn zone_of(zone: &Value) -> Result<Option<Tz>, Fault> {
    match zone {
        Value::Null => Ok(None),
        Value::Text(name) => {
            let zone = name.parse().map_err(|_| Fault::invalid(format!("time zone \"{name}\" does not exist")))?;
            Ok(Some(zone))
        }
        other => Err(wrong("a time zone", "a text", other)),
    }
}

/// The first argument as an instant; `None` for null.
fn instant(name: &str, args: &[Value]) -> Result<Option<Timestamp>, Fault> {
    match arg(args, 0) {
        Value::Null => Ok(None),
        value => match value.as_time() {
            Some(time) => Ok(Some(time)),
            None => Err(wrong(name, "a time", value)),
        },
    }
}

fn today(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let date = civil(context.now, arg(args, 0))?.date();
    Ok(Date::from_civil(date).map_or(Value::Null, Value::Date))
}

fn time(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(arg(args, 0).as_time().map_or(Value::Null, Value::Time))
}

fn date(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    match (arg(args, 0), arg(args, 0).as_time()) {
        (Value::Date(date), _) => Ok(Value::Date(*date)),
        (_, Some(time)) => {
            let date = civil(time, arg(args, 1))?.date();
            Ok(Date::from_civil(date).map_or(Value::Null, Value::Date))
        }
        _ => Ok(Value::Null),
    }
}

fn duration(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(arg(args, 0).as_duration().map_or(Value::Null, Value::Duration))
}

fn between(from: Timestamp, to: Timestamp) -> Result<Value, Fault> {
    to.minus(from).map(Value::Duration).ok_or_else(|| Fault::out_of_range("duration"))
}

fn since(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    instant("since", args)?.map_or(Ok(Value::Null), |time| between(time, context.now))
}

fn until(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    instant("until", args)?.map_or(Ok(Value::Null), |time| between(context.now, time))
}

/// `now - age` against the time, by the calendar if the age has months.
fn age(name: &str, args: &[Value], context: &Context<'_>) -> Result<Option<std::cmp::Ordering>, Fault> {
    let (Some(time), age) = (instant(name, args)?, arg(args, 1)) else { return Ok(None) };
    let age: Duration = match age {
        Value::Null => return Ok(None),
        value => value.as_duration().ok_or_else(|| wrong(name, "a duration", value))?,
    };
    let due = time.plus(age).ok_or_else(|| Fault::out_of_range("time"))?;
    Ok(Some(due.cmp(&context.now)))
}

fn older_than(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(Value::Bool(age("older_than", args, context)? == Some(std::cmp::Ordering::Less)))
}

fn newer_than(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    Ok(Value::Bool(age("newer_than", args, context)? == Some(std::cmp::Ordering::Greater)))
}

fn part(name: &str, args: &[Value], pick: impl Fn(NaiveDateTime) -> i64) -> Result<Value, Fault> {
    match instant(name, args)? {
        None => Ok(Value::Null),
        Some(time) => Ok(Value::int(pick(civil(time, arg(args, 1))?))),
    }
}

fn year(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    part("year", args, |t| i64::from(t.year()))
}

fn month(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    part("month", args, |t| i64::from(t.month()))
}

fn day(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    part("day", args, |t| i64::from(t.day()))
}

fn weekday(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    part("weekday", args, |t| i64::from(t.weekday().number_from_monday()))
}

fn hour(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    part("hour", args, |t| i64::from(t.hour()))
}

fn minute(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    part("minute", args, |t| i64::from(t.minute()))
}

fn epoch(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    let micros = match arg(args, 0) {
        Value::Null => return Ok(Value::Null),
        Value::Duration(d) => d.total_micros(),
        value => i128::from(value.as_time().ok_or_else(|| wrong("epoch", "a time or a duration", value))?.0),
    };
    let micros = i64::try_from(micros).map_err(|_| Fault::out_of_range("number"))?;
    Ok(Number::from(micros).div(&Number::from(1_000_000)).map_or(Value::Null, Value::Number))
}

fn from_epoch(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    let value = arg(args, 0);
    if value.is_null() {
        return Ok(Value::Null);
    }
    let seconds = number_of(value, context)?.ok_or_else(|| wrong("from_epoch", "a number", value))?;
    let micros = seconds.mul(&Number::from(1_000_000)).and_then(|n| n.round(0)).and_then(|n| n.to_i64());
    let time = micros.map(Timestamp).filter(|t| t.civil().is_some());
    time.map(Value::Time).ok_or_else(|| Fault::out_of_range("time"))
}

fn trunc_time(args: &[Value], _: &mut Context<'_>) -> Result<Value, Fault> {
    let Some(time) = instant("trunc_time", args)? else { return Ok(Value::Null) };
    let local = civil(time, arg(args, 2))?;
    let date = local.date();
    let at = |hour, minute| date.and_hms_opt(hour, minute, 0);
    let start = match arg(args, 1).as_str() {
        Some("year") => date.with_ordinal(1).and_then(|d| d.and_hms_opt(0, 0, 0)),
        Some("month") => date.with_day(1).and_then(|d| d.and_hms_opt(0, 0, 0)),
        Some("week") => date
            .checked_sub_days(chrono::Days::new(u64::from(date.weekday().num_days_from_monday())))
            .and_then(|d| d.and_hms_opt(0, 0, 0)),
        Some("day") => at(0, 0),
        Some("hour") => at(local.hour(), 0),
        Some("minute") => at(local.hour(), local.minute()),
        _ => return Err(Fault::invalid("unit of trunc_time is not year, month, week, day, hour or minute")),
    };
    let start = start.ok_or_else(|| Fault::out_of_range("time"))?;
    let micros = match zone_of(arg(args, 2))? {
        Some(zone) => crate::zone::to_utc(start, zone),
        None => start.and_utc().timestamp_micros(),
    };
    Ok(Value::Time(Timestamp(micros)))
}

fn format_time(args: &[Value], context: &mut Context<'_>) -> Result<Value, Fault> {
    use chrono::format::{Item, StrftimeItems};
    let Some(time) = instant("format_time", args)? else { return Ok(Value::Null) };
    let format = arg(args, 1).as_str().ok_or_else(|| wrong("format_time", "a text", arg(args, 1)))?;
    context.output(format.len().saturating_mul(8))?;
    // an unknown specifier, or one that needs the zone, would make chrono's Display fail
    let items: Vec<Item<'_>> = StrftimeItems::new(format).collect();
    let mut out = String::new();
    let written =
        std::fmt::write(&mut out, format_args!("{}", civil(time, arg(args, 2))?.format_with_items(items.iter())));
    if items.contains(&Item::Error) || written.is_err() {
        return Err(Fault::invalid(format!("invalid time format \"{format}\"")));
    }
    Ok(Value::text(out))
}
