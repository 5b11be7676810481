//! Instants and dates with Postgres's resolution: microseconds in UTC, days.

use super::Duration;
use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveTime, Timelike};
use std::fmt;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// An instant: microseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A calendar date: days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(pub i32);

impl Timestamp {
    /// Reads ISO 8601 as Postgres and JSON write it: a date, optionally a time, optionally an offset (else UTC).
    pub fn parse(text: &str) -> Option<Timestamp> {
        let bytes = text.as_bytes();
        if bytes.len() < 10 || !bytes[..4].iter().all(u8::is_ascii_digit) {
            return None;
        }
        let date_end = text.find(['T', 't', ' ']).unwrap_or(text.len());
        let date = Date::parse(text.get(..date_end)?)?;
        let rest = text.get(date_end..)?;
        if rest.is_empty() {
            return Some(date.midnight());
        }
        let (clock, offset) = split_offset(rest.get(1..)?.trim_start());
        let micros = parse_clock(clock.trim_end())?;
        let offset_seconds = parse_offset(offset)?;
        date.midnight().0.checked_add(micros)?.checked_sub(offset_seconds * 1_000_000).map(Timestamp)
    }

    /// Adds a duration as Postgres does: months by the calendar, then days, then the clock, all in UTC.
    pub fn plus(self, duration: Duration) -> Option<Timestamp> {
        let moment = self.civil()?.naive_utc();
        let date = shift_months(moment.date(), duration.months)?;
        let date = shift_days(date, i64::from(duration.days))?;
        Timestamp::from_civil(date, moment.time()).0.checked_add(duration.micros).map(Timestamp)
    }

    /// The time between two instants, as days and clock time.
    pub fn minus(self, other: Timestamp) -> Option<Duration> {
        let micros = self.0.checked_sub(other.0)?;
        Some(Duration { months: 0, days: (micros / MICROS_PER_DAY) as i32, micros: micros % MICROS_PER_DAY })
    }

    /// The calendar date in UTC.
    pub fn date(self) -> Date {
        Date(self.0.div_euclid(MICROS_PER_DAY) as i32)
    }

    /// The moment as chrono has it; `None` outside its range.
    pub fn civil(self) -> Option<DateTime<chrono::Utc>> {
        DateTime::from_timestamp_micros(self.0)
    }

    /// Makes an instant of a date and time in UTC.
    pub fn from_civil(date: NaiveDate, time: NaiveTime) -> Timestamp {
        Timestamp(date.and_time(time).and_utc().timestamp_micros())
    }

    /// The spelling Postgres uses in results: `2026-01-05 10:00:00+00`.
    pub fn to_postgres(self) -> String {
        match self.civil() {
            Some(t) => format!("{} {}+00", year_first(t.date_naive()), clock(t.time())),
            None => self.0.to_string(),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.civil() {
            Some(t) => write!(f, "{}T{}Z", year_first(t.date_naive()), clock(t.time())),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Date {
    /// Reads `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Option<Date> {
        let mut parts = text.split('-');
        let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
        let plain = |s: &str, length| s.len() == length && s.bytes().all(|b| b.is_ascii_digit());
        if parts.next().is_some() || !(4..=6).any(|n| plain(year, n)) || !plain(month, 2) || !plain(day, 2) {
            return None;
        }
        Date::from_civil(NaiveDate::from_ymd_opt(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?)
    }

    /// The date as chrono has it.
    pub fn civil(self) -> Option<NaiveDate> {
        shift_days(NaiveDate::default(), i64::from(self.0))
    }

    /// Makes a date from chrono's.
    pub fn from_civil(date: NaiveDate) -> Option<Date> {
        i32::try_from(date.signed_duration_since(NaiveDate::default()).num_days()).ok().map(Date)
    }

    /// Its first instant in UTC.
    pub fn midnight(self) -> Timestamp {
        Timestamp(i64::from(self.0) * MICROS_PER_DAY)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.civil() {
            Some(date) => f.write_str(&year_first(date)),
            None => write!(f, "{}", self.0),
        }
    }
}

fn year_first(date: NaiveDate) -> String {
    format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day())
}

fn clock(time: NaiveTime) -> String {
    let whole = format!("{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second());
    match time.nanosecond() / 1000 {
        0 => whole,
        micros => format!("{whole}.{}", format!("{micros:06}").trim_end_matches('0')),
    }
}

fn shift_months(date: NaiveDate, months: i32) -> Option<NaiveDate> {
    let step = Months::new(months.unsigned_abs());
    if months < 0 { date.checked_sub_months(step) } else { date.checked_add_months(step) }
}

fn shift_days(date: NaiveDate, days: i64) -> Option<NaiveDate> {
    let step = Days::new(days.unsigned_abs());
    if days < 0 { date.checked_sub_days(step) } else { date.checked_add_days(step) }
}

/// Splits `10:00:00+02` before its offset; the offset may be empty.
fn split_offset(text: &str) -> (&str, &str) {
    match text.find(['Z', 'z', '+', '-', ' ']) {
        Some(at) => (&text[..at], text[at..].trim_start()),
        None => (text, ""),
    }
}

/// Microseconds since midnight of `HH:MM[:SS[.fraction]]`.
pub(crate) fn parse_clock(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let (hours, minutes) = (two_digits(parts.next()?)?, two_digits(parts.next()?)?);
    let (seconds, micros) = match parts.next() {
        None => (0, 0),
        Some(rest) => match rest.split_once('.') {
            None => (two_digits(rest)?, 0),
            Some((whole, fraction)) => (two_digits(whole)?, fraction_micros(fraction)?),
        },
    };
    let within = (hours < 24 && minutes < 60 && seconds <= 60) || (hours, minutes, seconds, micros) == (24, 0, 0, 0);
    within.then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

fn fraction_micros(digits: &str) -> Option<i64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let padded = format!("{:0<6}", digits.get(..6).unwrap_or(digits));
    padded.parse().ok()
}

fn two_digits(text: &str) -> Option<i64> {
    (text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Seconds east of Greenwich of ``, `Z`, `+02`, `+0230`, `+02:30`, `-02:30:15` or `UTC`.
fn parse_offset(text: &str) -> Option<i64> {
    if matches!(text, "" | "Z" | "z" | "UTC" | "GMT") {
        return Some(0);
    }
    let sign = match text.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = text[1..].chars().filter(|c| *c != ':').collect();
    if !matches!(digits.len(), 2 | 4 | 6) || text.len() > 9 {
        return None;
    }
    let part = |i: usize| digits.get(i..i + 2).map_or(Some(0), two_digits);
    let (hours, minutes, seconds) = (part(0)?, part(2)?, part(4)?);
    (hours < 16 && minutes < 60 && seconds < 60).then_some(sign * (hours * 3600 + minutes * 60 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_instant_is_the_same_instant() {
        let expected = Timestamp::parse("2026-01-05T10:00:00Z").unwrap();
        for text in [
            "2026-01-05 10:00:00+00",
            "2026-01-05T11:00:00+01:00",
            "2026-01-05 04:30:00-0530",
            "2026-01-05T10:00",
            "2026-01-05T10:00:00.000000 UTC",
        ] {
            assert_eq!(Timestamp::parse(text), Some(expected), "{text}");
        }
        assert_eq!(expected.to_string(), "2026-01-05T10:00:00Z");
        assert_eq!(expected.to_postgres(), "2026-01-05 10:00:00+00");
    }

    #[test]
    fn what_is_not_a_date_is_refused() {
        for text in [
            "",
            "2026-02-30",
            "2026-1-1",
            "12345",
            "2026-01-01T25:00",
            "2026-01-01T10:00+99",
            "2026-01-01x",
            "infinity",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_month_after_the_31st_is_the_last_day() {
        let start = Timestamp::parse("2026-01-31T00:00:00Z").unwrap();
        let later = start.plus(Duration { months: 1, days: 0, micros: 0 }).unwrap();
        assert_eq!(later.to_string(), "2026-02-28T00:00:00Z");
    }
}
