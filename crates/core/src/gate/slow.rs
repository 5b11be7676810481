//! Filters that take too long. One process evaluates the filters of all owners, so an automation whose filters take
//! more than their share of its time is paused before it holds up the other automations.

use crate::value::Timestamp;
use serde_json::{Value as Json, json};

/// An automation is paused after so many evaluations of its filters in a row that used up their budget.
pub const FAILURES: u32 = 10;
/// The actor recorded for an automation that was paused because of slow filters.
pub const ACTOR: &str = "system:slow-filter";
/// The most time that an owner can have saved up, in microseconds.
const FULL: i64 = 2_000_000;
/// For each so many microseconds that pass, an owner's filters may take one more microsecond.
const SHARE: i64 = 10;

/// How much time an owner's filters may still take. Only filters that take long are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    left: i64,
    at: i64,
}

impl Allowance {
    /// A full allowance, at an instant in microseconds.
    pub fn new(at: i64) -> Allowance {
        Allowance { left: FULL, at }
    }

    /// A filter took so many microseconds. False if that was more than the owner had left.
    pub fn spend(&mut self, micros: u64, at: i64) -> bool {
        let gained = at.saturating_sub(self.at).max(0) / SHARE;
        let spent = i64::try_from(micros).unwrap_or(i64::MAX);
        let left = self.left.saturating_add(gained).min(FULL).saturating_sub(spent);
        // A debt is not carried on: a later filter that is quick must not pay for an earlier one.
        *self = Allowance { left: left.max(0), at };
        left >= 0
    }
}

/// Why the filters of an automation are not evaluated any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// They used up their budget, so many times in a row.
    Budget(u32),
    /// They took more time than their owner had left.
    Time,
}

impl Slow {
    /// The reason in a sentence without a full stop.
    pub fn told(self) -> String {
        match self {
            Slow::Budget(times) => format!("it used up its budget {times} times in a row"),
            Slow::Time => "the filters of its owner took more than a tenth of the time".to_owned(),
        }
    }

    /// The details that are stored with the automation that is paused because of this.
    pub fn disable_details(self, at: Timestamp, trigger: &str) -> Json {
        json!({
            "disabled_by": "system",
            "disabled_at": at.to_string(),
            "reason": "filter_too_slow",
            "trigger": trigger,
            "detail": self.told(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, FULL, SHARE, Slow};
    use crate::value::Timestamp;

    #[test]
    fn an_owner_can_spend_what_was_saved_up_and_then_a_tenth_of_the_time() {
        let mut allowance = Allowance::new(0);
        assert!(allowance.spend(FULL as u64, 0));
        assert!(!allowance.spend(1, 0));
        // 1000 microseconds later a hundred of them may be spent
        assert!(allowance.spend(1000 / SHARE as u64, 1000));
        assert!(!allowance.spend(1, 1000));
    }

    #[test]
    fn no_more_than_a_full_allowance_is_saved_up_and_no_debt_is_kept() {
        let mut allowance = Allowance::new(0);
        assert!(!allowance.spend(100 * FULL as u64, FULL * SHARE * 1000));
        assert!(allowance.spend(10, FULL * SHARE * 1000 + 10 * SHARE));
        let mut clock_set_back = Allowance::new(1_000_000);
        assert!(clock_set_back.spend(1, 0));
    }

    #[test]
    fn the_details_name_the_reason_and_the_trigger() {
        let details = Slow::Budget(10).disable_details(Timestamp(0), "t");
        assert_eq!(details["reason"], "filter_too_slow");
        assert_eq!(details["detail"], "it used up its budget 10 times in a row");
        assert_eq!(details["trigger"], "t");
    }
}
