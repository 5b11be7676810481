//! When a receiver wants to be asked again: seconds, or a date.
use std::time::Duration;

/// The delay that a Retry-After header asks for, seen from `now` (seconds since 1970). Nothing if it cannot be read.
pub fn retry_after(value: &str, now: i64) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large to read is a very long time.
        return Some(Duration::from_secs(value.parse().unwrap_or(u32::MAX as u64)));
    }
    let at = http_date(value)?;
    Some(Duration::from_secs(u64::try_from(at - now).unwrap_or(0)))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the only form that may still be written.
fn http_date(text: &str) -> Option<i64> {
    let (_, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let day: i64 = number(parts.next()?, 1..=31)?;
    let name = parts.next()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == name)? as i64 + 1;
    let year: i64 = number(parts.next()?, 1970..=9999)?;
    let mut time = parts.next()?.split(':');
    let (hour, minute, second) =
        (number(time.next()?, 0..=23)?, number(time.next()?, 0..=59)?, number(time.next()?, 0..=60)?);
    if parts.next() != Some("GMT") || parts.next().is_some() || time.next().is_some() {
        return None;
    }
    Some(days_before(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(text: &str, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
    let digits = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && range.contains(number))
}

/// Days from 1970-01-01; years begin in March, so that the leap day is the last.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let seconds = |value: &str, now: i64| retry_after(value, now).map(|wait| wait.as_secs());
        assert_eq!(seconds("120", 0), Some(120));
        assert_eq!(seconds(" 0 ", 0), Some(0));
        assert_eq!(seconds("99999999999999999999999", 0), Some(u32::MAX as u64));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777 - 60), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777 + 60), Some(0));
        assert_eq!(seconds("Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_800 - 5), Some(5));
    }

    #[test]
    fn what_is_neither_is_ignored() {
        for value in ["", "-1", "1.5", "soon", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 CET", "1e3"] {
            assert_eq!(retry_after(value, 0), None, "{value}");
        }
    }
}
