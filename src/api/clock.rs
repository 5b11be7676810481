//! A clock that a session sets for itself, to try out waits, timers and schedules without waiting for them.
use std::ffi::CString;

use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::{clock, settings};

/// Sets the clock by which drain(), run_timers() and dispatch() go in this session; NULL goes by the wall again. Undone
/// with the transaction. The workers never go by it.
#[pg_extern]
fn set_clock(at: Option<TimestampWithTimeZone>) -> Result<Option<TimestampWithTimeZone>, ErrorReport> {
    match at {
        Some(at) => set(i64::from(at)).map(Some).or_report(),
        None => {
            settings::set_session(c"automation_engine.clock", c"");
            Ok(None)
        }
    }
}

/// Moves this session's clock forward, from where it stands or from now.
#[pg_extern]
fn advance(by: Interval) -> Result<TimestampWithTimeZone, ErrorReport> {
    let from = clock::engine_now();
    let to = pgrx::datum::TimestampWithTimeZone::try_from(from)
        .map_err(|_| EngineError::invalid("the clock is out of range"))
        .map(|from| i64::from(from + by));
    to.and_then(|to| {
        if to < from {
            return Err(EngineError::invalid("the clock cannot be advanced by a negative interval")
                .hint("Use set_clock() to set it back."));
        }
        set(to)
    })
    .or_report()
}

fn set(micros: i64) -> EngineResult<TimestampWithTimeZone> {
    if !clock::SETTABLE.contains(&micros) {
        return Err(
            EngineError::invalid("the clock is out of range").hint("It can be set from the year 1 to the year 9999.")
        );
    }
    let text = CString::new(micros.to_string()).unwrap_or_default();
    settings::set_session(c"automation_engine.clock", &text);
    TimestampWithTimeZone::try_from(micros).map_err(|_| EngineError::invalid("the clock is out of range"))
}
