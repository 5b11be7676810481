//! The circuit breaker: an automation whose runs fail one after the other is paused (R003-9).

use crate::ids::RunId;
use crate::value::Timestamp;
use serde_json::{Value as Json, json};

/// Failed runs in a row that pause an automation, unless it says otherwise.
pub const DEFAULT: u32 = 5;
/// The actor recorded for a pause by the breaker.
pub const ACTOR: &str = "system:automation-breaker";

/// The state of an automation's breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Failed runs in a row.
    pub failures: u32,
    /// The breaker has paused the automation.
    pub open: bool,
}

/// The occurrences that change a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A run came to its end.
    Completed,
    /// A run failed after all its tries.
    Failed,
    /// A run was stopped: by a person, by a pause, or because it executed too many steps. Says nothing about failures.
    Cancelled,
    /// The automation was made active, for the first time or again.
    Activated,
}

impl Breaker {
    /// The state of the breaker after an occurrence, and whether the automation is to be paused now. `threshold` is
    /// `None` if the breaker is off.
    pub fn hear(self, heard: Heard, threshold: Option<u32>) -> (Breaker, bool) {
        match heard {
            Heard::Activated => (Breaker::default(), false),
            // Runs that were under way may still end well; only a person closes an open breaker.
            _ if self.open => (self, false),
            Heard::Completed => (Breaker::default(), false),
            Heard::Cancelled => (self, false),
            Heard::Failed => {
                let failures = self.failures.saturating_add(1);
                let open = threshold.is_some_and(|threshold| failures >= threshold);
                (Breaker { failures, open }, open)
            }
        }
    }

    /// The details that are stored with the automation that the breaker has paused.
    pub fn disable_details(self, at: Timestamp, last_run: RunId, error: &str) -> Json {
        json!({
            "disabled_by": "system",
            "disabled_at": at.to_string(),
            "reason": "failure_breaker",
            "failures": self.failures,
            "last_run": last_run,
            "error": error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, DEFAULT, Heard};
    use Heard::{Activated, Cancelled, Completed, Failed};

    /// The failures counted after each, and a ! where the automation is paused.
    fn told(threshold: Option<u32>, heard: &[Heard]) -> String {
        let mut breaker = Breaker::default();
        let mut out = Vec::new();
        for heard in heard {
            let (next, trips) = breaker.hear(*heard, threshold);
            breaker = next;
            out.push(format!("{}{}", breaker.failures, if trips { "!" } else { "" }));
        }
        out.join(" ")
    }

    #[test]
    fn five_failed_runs_in_a_row_pause_it_once_r003_9() {
        assert_eq!(told(Some(DEFAULT), &[Failed; 7]), "1 2 3 4 5! 5 5");
    }

    #[test]
    fn a_completed_run_and_activation_begin_anew_a_cancelled_one_says_nothing() {
        assert_eq!(told(Some(3), &[Failed, Failed, Completed, Failed, Failed, Failed]), "1 2 0 1 2 3!");
        assert_eq!(told(Some(3), &[Failed, Failed, Cancelled, Failed]), "1 2 2 3!");
        assert_eq!(told(Some(3), &[Failed, Activated, Failed, Failed, Failed]), "1 0 1 2 3!");
    }

    #[test]
    fn an_open_breaker_stays_open_until_the_automation_is_activated() {
        assert_eq!(told(Some(2), &[Failed, Failed, Completed, Failed, Activated, Failed, Failed]), "1 2! 2 2 0 1 2!");
    }

    #[test]
    fn switched_off_it_never_pauses() {
        assert_eq!(told(None, &[Failed; 6]), "1 2 3 4 5 6");
    }
}
