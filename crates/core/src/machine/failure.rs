//! Bearing the failure of a step: `continue_on_error`, its own or that of a step around it.

use super::Machine;
use crate::program::Op;
use crate::value::Value;

impl Machine<'_> {
    /// The step that lets the run go on though this one failed: itself, or one around it in the same thread.
    pub(super) fn bearer(&self, number: usize) -> Option<usize> {
        let mut at = Some(number);
        while let Some(step) = at.map(|at| &self.program.steps[at]) {
            if step.continue_on_error {
                return at;
            }
            at = step.outer;
        }
        None
    }

    /// Goes on behind the step that bears the failure of one inside it.
    pub(super) fn bear(&mut self, place: usize, number: usize, bearer: usize, error: Value) {
        let result = Value::object(vec![("error".into(), error.clone())]);
        self.keep_result(number, result.clone());
        if bearer != number {
            self.keep_result(bearer, result);
            self.record(bearer, "failed", None, Some(error));
        }
        while self.state.threads[place].frames.len() > self.program.steps[bearer].frames {
            self.pop_frame(place);
        }
        self.step_on(place);
        if let Some((_, past)) = self.extent(bearer) {
            self.state.threads[place].pc = past;
        }
    }

    /// Where a step that has steps inside it begins, and where the next one does.
    pub(super) fn extent(&self, number: usize) -> Option<(usize, usize)> {
        self.program.code.iter().enumerate().find_map(|(pc, op)| match op {
            Op::Begin { step, past } if *step == number => Some((pc, *past)),
            _ => None,
        })
    }
}
