//! Instants as JSON text, the way Postgres writes them, for the years that need no thought.
//!
//! An image of a row has one instant more often than not, and Postgres' own routine goes through a broken-down time and
//! printf for each.

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// 0001-01-01 and 10000-01-01, in days from 2000-01-01.
const FIRST_DAY: i64 = -730_119;
const DAYS_END: i64 = 2_921_940;
const FOUR_CENTURIES: i64 = 146_097;

/// Appends `"YYYY-MM-DDTHH:MM:SS[.ffffff][+00:00]"` for microseconds since 2000-01-01. False, with nothing written, for
/// times outside of the years 1 to 9999: infinities and the years before Christ have spellings of their own.
pub fn write(out: &mut Vec<u8>, micros: i64, zone: &[u8]) -> bool {
    let (days, time) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    if !(FIRST_DAY..DAYS_END).contains(&days) {
        return false;
    }
    let (year, month, day) = date(days);
    let (seconds, fraction) = (time / SECOND, time % SECOND);
    let mut text = *b"\"0000-00-00T00:00:00";
    digits(&mut text[1..5], year);
    digits(&mut text[6..8], month);
    digits(&mut text[9..11], day);
    digits(&mut text[12..14], seconds / 3600);
    digits(&mut text[15..17], seconds / 60 % 60);
    digits(&mut text[18..20], seconds % 60);
    out.extend_from_slice(&text);
    if fraction != 0 {
        let mut text = *b".000000";
        digits(&mut text[1..], fraction);
        let end = text.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        out.extend_from_slice(&text[..end]);
    }
    out.extend_from_slice(zone);
    out.push(b'"');
    true
}

/// Year, month and day of a number of days since 2000-01-01. Counted in years that begin in March, so that the leap day
/// is the last of them.
fn date(days: i64) -> (i64, i64, i64) {
    let since_march = days - 60;
    let (cycle, day) = (since_march.div_euclid(FOUR_CENTURIES), since_march.rem_euclid(FOUR_CENTURIES));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (2000 + 400 * cycle + year + next_year, month, of_month)
}

fn digits(place: &mut [u8], number: i64) {
    // Narrow, so that dividing is cheap.
    let mut number = number as u32;
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::{DAY, DAYS_END, FIRST_DAY, date, write};

    fn text(micros: i64) -> Option<String> {
        let mut out = Vec::new();
        write(&mut out, micros, b"+00:00").then(|| String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn instants_are_written_as_postgres_writes_them() {
        assert_eq!(text(0).as_deref(), Some("\"2000-01-01T00:00:00+00:00\""));
        assert_eq!(text(-1).as_deref(), Some("\"1999-12-31T23:59:59.999999+00:00\""));
        assert_eq!(text(59 * DAY + 1_500_000).as_deref(), Some("\"2000-02-29T00:00:01.5+00:00\""));
        assert_eq!(text(847_790_753_120_000).as_deref(), Some("\"2026-11-12T09:25:53.12+00:00\""));
        assert_eq!(text(FIRST_DAY * DAY).as_deref(), Some("\"0001-01-01T00:00:00+00:00\""));
        assert_eq!(text(DAYS_END * DAY - 1).as_deref(), Some("\"9999-12-31T23:59:59.999999+00:00\""));
        for outside in [FIRST_DAY * DAY - 1, DAYS_END * DAY, i64::MIN, i64::MAX] {
            assert_eq!(text(outside), None);
        }
    }

    #[test]
    fn days_follow_each_other() {
        let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut year, mut month, mut day) = (1, 1, 1);
        for days in FIRST_DAY..DAYS_END {
            assert_eq!(date(days), (year, month, day));
            let length = match month {
                2 if leap(year) => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
        assert_eq!(year, 10_000);
    }
}
