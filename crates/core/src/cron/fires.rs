//! The next firing. Time is walked in stretches of one offset; inside a stretch the calendar is plain, and daylight
//! saving matters only where two stretches meet.

use super::Cron;
use crate::value::Timestamp;
use chrono::{
    DateTime, Datelike, Days, Duration, Months, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone, Timelike,
};
use chrono_tz::Tz;

/// How far to look; the calendar repeats long before.
const HORIZON_YEARS: u32 = 100;

impl Cron {
    /// Whether any date satisfies the schedule; a leap day on a given weekday can take 40 years.
    pub(super) fn ever_fires(&self) -> bool {
        let start = NaiveDate::from_ymd_opt(2000, 1, 1).unwrap_or_default().and_time(NaiveTime::MIN);
        let end = start.checked_add_months(Months::new(12 * HORIZON_YEARS)).unwrap_or(start);
        self.next_civil(start, end).is_some()
    }

    fn matches_day(&self, date: NaiveDate) -> bool {
        let (day, weekday) = (self.days.contains(date), self.weekdays.contains(date));
        // two restrictions are alternatives, as in every cron since Vixie's
        if self.days.star || self.weekdays.star { day && weekday } else { day || weekday }
    }

    /// The first civil time of the schedule in `from..before`.
    fn next_civil(&self, from: NaiveDateTime, before: NaiveDateTime) -> Option<NaiveDateTime> {
        let mut date = from.date();
        let mut earliest = from.time();
        if from.nanosecond() > 0 {
            let next = from.with_nanosecond(0)?.checked_add_signed(Duration::seconds(1))?;
            (date, earliest) = (next.date(), next.time());
        }
        while date.and_time(earliest) < before {
            if self.months & 1 << date.month() == 0 {
                date = date.with_day(1)?.checked_add_months(Months::new(1))?;
                earliest = NaiveTime::MIN;
                continue;
            }
            if self.matches_day(date)
                && let Some(time) = self.next_time(earliest)
            {
                let found = date.and_time(time);
                return (found < before).then_some(found);
            }
            date = date.checked_add_days(Days::new(1))?;
            earliest = NaiveTime::MIN;
        }
        None
    }

    /// The first time of day at or after another.
    fn next_time(&self, earliest: NaiveTime) -> Option<NaiveTime> {
        let first = |set: u64, from: u32| {
            let rest = if from < 64 { set >> from << from } else { 0 };
            (rest != 0).then(|| rest.trailing_zeros())
        };
        let (hour, minute, second) = (earliest.hour(), earliest.minute(), earliest.second());
        if self.hours & 1 << hour != 0 {
            if self.minutes & 1 << minute != 0
                && let Some(second) = first(self.seconds, second)
            {
                return NaiveTime::from_hms_opt(hour, minute, second);
            }
            if let Some(minute) = first(self.minutes, minute + 1) {
                return NaiveTime::from_hms_opt(hour, minute, first(self.seconds, 0)?);
            }
        }
        NaiveTime::from_hms_opt(first(self.hours, hour + 1)?, first(self.minutes, 0)?, first(self.seconds, 0)?)
    }
}

fn offset_at(zone: Tz, seconds: i64) -> Option<i64> {
    let utc = DateTime::from_timestamp(seconds, 0)?.naive_utc();
    Some(i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()))
}

/// The first second in `from..=upto` at which the offset is another; no two changes are within a day of each other.
fn next_change(zone: Tz, from: i64, upto: i64, offset: i64) -> Option<i64> {
    const STEP: i64 = 86_400;
    let mut same = from;
    while zone != Tz::UTC && same < upto {
        let mut other = (same + STEP).min(upto);
        if offset_at(zone, other)? != offset {
            while other - same > 1 {
                let middle = same + (other - same) / 2;
                if offset_at(zone, middle)? == offset { same = middle } else { other = middle }
            }
            return Some(other);
        }
        same = other;
    }
    None
}

fn civil(seconds: i64, offset: i64) -> Option<NaiveDateTime> {
    Some(DateTime::from_timestamp(seconds.checked_add(offset)?, 0)?.naive_utc())
}

/// The first firing after an instant.
pub fn next_after(cron: &Cron, after: Timestamp, zone: Tz) -> Option<Timestamp> {
    // the first whole second that may fire
    let first = after.0.div_euclid(1_000_000) + 1;
    let horizon = first.checked_add(i64::from(HORIZON_YEARS) * 366 * 86_400)?;
    // a day earlier, to know the time that the clock showed before a change that has just passed
    let mut from = first - 86_400;
    let mut shown_until: Option<NaiveDateTime> = None;
    while from < horizon {
        let offset = offset_at(zone, from)?;
        let mut start = civil(from.max(first), offset)?;
        if let Some(shown) = shown_until {
            let opens = civil(from, offset)?;
            // the clock jumped over a firing: it happens now
            if opens > shown && !cron.hourly && from >= first && cron.next_civil(shown, opens).is_some() {
                return Some(Timestamp(from * 1_000_000));
            }
            // the clock shows the same times again: only those not shown before count
            if !cron.hourly {
                start = start.max(shown);
            }
        }
        let found = cron.next_civil(start, civil(horizon, offset)?);
        let found = found.map(|civil| civil.and_utc().timestamp() - offset);
        // the firing that was found counts if the clocks do not change on the way to it
        let Some(end) = next_change(zone, from, found.unwrap_or(horizon), offset) else {
            return found.map(|seconds| Timestamp(seconds * 1_000_000));
        };
        let closes = civil(end, offset)?;
        shown_until = Some(shown_until.map_or(closes, |shown| shown.max(closes)));
        from = end;
    }
    None
}
