//! Civil time to instants in a time zone, with its gaps and repetitions under daylight saving.

use chrono::{Duration, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;

/// The instants of a civil time in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Civil {
    /// The time exists once; microseconds since 1970 in UTC.
    Once(i64),
    /// The time exists twice, when clocks go back.
    Twice(i64, i64),
    /// The time does not exist, when clocks go forward; the first instant after the gap.
    Skipped(i64),
}

/// Looks a civil time up in a zone.
pub fn lookup(civil: NaiveDateTime, zone: Tz) -> Civil {
    use chrono::offset::LocalResult;
    match zone.offset_from_local_datetime(&civil) {
        LocalResult::Single(offset) => Civil::Once(minus(civil, offset.fix().local_minus_utc())),
        LocalResult::Ambiguous(a, b) => {
            let (a, b) = (minus(civil, a.fix().local_minus_utc()), minus(civil, b.fix().local_minus_utc()));
            Civil::Twice(a.min(b), a.max(b))
        }
        LocalResult::None => Civil::Skipped(gap_end(civil, zone)),
    }
}

/// The instant of a civil time: the first of two, the end of a gap.
pub fn to_utc(civil: NaiveDateTime, zone: Tz) -> i64 {
    match lookup(civil, zone) {
        Civil::Once(at) | Civil::Twice(at, _) | Civil::Skipped(at) => at,
    }
}

fn minus(civil: NaiveDateTime, offset_seconds: i32) -> i64 {
    civil.and_utc().timestamp_micros() - i64::from(offset_seconds) * 1_000_000
}

/// The first instant at which the zone's clock is past a civil time that it skips.
fn gap_end(civil: NaiveDateTime, zone: Tz) -> i64 {
    let local_at = |seconds: i64| match chrono::DateTime::from_timestamp(seconds, 0) {
        Some(t) => t.with_timezone(&zone).naive_local(),
        None => civil,
    };
    // no zone is further than 26 hours from UTC, and no gap is longer than a day
    let (mut before, mut after) =
        match (civil.checked_sub_signed(Duration::hours(52)), civil.checked_add_signed(Duration::hours(52))) {
            (Some(a), Some(b)) => (a.and_utc().timestamp(), b.and_utc().timestamp()),
            _ => return civil.and_utc().timestamp_micros(),
        };
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if local_at(middle) >= civil { after = middle } else { before = middle }
    }
    after * 1_000_000
}
