//! Which automations' runs share a transaction with others, and which get a transaction each.
//!
//! A step that takes too long in a shared transaction is cut short and the whole batch is done again, so its automation
//! gets one transaction per run from then on. That costs every quick run a commit of its own, so the automation shares
//! again once its quick runs have cost about as much as a step that is cut short.
use std::collections::HashMap;

use crate::ids::AutomationId;

/// A run alone in its transaction that takes less than so many microseconds could have shared it. Half of the time that
/// a step may take in a shared transaction: a run near that limit would be cut short again and again.
const QUICK: i64 = 50_000;
/// After so many quick runs in a row an automation shares transactions again. A run alone costs about a millisecond
/// more than in a batch, a step that is cut short a tenth of a second: an automation with a slow run now and then costs
/// at most about twice as much as with the better of the two ways.
const QUICK_RUNS: u32 = 64;

/// The automations that get a transaction for each run.
#[derive(Clone, Debug, Default)]
pub struct Apart {
    /// By automation: how many quick runs in a row it has had since its slow step.
    quick_runs: HashMap<AutomationId, u32>,
}

impl Apart {
    /// A step of this automation was cut short because other runs shared its transaction.
    pub fn was_slow(&mut self, automation: AutomationId) {
        self.quick_runs.insert(automation, 0);
    }

    /// Does each run of this automation get a transaction of its own?
    pub fn contains(&self, automation: AutomationId) -> bool {
        self.quick_runs.contains_key(&automation)
    }

    /// A run of this automation was alone in its transaction and took so many microseconds.
    pub fn ran_alone(&mut self, automation: AutomationId, took: i64) {
        let Some(quick_runs) = self.quick_runs.get_mut(&automation) else { return };
        *quick_runs = if took < QUICK { *quick_runs + 1 } else { 0 };
        if *quick_runs >= QUICK_RUNS {
            self.quick_runs.remove(&automation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_automation_shares_until_a_step_is_slow() {
        let mut apart = Apart::default();
        assert!(!apart.contains(AutomationId(1)));
        apart.ran_alone(AutomationId(1), 10 * QUICK);
        assert!(!apart.contains(AutomationId(1)), "alone by chance, it was in the way of no other run");
        apart.was_slow(AutomationId(1));
        assert!(apart.contains(AutomationId(1)) && !apart.contains(AutomationId(2)));
    }

    #[test]
    fn slowness_is_forgotten_after_quick_runs_in_a_row() {
        let mut apart = Apart::default();
        apart.was_slow(AutomationId(1));
        apart.was_slow(AutomationId(2));
        for _ in 1..QUICK_RUNS {
            apart.ran_alone(AutomationId(1), QUICK - 1);
            assert!(apart.contains(AutomationId(1)));
        }
        apart.ran_alone(AutomationId(1), 0);
        assert!(!apart.contains(AutomationId(1)) && apart.contains(AutomationId(2)));
    }

    #[test]
    fn a_slow_run_in_between_begins_the_count_anew() {
        let mut apart = Apart::default();
        apart.was_slow(AutomationId(1));
        for _ in 0..10 {
            (1..QUICK_RUNS).for_each(|_| apart.ran_alone(AutomationId(1), 0));
            apart.ran_alone(AutomationId(1), QUICK);
            assert!(apart.contains(AutomationId(1)));
        }
        // cut short once more after it was forgotten
        (0..QUICK_RUNS).for_each(|_| apart.ran_alone(AutomationId(1), 0));
        apart.was_slow(AutomationId(1));
        apart.ran_alone(AutomationId(1), 0);
        assert!(apart.contains(AutomationId(1)));
    }

    #[test]
    fn an_automation_that_is_always_slow_is_never_tried_again() {
        let mut apart = Apart::default();
        apart.was_slow(AutomationId(1));
        (0..10 * QUICK_RUNS).for_each(|_| apart.ran_alone(AutomationId(1), 2 * QUICK));
        assert!(apart.contains(AutomationId(1)));
    }

    #[test]
    fn few_slow_runs_among_many_leave_most_runs_in_shared_transactions() {
        let mut apart = Apart::default();
        let mut alone = 0;
        for run in 0..50_000 {
            let took = if run % 3_571 == 100 { 4 * QUICK } else { 100 };
            if apart.contains(AutomationId(1)) {
                alone += 1;
                apart.ran_alone(AutomationId(1), took);
            } else if took > 2 * QUICK {
                apart.was_slow(AutomationId(1));
                apart.ran_alone(AutomationId(1), took);
            }
        }
        assert_eq!(alone, 14 * QUICK_RUNS);
    }
}
