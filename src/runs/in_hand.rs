//! The runs of the batch under way. Their results are written at its end, so that until then no statement of this process can say
//! more of them than that they are in this batch.
use automation_core::ids::RunId;

use super::batch_state;
use crate::provenance;

/// A run is about to take steps.
pub fn note(run: RunId) {
    batch_state::with(|batch| batch.runs.insert(run));
}

/// The batch is written: its runs are in the tables.
pub fn clear() {
    batch_state::with(|batch| batch.runs.clear());
}

/// Has the batch under way decided about the run?
pub fn contains(run: RunId) -> bool {
    batch_state::with(|batch| batch.runs.contains(&run))
}

/// Asked by a step: is it about a run of its own batch?
pub fn is_in_hand(run: RunId) -> bool {
    provenance::run().is_some() && contains(run)
}
