//! The runs of the batch under way. What became of them is written at its end, so that until then nobody in this process can
//! say more of them than that.
use std::cell::RefCell;
use std::collections::HashSet;

use crate::provenance;

thread_local!(static RUNS: RefCell<HashSet<i64>> = RefCell::new(HashSet::new()));

/// A run is about to take steps.
pub fn note(run: i64) {
    RUNS.with_borrow_mut(|runs| runs.insert(run));
}

/// Everything is written, or nothing has begun.
pub fn clear() {
    RUNS.with_borrow_mut(HashSet::clear);
}

/// Asked by a step: is it about a run of its own batch?
pub fn is_in_hand(run: i64) -> bool {
    provenance::run().is_some() && RUNS.with_borrow(|runs| runs.contains(&run))
}
