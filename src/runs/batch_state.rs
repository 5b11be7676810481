//! The state of an executor's current batch that is written at its end: one value, begun anew with each batch, so that
//! nothing of a batch that was rolled back is left over.
use std::cell::RefCell;
use std::collections::HashSet;

use automation_core::ids::RunId;
use automation_core::topic::engine::Wanted;

use super::engine_events::StepNews;
use super::step_counts::Counted;
use crate::store::engine_listeners;

/// The state of one batch.
#[derive(Default)]
pub struct BatchState {
    /// Runs of the batch that have taken steps: their results are not in any table until the batch is written.
    pub(super) runs: HashSet<RunId>,
    /// The events of runs and steps that a trigger, wait or subscription listens to.
    pub(super) wanted: Wanted,
    /// The steps whose events are to be published.
    pub(super) news: Vec<StepNews>,
    /// The steps to be counted.
    pub(super) counted: Counted,
}

thread_local!(static CURRENT: RefCell<BatchState> = RefCell::default());

/// A batch begins: discards the state of the batch before.
pub fn begin() {
    let wanted = engine_listeners::wanted();
    CURRENT.with(|current| *current.borrow_mut() = BatchState { wanted, ..Default::default() });
}

pub(super) fn with<R>(work: impl FnOnce(&mut BatchState) -> R) -> R {
    CURRENT.with(|current| work(&mut current.borrow_mut()))
}
