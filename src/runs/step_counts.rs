//! Counts the outcomes of the steps of a turn, and writes the counts once at its end.
use std::collections::HashMap;

use automation_core::ids::{AutomationId, VersionId};

use super::batch_state;
use super::run::Run;
use crate::pg::clock::Micros;
use crate::store::step_stats::{self, StepCounts};

/// By version and number of the step: the automation, the step's id, and the counts.
pub type Counted = HashMap<(VersionId, usize), (AutomationId, String, StepCounts)>;

/// Counts a step that was completed, failed or skipped.
pub fn note(run: &Run, place: usize, step: &str, status: &str, attempt: u32, took: Micros) {
    batch_state::with(|batch| {
        let (_, _, counts) = batch
            .counted
            .entry((run.version_id, place))
            .or_insert_with(|| (run.automation_id, step.to_owned(), StepCounts::default()));
        match status {
            "completed" => counts.completed += 1,
            "failed" => counts.failed += 1,
            _ => counts.skipped += 1,
        }
        counts.retried += i64::from(attempt > 1);
        counts.time_us += took;
    });
}

/// Adds the counts of the turn to the statistics.
pub fn write(at: Micros) {
    let counted = batch_state::with(|batch| std::mem::take(&mut batch.counted));
    if !counted.is_empty() {
        let rows = counted.values().map(|(automation, step, counts)| (*automation, step.as_str(), counts));
        step_stats::add_steps(rows, at);
    }
}
