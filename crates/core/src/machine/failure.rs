//! Failure: the next move of a run when a step or the run itself has failed.

use super::{End, Failing, Kept, Machine, Record, Thread, WaitFor};
use crate::condition::Condition;
use crate::expr::ExprError;
use crate::program::{Op, StopStatus, is_retryable};
use crate::value::Value;
use std::sync::Arc;

impl Machine<'_> {
    /// The step that was named last has failed.
    pub fn fail(&mut self, thread: u32, error: Value, now: i64) {
        self.try_again_or_fail(self.place_of(thread), None, Vec::new(), error, now);
    }

    /// The step at which a thread stands has failed, begun at `since` if not just now. `given` are the fields that it
    /// leaves behind beside the error.
    pub(crate) fn try_again_or_fail(
        &mut self,
        place: usize,
        since: Option<i64>,
        given: Vec<(Arc<str>, Value)>,
        error: Value,
        now: i64,
    ) {
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
                self.push(Record { step, status: "failed", attempt, since, result: None, error: Some(error) });
                self.state.threads[place].failed = attempt;
                self.suspend(place, step, WaitFor::Retry, now, Some(now.saturating_add(delay)));
            }
            None => self.failed_for_good(place, step, since, given, error),
        }
    }

    /// Ends the run from outside: it took too long, or must not go on.
    pub fn give_up(&mut self, status: StopStatus, reason: &str, error: Value) {
        let waiting: Vec<Record> = self
            .state
            .threads
            .iter()
            .filter_map(|thread| Some((thread, thread.wait.as_ref().filter(|wait| wait.is_outside())?)))
            .map(|(thread, wait)| Record {
                step: wait.step,
                status: "failed",
                attempt: thread.failed + 1,
                since: Some(wait.since),
                result: None,
                error: Some(error.clone()),
            })
            .collect();
        self.records.extend(waiting);
        // Steps that were to come next will not be taken: record them as failed.
        let next: Vec<usize> = (0..self.state.threads.len())
            .filter(|place| self.state.threads[*place].wait.is_none())
            .filter_map(|place| match self.program.code.get(self.state.threads[place].pc) {
                Some(Op::Act(step) | Op::Begin { step, .. }) => Some(*step),
                _ => None,
            })
            .collect();
        for step in next {
            self.record(step, "failed", None, Some(error.clone()));
        }
        if status == StopStatus::Failed {
            self.run_failed(reason, None, error);
        } else {
            self.finish(End { status, reason: Some(reason.to_owned()), step: None, error: Some(error) });
        }
    }

    /// A step has failed and is not tried again.
    pub(crate) fn failed(&mut self, place: usize, number: usize, error: Value) {
        self.failed_for_good(place, number, None, Vec::new(), error);
    }

    fn failed_for_good(
        &mut self,
        place: usize,
        number: usize,
        since: Option<i64>,
        given: Vec<(Arc<str>, Value)>,
        error: Value,
    ) {
        let program = self.program;
        let attempt = self.state.threads[place].failed + 1;
        let told = Some(error.clone());
        self.push(Record { step: number, status: "failed", attempt, since, result: None, error: told });
        self.keep_result(number, with_error(given, &error));
        // The step itself, or the innermost around it that is to go on in spite of errors.
        let around = std::iter::successors(Some(number), |step| program.steps[*step].within);
        let Some(covers) = around.into_iter().find(|step| program.steps[*step].continue_on_error) else {
            // A retry begins the step anew; of a `parallel`, only the lanes that failed.
            if self.state.threads[place].wait.is_none() {
                self.state.threads[place].pc = program.begin(number);
            }
            return match self.state.threads[place].parent {
                Some(parent) => self.leave_lane(place, parent, Some(error)),
                None => self.run_failed("step_failed", Some(program.steps[number].id.clone()), error),
            };
        };
        if covers != number {
            self.record(covers, "failed", None, Some(error.clone()));
            self.keep_result(covers, with_error(Vec::new(), &error));
        }
        while self.state.threads[place].frames.len() > program.steps[covers].frames {
            self.pop_frame(place);
        }
        self.step_past(place, covers);
    }

    /// The run has failed: its `on_failure` steps come next, if it has any and is not at them already.
    pub(crate) fn run_failed(&mut self, reason: &str, step: Option<String>, error: Value) {
        let error = match &step {
            Some(id) => super::waits::with(error, "step", Value::text(id)),
            None => error,
        };
        let failing = Failing { reason: reason.to_owned(), step, error: Kept(error), threads: Vec::new() };
        // The failed run of a row is reported to its `bulk` step, which fails with it unless it is to go on.
        let on_failure = self.program.on_failure.filter(|_| self.state.item.is_none());
        match (on_failure, self.state.failing.take()) {
            (_, Some(first)) => self.end_failed(first),
            (None, None) => self.end_failed(failing),
            (Some(pc), None) => {
                self.abandon_runs();
                let vars = Kept(self.output());
                let id = self.state.threads.first().map_or(0, |thread| thread.id);
                let way = vec![Thread { id, pc, vars, ..Thread::default() }];
                let threads = std::mem::replace(&mut self.state.threads, way);
                self.state.failing = Some(Failing { threads, ..failing });
            }
        }
    }

    /// Ends the run as failed; its state keeps where the run failed.
    pub(super) fn end_failed(&mut self, failing: Failing) {
        let Failing { reason, step, error, threads } = failing;
        let end = End { status: StopStatus::Failed, reason: Some(reason), step, error: Some(error.0) };
        self.finish(end);
        if !threads.is_empty() {
            self.state.threads = threads;
        }
    }

    /// Ends the run: nothing can wake it any more.
    pub(crate) fn finish(&mut self, end: End) {
        self.abandon_runs();
        self.end = Some(end);
    }

    /// Goes on behind the step at which a failed run stands.
    pub fn pass_over(&mut self) {
        let (number, _) = self.current(0);
        // at a parallel step, its lanes are passed over with it
        self.state.threads.truncate(1);
        self.record(number, "skipped", None, None);
        self.step_past(0, number);
    }

    fn abandon_runs(&mut self) {
        let children: Vec<i64> = self.state.children().collect();
        self.abandoned.extend(children);
    }
}

fn with_error(mut given: Vec<(Arc<str>, Value)>, error: &Value) -> Value {
    given.push(("error".into(), error.clone()));
    Value::object(given)
}

/// An error as `error` and `steps.<id>.error` show it.
pub fn error(sqlstate: &str, message: &str, hint: Option<&str>) -> Value {
    let mut fields = vec![("sqlstate".into(), Value::text(sqlstate)), ("message".into(), Value::text(message))];
    if let Some(hint) = hint {
        fields.push(("hint".into(), Value::text(hint)));
    }
    Value::object(fields)
}

/// The error value for an expression that could not be evaluated.
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
