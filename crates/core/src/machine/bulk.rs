//! The `bulk` step: what the run of a row begins with, and what becomes of the step when all of them have ended.

use super::{JobItem, Kept, Machine, State, Wait, WaitFor, error};
use crate::program::{Action, Program};
use crate::value::Value;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the runs of rows see of the run that ordered them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// Its variables.
    #[serde(default)]
    pub vars: Kept,
    /// What its steps gave back.
    #[serde(default)]
    pub results: Vec<(String, Kept)>,
}

impl Machine<'_> {
    /// What the runs of rows are to see, as it is now.
    pub fn surroundings(&self, thread: u32) -> Surroundings {
        let vars = self.state.threads[self.place_of(thread)].vars.clone();
        Surroundings { vars, results: self.state.results.clone() }
    }

    /// The run of one row. None if there is no such bulk step.
    pub fn start_item(program: &Program, step: usize, around: Surroundings, item: Value) -> Option<State> {
        let Action::Bulk { body, .. } = &program.steps.get(step)?.action else { return None };
        let mut state = State { results: around.results, item: Some(Kept(item)), ..State::new() };
        state.threads[0].pc = *body;
        state.threads[0].vars = around.vars;
        Some(state)
    }

    /// Says that the run is one item of a bulk job.
    pub fn belongs_to(&mut self, item: Option<JobItem>) {
        self.state.job = item;
    }

    pub(super) fn bulk_ended(
        &mut self,
        place: usize,
        wait: &Wait,
        status: &str,
        counts: Value,
        reason: Value,
        now: i64,
    ) {
        let WaitFor::Bulk { job } = wait.what else { return };
        let count = |name: &str| counts.get(name).and_then(Value::to_text).unwrap_or_else(|| "0".to_owned());
        let failed = count("failed");
        if status == "finished" && failed == "0" && count("cancelled") == "0" {
            return self.resolved(place, wait.step, Some(wait.since), counts);
        }
        let message = match status {
            "finished" if failed != "0" => format!("{failed} of {} items failed", count("total")),
            "finished" => format!("{} of {} items were cancelled", count("cancelled"), count("total")),
            "failed" => format!("the query of bulk job {job} failed"),
            other => format!("bulk job {job} was {other}"),
        };
        let text = |name: &str| reason.get(name).and_then(Value::to_text);
        let mut failure = error(&text("sqlstate").unwrap_or_else(|| "P0001".to_owned()), &message, None);
        if let Some(detail) = text("message") {
            failure = super::waits::with(failure, "detail", Value::text(detail));
        }
        let given: Vec<(Arc<str>, Value)> = match &counts {
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            _ => Vec::new(),
        };
        self.state.threads[place].wait = None;
        self.try_again_or_fail(place, Some(wait.since), given, failure, now);
    }
}
