//! The one place that reads the time.
use std::ffi::CString;

use pgrx::GucSetting;

use super::failpoint;
use super::raw::unguarded;

/// The setting `automation_engine.clock`, registered with all others by the extension.
pub static SETTING: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// Microseconds since 2000-01-01 00:00 UTC: Postgres' own timestamptz.
pub type Micros = i64;

/// Microseconds between the Unix epoch and Postgres' epoch.
pub const POSTGRES_EPOCH: i64 = 946_684_800_000_000;
const DAY: i64 = 86_400_000_000;

/// The times to which a clock can be set: the years 1 to 9999. A sum of such a time and any wait, one of ten thousand
/// years included, is still a timestamp; a timer beyond that would make every look at the timers fail.
pub const SETTABLE: std::ops::Range<Micros> = -63_082_281_600_000_000..252_455_616_000_000_000;

/// The time of the wall clock now, not at the transaction's begin.
pub fn now() -> Micros {
    // SAFETY: reads the system clock, nothing else.
    let now = unsafe { unguarded::GetCurrentTimestamp() };
    now + failpoint::clock_is_ahead_by()
}

/// Microseconds by a clock that only runs forward and cannot be set; the same in all processes of a machine. For
/// durations and pauses, never for instants, and never to be compared with `now()`.
pub fn passed() -> Micros {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the given place.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// A time before the snapshot of the next statement was taken: that snapshot sees all transactions that had committed
/// by then.
pub fn before_statement() -> Micros {
    if super::snapshot::is_fixed() {
        // SAFETY: reads when the transaction began, which is before its one snapshot.
        return unsafe { pgrx::pg_sys::GetCurrentTransactionStartTimestamp() };
    }
    now()
}

/// The time by which the engine decides which timers are due: the wall clock's, unless this session has set a clock of
/// its own to try automations out. Workers always go by the wall.
pub fn engine_now() -> Micros {
    set_clock().unwrap_or_else(now)
}

/// The time of an event or change recorded at `at`; for a session that has set a clock of its own: that clock's time.
pub fn as_seen(at: Micros) -> Micros {
    set_clock().unwrap_or(at)
}

/// The time that set_clock() has set in this session.
pub fn set_clock() -> Option<Micros> {
    // SAFETY: reads a process global.
    if unsafe { pgrx::pg_sys::MyBackendType } == pgrx::pg_sys::BackendType::B_BG_WORKER {
        return None;
    }
    SETTING.get().and_then(|text| text.to_str().ok()?.parse().ok()).filter(|at| SETTABLE.contains(at))
}

/// Days since 2000-01-01 in UTC: the number of the partition an instant belongs to.
pub fn day(at: Micros) -> i64 {
    at.div_euclid(DAY)
}

pub fn day_start(day: i64) -> Micros {
    day * DAY
}
