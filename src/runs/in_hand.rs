//! The runs of the current batch. Their results are written at its end, so that until then no statement of this process
//! can know more about them than that they are in this batch.
use automation_core::ids::RunId;

use super::batch_state;
use crate::provenance;

/// Notes a run that is about to execute steps.
pub fn note(run: RunId) {
    batch_state::with(|batch| batch.runs.insert(run));
}

/// Forgets the runs when the batch is written: they are in the tables now.
pub fn clear() {
    batch_state::with(|batch| batch.runs.clear());
}

/// Is the run in the current batch?
pub fn contains(run: RunId) -> bool {
    batch_state::with(|batch| batch.runs.contains(&run))
}

/// Is the run in the batch of the step that calls this? False outside of a step.
pub fn is_in_hand(run: RunId) -> bool {
    provenance::run().is_some() && contains(run)
}
