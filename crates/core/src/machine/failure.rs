//! What becomes of a run when something has failed.

use super::{End, Failing, Kept, Machine, Record, Thread, WaitFor};
use crate::condition::Condition;
use crate::expr::ExprError;
use crate::program::{Op, StopStatus, is_retryable};
use crate::value::Value;

impl Machine<'_> {
    /// The step that was named last has failed.
    pub fn fail(&mut self, thread: u32, error: Value, now: i64) {
        self.try_again_or_fail(self.place_of(thread), error, now);
    }

    pub(super) fn try_again_or_fail(&mut self, place: usize, error: Value, now: i64) {
        let (step, attempt) = self.current(place);
        let program = self.program;
        let sqlstate = error.get("sqlstate").and_then(Value::as_str).unwrap_or_default();
        let delay = program.steps[step]
            .retry
            .as_ref()
            .filter(|_| is_retryable(sqlstate))
            .and_then(|retry| retry.delay(attempt, self.seed ^ (step as u64) << 32));
        match delay {
            Some(delay) => {
                let failed = Some(error);
                self.push(Record { step, status: "failed", attempt, since: None, result: None, error: failed });
                self.state.threads[place].failed = attempt;
                self.suspend(place, step, WaitFor::Retry, now, Some(now.saturating_add(delay)));
            }
            None => self.failed(place, step, error),
        }
    }

    /// Ends the run from outside: it took too long, or must not go on.
    pub fn give_up(&mut self, status: StopStatus, reason: &str, error: Value) {
        let waiting: Vec<usize> = self.state.waits().map(|wait| wait.step).collect();
        for step in waiting {
            self.record(step, "failed", None, Some(error.clone()));
        }
        if status == StopStatus::Failed {
            self.abandoned.extend(self.state.children().collect::<Vec<_>>());
            self.run_failed(reason, None, error);
        } else {
            self.end = Some(End { status, reason: Some(reason.to_owned()), step: None, error: Some(error) });
        }
    }

    /// A step has failed for good.
    pub(super) fn failed(&mut self, place: usize, number: usize, error: Value) {
        let attempt = self.state.threads[place].failed + 1;
        let (status, told) = ("failed", Some(error.clone()));
        self.push(Record { step: number, status, attempt, since: None, result: None, error: told });
        let step = &self.program.steps[number];
        if step.continue_on_error {
            self.keep_result(number, Value::object(vec![("error".into(), error)]));
            let past = self.program.code.iter().find_map(|op| match op {
                Op::Begin { step, past } if *step == number => Some(*past),
                _ => None,
            });
            self.step_on(place);
            if let Some(past) = past {
                self.state.threads[place].pc = past;
            }
            return;
        }
        match self.state.threads[place].parent {
            Some(parent) => self.leave_lane(place, parent, Some(error)),
            None => self.run_failed("step_failed", Some(step.id.clone()), error),
        }
    }

    /// The run has failed: its `on_failure` steps come next, if it has any and is not at them already.
    pub(super) fn run_failed(&mut self, reason: &str, step: Option<String>, error: Value) {
        let failing = Failing { reason: reason.to_owned(), step, error: Kept(error) };
        match (self.program.on_failure, self.state.failing.take()) {
            (_, Some(first)) => self.end = Some(failed_end(first)),
            (None, None) => self.end = Some(failed_end(failing)),
            (Some(pc), None) => {
                let vars = Kept(self.output());
                let id = self.state.threads.first().map_or(0, |thread| thread.id);
                self.state.threads = vec![Thread { id, pc, vars, ..Thread::default() }];
                self.state.failing = Some(failing);
            }
        }
    }
}

pub(super) fn failed_end(failing: Failing) -> End {
    let Failing { reason, step, error } = failing;
    End { status: StopStatus::Failed, reason: Some(reason), step, error: Some(error.0) }
}

/// An error as `error` and `steps.<id>.error` show it.
pub fn error(sqlstate: &str, message: &str, hint: Option<&str>) -> Value {
    let mut fields = vec![("sqlstate".into(), Value::text(sqlstate)), ("message".into(), Value::text(message))];
    if let Some(hint) = hint {
        fields.push(("hint".into(), Value::text(hint)));
    }
    Value::object(fields)
}

/// What went wrong with an expression.
pub fn fault(error: &ExprError, text: &str) -> Value {
    let mut fields =
        vec![("sqlstate".into(), Value::text("22023")), ("message".into(), Value::text(error.message.as_str()))];
    for (name, value) in [("detail", &error.detail), ("hint", &error.hint)] {
        if let Some(value) = value {
            fields.push((name.into(), Value::text(value.as_str())));
        }
    }
    if !text.is_empty() {
        fields.push(("context".into(), Value::text(format!("expression {text}"))));
    }
    Value::object(fields)
}

/// The text of the first expression in a condition, to tell conditions apart in an error.
pub fn text_of(condition: &Condition) -> String {
    let mut text = String::new();
    condition.each_expr(&mut |expr| {
        if text.is_empty() {
            text = expr.text().to_owned();
        }
    });
    text
}
