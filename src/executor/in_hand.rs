//! The runs of the batch under way. What became of them is written at its end, so that until then nobody in this process can
//! say more of them than that.
use std::cell::RefCell;
use std::collections::HashSet;

use crate::context;

thread_local!(static RUNS: RefCell<HashSet<i64>> = RefCell::new(HashSet::new()));

/// A run is about to take steps.
pub fn note(run: i64) {
    RUNS.with_borrow_mut(|runs| runs.insert(run));
}

/// Everything is written, or nothing has begun.
pub fn clear() {
    RUNS.with_borrow_mut(HashSet::clear);
}

/// Has the batch under way decided about the run?
pub fn contains(run: i64) -> bool {
    RUNS.with_borrow(|runs| runs.contains(&run))
}

/// Asked by a step: is it about a run of its own batch?
pub fn is_in_hand(run: i64) -> bool {
    context::run().is_some() && contains(run)
}
