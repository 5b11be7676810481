//! Cron schedules: five fields, or six with seconds first, in a time zone.
//!
//! Daylight saving: a time that is skipped fires once, at the first instant after the gap. A time that comes twice
//! fires once, the first time; but a schedule for every hour fires in every real hour.

mod field;
mod fires;

use crate::expr::{ExprError, ExprErrorKind, visible};
use crate::suggest::nearest;
use crate::value::Timestamp;
use chrono_tz::Tz;
use field::{DayOfMonth, DayOfWeek, Field};

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Cron {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    days: DayOfMonth,
    weekdays: DayOfWeek,
    /// Whether the hour is not fixed.
    hourly: bool,
}

/// `@daily` and its like.
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Cron {
    /// Parses `minute hour day month weekday`, with seconds before it if there are six fields, or `@daily`.
    pub fn parse(text: &str) -> Result<Cron, ExprError> {
        let trimmed = text.trim();
        if trimmed.starts_with('@') {
            return match NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(trimmed)) {
                Some((_, fields)) => Cron::parse(fields),
                None => {
                    let at = text.len() - text.trim_start().len();
                    let near = nearest(trimmed, NICKNAMES.iter().map(|(name, _)| *name));
                    let message = format!("schedule \"{}\" does not exist", shortened(trimmed));
                    Err(error(at..at + trimmed.len(), message).with_suggestion(near))
                }
            };
        }
        let fields: Vec<Field<'_>> = Field::split(text);
        let (seconds, rest) = match fields.len() {
            5 => (None, &fields[..]),
            6 => (Some(&fields[0]), &fields[1..]),
            count => {
                let end = text.len();
                return Err(error(end..end, format!("a schedule has 5 or 6 fields, not {count}"))
                    .with_hint("Write minute hour day month weekday, as in 0 9 * * mon-fri."));
            }
        };
        let [minutes, hours, days, months, weekdays] = rest else {
            return Err(error(0..0, "a schedule has 5 or 6 fields".to_owned()));
        };
        let hour_set = hours.set("hour", 0, 23, &[])?;
        let cron = Cron {
            seconds: seconds.map_or(Ok(1), |f| f.set("second", 0, 59, &[]))?,
            minutes: minutes.set("minute", 0, 59, &[])?,
            hours: hour_set,
            months: months.set("month", 1, 12, &field::MONTHS)?,
            days: DayOfMonth::parse(days)?,
            weekdays: DayOfWeek::parse(weekdays)?,
            hourly: hours.is_star() || hour_set == field::all(0, 23),
        };
        if !cron.ever_fires() {
            return Err(error(0..text.len(), "the schedule never fires".to_owned())
                .with_detail("No date of the calendar has this day, month and weekday.")
                .with_hint("L is the last day of a month, as in 0 0 L 2 *."));
        }
        Ok(cron)
    }

    /// The first firing after an instant; `None` if there is none within a hundred years.
    pub fn next_after(&self, after: Timestamp, zone: Tz) -> Option<Timestamp> {
        fires::next_after(self, after, zone)
    }

    /// The next `count` firings.
    pub fn upcoming(&self, after: Timestamp, zone: Tz, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(after, zone), |last| self.next_after(*last, zone)).take(count).collect()
    }
}

/// A time zone by its IANA name.
pub fn parse_zone(name: &str) -> Result<Tz, ExprError> {
    let names = || chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
    let any_case = || names().find(|known| known.eq_ignore_ascii_case(name.trim())).unwrap_or_default();
    name.trim().parse().or_else(|_| any_case().parse()).map_err(|_| {
        let near = nearest(name, names());
        let message = format!("time zone \"{}\" does not exist", shortened(name));
        let error = ExprError::new(ExprErrorKind::InvalidValue, 0..name.len(), message);
        match near {
            Some(near) => error.with_suggestion(Some(near)),
            None => error.with_hint("Write a name of the IANA list, such as Europe/Berlin or UTC."),
        }
    })
}

fn error(span: std::ops::Range<usize>, message: String) -> ExprError {
    ExprError::new(ExprErrorKind::Syntax, span, message)
}

/// The user's text, shortened for a message.
fn shortened(text: &str) -> String {
    visible(&text.chars().take(60).collect::<String>())
}
