//! Lengths of time as Postgres intervals have them: months, days and microseconds kept apart.

use super::Number;
use super::time::parse_clock;
use std::cmp::Ordering;
use std::fmt;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// A length of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Duration {
    /// Calendar months.
    pub months: i32,
    /// Calendar days.
    pub days: i32,
    /// Clock time.
    pub micros: i64,
}

/// How many of which part one unit is: (months, days, microseconds).
pub(crate) fn unit_of(name: &str) -> Option<(i32, i32, i64)> {
    Some(match name.to_ascii_lowercase().as_str() {
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => (0, 0, 1),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => (0, 0, 1000),
        "s" | "sec" | "secs" | "second" | "seconds" => (0, 0, MICROS_PER_SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => (0, 0, 60 * MICROS_PER_SECOND),
        "h" | "hr" | "hrs" | "hour" | "hours" => (0, 0, 3600 * MICROS_PER_SECOND),
        "d" | "day" | "days" => (0, 1, 0),
        "w" | "week" | "weeks" => (0, 7, 0),
        "mon" | "mons" | "month" | "months" => (1, 0, 0),
        "y" | "yr" | "yrs" | "year" | "years" => (12, 0, 0),
        _ => return None,
    })
}

/// Longest text that is read as a duration, in bytes.
const MAX_TEXT: usize = 256;

impl Duration {
    /// Makes a duration of clock time.
    pub fn from_micros(micros: i64) -> Duration {
        Duration { months: 0, days: 0, micros }
    }

    /// Reads `15 minutes`, `1 day 02:00:00`, `1h30m`, `PT15M`, `00:15:00`; `None` if it is none of these.
    pub fn parse(text: &str) -> Option<Duration> {
        let text = text.trim();
        // Reading takes time that grows with the digits, and no duration has so many.
        if text.len() > MAX_TEXT {
            return None;
        }
        match text.strip_prefix('-').unwrap_or(text).as_bytes().first()? {
            b'P' | b'p' => parse_iso(text),
            b'0'..=b'9' | b'.' | b'+' => parse_words(text),
            _ => None,
        }
    }

    /// `count` times a unit, given as [`unit_of`] gives it. A fraction spills to the next smaller part, as in Postgres.
    pub(crate) fn of(count: &Number, unit: (i32, i32, i64)) -> Option<Duration> {
        let (months, days, micros) = unit;
        if months != 0 {
            return Duration { months, ..Duration::default() }.times(count);
        }
        if days != 0 {
            return Duration { days, ..Duration::default() }.times(count);
        }
        Some(Duration::from_micros(count.mul(&Number::from(micros))?.round(0)?.to_i64()?))
    }

    /// The duration `factor` times as long.
    pub fn times(self, factor: &Number) -> Option<Duration> {
        let months = factor.mul(&Number::from(i64::from(self.months)))?;
        let (whole_months, rest) = split_whole(&months)?;
        let days = factor.mul(&Number::from(i64::from(self.days)))?.add(&rest.mul(&Number::from(30))?)?;
        let (whole_days, rest) = split_whole(&days)?;
        let micros = factor.mul(&Number::from(self.micros))?.add(&rest.mul(&Number::from(MICROS_PER_DAY))?)?;
        Some(Duration {
            months: i32::try_from(whole_months).ok()?,
            days: i32::try_from(whole_days).ok()?,
            micros: micros.round(0)?.to_i64()?,
        })
    }

    /// Sum.
    pub fn plus(self, other: Duration) -> Option<Duration> {
        Some(Duration {
            months: self.months.checked_add(other.months)?,
            days: self.days.checked_add(other.days)?,
            micros: self.micros.checked_add(other.micros)?,
        })
    }

    /// The duration backwards.
    pub fn negated(self) -> Option<Duration> {
        Some(Duration {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }

    /// Its length in microseconds, a month counted as 30 days and a day as 24 hours, as Postgres orders intervals.
    pub fn total_micros(self) -> i128 {
        (i128::from(self.months) * 30 + i128::from(self.days)) * i128::from(MICROS_PER_DAY) + i128::from(self.micros)
    }
}

fn split_whole(number: &Number) -> Option<(i64, Number)> {
    let whole = if number.is_negative() { number.ceil()? } else { number.floor()? };
    Some((whole.to_i64()?, number.sub(&whole)?))
}

fn parse_words(text: &str) -> Option<Duration> {
    let mut total = Duration::default();
    let mut rest = text;
    let mut found = false;
    while !rest.is_empty() {
        let head_end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        let head = &rest[..head_end];
        if head.contains(':') {
            let (negative, clock) = match head.strip_prefix('-') {
                Some(clock) => (true, clock),
                None => (false, head.strip_prefix('+').unwrap_or(head)),
            };
            let micros = parse_hours(clock)?;
            total = total.plus(Duration::from_micros(if negative { -micros } else { micros }))?;
            rest = rest[head_end..].trim_start();
        } else {
            let digits_end = rest.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+')).unwrap_or(rest.len());
            let count = Number::parse(&rest[..digits_end])?;
            let after = rest[digits_end..].trim_start();
            let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            total = total.plus(Duration::of(&count, unit_of(&after[..unit_end])?)?)?;
            rest = after[unit_end..].trim_start();
        }
        found = true;
    }
    found.then_some(total)
}

/// `HH:MM[:SS]` where the hours may exceed a day.
fn parse_hours(text: &str) -> Option<i64> {
    let (hours, rest) = text.split_once(':')?;
    if hours.is_empty() || hours.len() > 7 || !hours.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let hours: i64 = hours.parse().ok()?;
    Some(hours * 3600 * MICROS_PER_SECOND + parse_clock(&format!("00:{rest}"))?)
}

fn parse_iso(text: &str) -> Option<Duration> {
    let (negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text),
    };
    let mut rest = &body[1..];
    let mut total = Duration::default();
    let mut in_time = false;
    let mut found = false;
    while !rest.is_empty() {
        if rest.starts_with(['T', 't']) {
            if in_time || rest.len() == 1 {
                return None;
            }
            in_time = true;
            rest = &rest[1..];
            continue;
        }
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+'))?;
        let count = Number::parse(&rest[..end])?;
        let unit = match (in_time, rest.as_bytes()[end].to_ascii_uppercase()) {
            (false, b'Y') => "y",
            (false, b'M') => "mon",
            (false, b'W') => "w",
            (false, b'D') => "d",
            (true, b'H') => "h",
            (true, b'M') => "m",
            (true, b'S') => "s",
            _ => return None,
        };
        total = total.plus(Duration::of(&count, unit_of(unit)?)?)?;
        found = true;
        rest = &rest[end + 1..];
    }
    match (found, negative) {
        (false, _) => None,
        (true, true) => total.negated(),
        (true, false) => Some(total),
    }
}

impl PartialEq for Duration {
    fn eq(&self, other: &Duration) -> bool {
        self.total_micros() == other.total_micros()
    }
}

impl Eq for Duration {}

impl PartialOrd for Duration {
    fn partial_cmp(&self, other: &Duration) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Duration {
    fn cmp(&self, other: &Duration) -> Ordering {
        self.total_micros().cmp(&other.total_micros())
    }
}

/// ISO 8601: `P1Y2M3DT4H5M6.5S`, `PT15M`, `PT0S`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if (self.months, self.days, self.micros) == (0, 0, 0) {
            return f.write_str("PT0S");
        }
        f.write_str("P")?;
        for (count, unit) in [(self.months / 12, 'Y'), (self.months % 12, 'M'), (self.days, 'D')] {
            if count != 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        if self.micros == 0 {
            return Ok(());
        }
        f.write_str("T")?;
        let (hours, rest) = (self.micros / (3600 * MICROS_PER_SECOND), self.micros % (3600 * MICROS_PER_SECOND));
        let (minutes, rest) = (rest / (60 * MICROS_PER_SECOND), rest % (60 * MICROS_PER_SECOND));
        for (count, unit) in [(hours, 'H'), (minutes, 'M')] {
            if count != 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        let (seconds, fraction) = (rest / MICROS_PER_SECOND, rest % MICROS_PER_SECOND);
        if fraction != 0 {
            let sign = if rest < 0 { "-" } else { "" };
            let digits = format!("{:06}", fraction.abs());
            write!(f, "{sign}{}.{}S", seconds.abs(), digits.trim_end_matches('0'))
        } else if seconds != 0 {
            write!(f, "{seconds}S")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_clock_and_iso_spell_the_same_duration() {
        for text in ["15 minutes", "15m", "PT15M", "00:15:00", "0.25 hours", "900 s", "15 min"] {
            assert_eq!(Duration::parse(text).map(|d| d.to_string()).as_deref(), Some("PT15M"), "{text}");
        }
        assert_eq!(Duration::parse("1 day 02:03:04.5").unwrap().to_string(), "P1DT2H3M4.5S");
        assert_eq!(Duration::parse("-P1Y2M").unwrap().to_string(), "P-1Y-2M");
        assert_eq!(Duration::parse("1.5 months").unwrap().to_string(), "P1M15D");
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "minutes", "15", "15 parsecs", "P", "PT", "PT15", "1 day foo", "99999999999999999999 days"] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
    }
}
