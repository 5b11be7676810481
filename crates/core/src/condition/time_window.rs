//! `{"time": {"after": "22:00", "before": "06:00", "weekday": ["mon"], "timezone": "Europe/Berlin"}}`.

use super::fields::{self, Fields};
use super::invalid;
use crate::expr::ExprError;
use crate::suggest::nearest;
use crate::value::{Timestamp, parse_clock};
use crate::zone;
use chrono::{Datelike, Days, NaiveDateTime, NaiveTime, Timelike};
use chrono_tz::Tz;
use serde_json::Value as Json;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const FULL_DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A part of the day, on some weekdays. `after` is inclusive and `before` exclusive; `after` later than `before` wraps
/// midnight; the weekday is that of now, also inside a wrapped window.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeWindow {
    /// Microseconds since midnight.
    after: Option<i64>,
    before: Option<i64>,
    /// Monday first; all if none is given.
    weekdays: [bool; 7],
    zone: Tz,
}

fn zone_of(value: &Json) -> Result<Tz, ExprError> {
    match value {
        Json::String(name) => {
            crate::cron::parse_zone(name).map_err(|e| invalid(e.message).with_hint(e.hint.unwrap_or_default()))
        }
        other => Err(invalid(format!("field \"timezone\" is {}, not a string", fields::name(other)))),
    }
}

impl TimeWindow {
    pub(super) fn parse(body: &Json) -> Result<TimeWindow, ExprError> {
        let mut fields = Fields::new("condition \"time\"", body)?;
        let after = fields.read(&["after"], |v| clock("after", v))?;
        let before = fields.read(&["before"], |v| clock("before", v))?;
        let weekdays = fields.read(&["weekday", "weekdays"], weekdays)?.unwrap_or([true; 7]);
        let zone = fields.read(&["timezone", "zone"], zone_of)?.unwrap_or(Tz::UTC);
        if after.is_none() && before.is_none() && weekdays == [true; 7] {
            return Err(invalid("condition \"time\" has none of \"after\", \"before\" and \"weekday\""));
        }
        fields.finish()?;
        Ok(TimeWindow { after, before, weekdays, zone })
    }

    /// Whether an instant lies inside.
    pub fn contains(&self, now: Timestamp) -> bool {
        let Some(moment) = now.civil() else { return false };
        let local = moment.with_timezone(&self.zone).naive_local();
        if !self.weekdays[local.weekday().num_days_from_monday() as usize] {
            return false;
        }
        let clock = i64::from(local.num_seconds_from_midnight()) * 1_000_000 + i64::from(local.nanosecond() / 1000);
        match (self.after, self.before) {
            (None, None) => true,
            (Some(after), None) => clock >= after,
            (None, Some(before)) => clock < before,
            (Some(after), Some(before)) if after <= before => clock >= after && clock < before,
            (Some(after), Some(before)) => clock >= after || clock < before,
        }
    }

    /// The next instant at which the answer may change: midnight, a bound, or a jump of the clocks.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let was = self.contains(now);
        let local = now.civil()?.with_timezone(&self.zone).naive_local();
        let mut times: Vec<Timestamp> = Vec::new();
        // a week and a day covers every weekday
        for days in 0..=8 {
            let date = local.date().checked_add_days(Days::new(days))?;
            for micros in [Some(0), self.after, self.before].into_iter().flatten() {
                let time = NaiveTime::from_num_seconds_from_midnight_opt(
                    (micros / 1_000_000) as u32,
                    (micros % 1_000_000 * 1000) as u32,
                );
                let civil = time.map(|time| NaiveDateTime::new(date, time));
                let Some(civil) = civil else { continue };
                match zone::lookup(civil, self.zone) {
                    zone::Civil::Once(at) | zone::Civil::Skipped(at) => times.push(Timestamp(at)),
                    zone::Civil::Twice(a, b) => times.extend([Timestamp(a), Timestamp(b)]),
                }
            }
        }
        times.sort_unstable();
        times.into_iter().find(|at| *at > now && self.contains(*at) != was)
    }

    pub(super) fn describe(&self) -> String {
        let clock = |micros: i64| format!("{:02}:{:02}", micros / 3_600_000_000, micros / 60_000_000 % 60);
        let mut parts = Vec::new();
        parts.extend(self.after.map(|at| format!("after {}", clock(at))));
        parts.extend(self.before.map(|at| format!("before {}", clock(at))));
        if self.weekdays != [true; 7] {
            let days: Vec<&str> = DAYS.iter().zip(self.weekdays).filter(|(_, on)| *on).map(|(day, _)| *day).collect();
            parts.push(format!("on {}", days.join(", ")));
        }
        format!("the time is {} ({})", parts.join(" "), self.zone)
    }

    pub(super) fn current(&self, now: Timestamp) -> String {
        match now.civil() {
            Some(moment) => moment.with_timezone(&self.zone).format("%a %H:%M:%S").to_string().to_lowercase(),
            None => now.to_string(),
        }
    }
}

fn clock(field: &str, value: &Json) -> Result<i64, ExprError> {
    let parsed = match value {
        Json::String(text) => parse_clock(text.trim()),
        _ => None,
    };
    parsed.filter(|micros| *micros < 86_400_000_000).ok_or_else(|| {
        invalid(format!("field \"{field}\" is no time of day: {value}")).with_hint("Write \"22:00\" or \"22:00:30\".")
    })
}

fn weekdays(value: &Json) -> Result<[bool; 7], ExprError> {
    let items = match value {
        Json::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    let mut days = [false; 7];
    for item in items {
        let name = item.as_str().unwrap_or_default().to_lowercase();
        match DAYS.iter().position(|d| *d == name).or_else(|| FULL_DAYS.iter().position(|d| *d == name)) {
            Some(day) => days[day] = true,
            None => {
                return Err(invalid(format!("weekday {item} does not exist"))
                    .with_detail("There are mon, tue, wed, thu, fri, sat and sun.")
                    .with_suggestion(nearest(&name, DAYS)));
            }
        }
    }
    Ok(days)
}
