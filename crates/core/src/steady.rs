//! Does the clock on the wall run as time passes? It is compared with a clock that only runs forward: the two drift
//! apart when the clock on the wall is set, by a person, by NTP after a long outage, or by a virtual machine that was
//! asleep.

/// Microseconds.
type Micros = i64;

/// The clock was set if it has moved by so much against the clock that only runs forward.
const JUMP: Micros = 1_000_000;
/// Rows are dropped as too old only by a clock that was not set by as much as this ...
const LARGE: Micros = 60_000_000;
/// ... for so long, or that is not further than `NEAR` from the newest event or run recorded.
const TRUSTED_AFTER: Micros = 3_600_000_000;
const NEAR: Micros = 86_400_000_000;

/// How the clock was set since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    SetAhead,
    SetBack,
}

/// One process's knowledge of the clock.
#[derive(Clone, Debug, Default)]
pub struct Steady {
    /// The difference of the two clocks at the last look.
    drift: Option<Micros>,
    /// Since when, by the clock that only runs forward, there was no large jump.
    since: Micros,
    /// The clock was near the newest event or run recorded when the process looked, and has not jumped since.
    near: bool,
}

impl Steady {
    /// Compares the clocks.
    pub fn look(&mut self, wall: Micros, passed: Micros) -> Change {
        let drift = wall.saturating_sub(passed);
        let moved = self.drift.map_or(0, |before| drift.saturating_sub(before));
        if self.drift.is_none() {
            self.since = passed;
        }
        self.drift = Some(drift);
        if moved.saturating_abs() >= LARGE {
            self.since = passed;
            self.near = false;
        }
        if moved <= -JUMP {
            Change::SetBack
        } else if moved >= JUMP {
            Change::SetAhead
        } else {
            Change::None
        }
    }

    /// Tells when the newest event or run was recorded. To be called after the first look.
    pub fn recorded(&mut self, newest: Option<Micros>, wall: Micros) {
        // Where nothing is recorded, nothing can be dropped too early.
        self.near |= newest.is_none_or(|newest| wall.abs_diff(newest) <= NEAR as u64);
    }

    /// May rows be dropped because they are old by the clock on the wall?
    pub fn is_trusted(&self, passed: Micros) -> bool {
        self.drift.is_some() && (self.near || passed - self.since >= TRUSTED_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Micros = 3_600_000_000;
    const YEAR: Micros = 365 * 24 * HOUR;

    #[test]
    fn a_clock_that_runs_as_time_passes_has_not_changed() {
        let mut clock = Steady::default();
        for second in 0..100 {
            // Slewed a little, as NTP does.
            let wall = 800 * YEAR / 100 + second * 1_000_400;
            assert_eq!(clock.look(wall, second * 1_000_000), Change::None);
        }
    }

    #[test]
    fn a_clock_that_is_set_is_noticed_in_both_directions() {
        let mut clock = Steady::default();
        assert_eq!(clock.look(0, 0), Change::None);
        assert_eq!(clock.look(10 * YEAR, 1_000), Change::SetAhead);
        assert_eq!(clock.look(10 * YEAR + 1_000, 2_000), Change::None);
        assert_eq!(clock.look(3_000, 3_000), Change::SetBack);
        assert_eq!(clock.look(4_000 - 5_000_000, 4_000), Change::SetBack);
    }

    #[test]
    fn nothing_is_dropped_within_an_hour_of_a_large_jump() {
        let mut clock = Steady::default();
        clock.look(0, 0);
        clock.recorded(Some(-HOUR), 0);
        assert!(clock.is_trusted(0), "the clock is near the newest thing recorded");
        clock.look(10 * YEAR, 1_000);
        assert!(!clock.is_trusted(2_000));
        clock.look(3_000, 3_000);
        assert!(!clock.is_trusted(4_000));
        clock.look(HOUR + 3_000, HOUR + 3_000);
        assert!(clock.is_trusted(HOUR + 3_000));
    }

    #[test]
    fn a_process_that_begins_with_a_clock_far_from_all_that_is_recorded_waits_an_hour() {
        let mut clock = Steady::default();
        clock.look(10 * YEAR, 0);
        clock.recorded(Some(0), 10 * YEAR);
        assert!(!clock.is_trusted(HOUR - 1));
        assert!(clock.is_trusted(HOUR), "a database in which nothing happened for years is tidied as well");
        let mut empty = Steady::default();
        assert!(!empty.is_trusted(10 * HOUR));
        empty.look(10 * YEAR, 0);
        empty.recorded(None, 10 * YEAR);
        assert!(empty.is_trusted(1));
    }
}
