//! The waits of a run: how they begin, and how they end.

use super::{Machine, Record, Wait, WaitFor, error};
use crate::expr::{Budget, ExprError, References, Scope};
use crate::ids::{RunId, WaitNo};
use crate::program::Op;
use crate::steps;
use crate::value::{Number, Timestamp, Value};
use std::sync::Arc;

/// How soon to look again at a condition that reads the clock in a way that cannot be foreseen.
const LOOK_AGAIN: i64 = 60_000_000;

/// An occurrence that may end a wait.
#[derive(Clone, Debug)]
pub enum Cause {
    /// The time of a timer has come.
    Timer,
    /// Something that the wait's condition depends on may have changed.
    Look,
    /// An event came; the world has it as `event`.
    Event,
    /// A signal came, with this payload.
    Signal(Value),
    /// The run or bulk job it waited for has ended: with this status, result and error.
    Ended {
        /// `completed`, `failed`, `cancelled` ...
        status: String,
        /// The variables of that run, or the counts of that job.
        output: Value,
        /// The error that failed it.
        error: Value,
    },
    /// A person said to go on without the step.
    Skip,
}

/// The effect of a wake-up on the wait that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woke {
    /// There is no such wait any more.
    Gone,
    /// The wait goes on.
    NotYet,
    /// The run can move.
    Moved,
}

impl Machine<'_> {
    /// Tells that something happened that may end a wait. If it did, [`Machine::advance`] goes on from there.
    pub fn wake(&mut self, no: WaitNo, cause: Cause, world: &dyn Scope) -> Woke {
        if self.end.is_some() {
            return Woke::Gone;
        }
        let waiting = |wait: &Wait| wait.no == no && wait.is_outside();
        let Some(place) = self.state.threads.iter().position(|thread| thread.wait.as_ref().is_some_and(waiting)) else {
            return Woke::Gone;
        };
        let Some(wait) = self.state.threads[place].wait.clone() else { return Woke::Gone };
        let now = world.now().0;
        if matches!(cause, Cause::Skip) {
            return self.skip(place, &wait);
        }
        let over = wait.due.is_some_and(|due| due <= now);
        match (&wait.what, cause) {
            (WaitFor::Retry | WaitFor::Turn, _) if over => {
                self.state.threads[place].wait = None;
                Woke::Moved
            }
            (WaitFor::Delay, _) if over => {
                self.resolved(place, wait.step, Some(wait.since), waited(true, None));
                Woke::Moved
            }
            (WaitFor::Until, _) => steps::look(self, place, &wait, over, world),
            (WaitFor::Event { .. }, Cause::Event) if steps::event_matches(self, place, &wait, world) => {
                let event = match world.root("event") {
                    Ok(event) => event.cloned().unwrap_or_default(),
                    // If the event was read as null, the run would go on without its event.
                    Err(error) => {
                        self.warnings.push((wait.step, ExprError::from(error).message));
                        return Woke::NotYet;
                    }
                };
                let result = with(waited(true, wait.due.map(|due| due - now)), "event", event);
                self.resolved(place, wait.step, Some(wait.since), result);
                Woke::Moved
            }
            (WaitFor::Signal { .. }, Cause::Signal(payload)) => {
                let result = with(waited(true, wait.due.map(|due| due - now)), "payload", payload);
                self.resolved(place, wait.step, Some(wait.since), result);
                Woke::Moved
            }
            (WaitFor::Run { .. }, Cause::Ended { status, output, error: reason }) => {
                steps::run_ended(self, place, &wait, &status, output, &reason, now);
                Woke::Moved
            }
            (WaitFor::Bulk { .. }, Cause::Ended { status, output, error: reason }) => {
                self.bulk_ended(place, &wait, &status, output, reason, now);
                Woke::Moved
            }
            (
                WaitFor::Event { .. } | WaitFor::Signal { .. } | WaitFor::Run { .. } | WaitFor::Bulk { .. },
                Cause::Timer,
            ) if over => {
                self.timed_out(place, &wait, now);
                Woke::Moved
            }
            _ => Woke::NotYet,
        }
    }

    fn skip(&mut self, place: usize, wait: &Wait) -> Woke {
        let thread = &self.state.threads[place];
        // A run that let others have their turn may stand between two steps, and then there is no step to skip.
        if wait.what == WaitFor::Turn
            && !matches!(self.program.code.get(thread.pc), Some(Op::Act(_) | Op::Begin { .. }))
        {
            return Woke::NotYet;
        }
        let (attempt, since) = (thread.failed + 1, Some(wait.since));
        self.abandon(wait);
        self.push(Record { step: wait.step, status: "skipped", attempt, since, result: None, error: None });
        let result = Value::object(vec![("skipped".into(), Value::Bool(true))]);
        if self.program.steps[wait.step].action.kind().form().tells_wait {
            self.state.threads[place].wait_result.0 = result.clone();
        }
        self.keep_result(wait.step, result);
        self.step_past(place, wait.step);
        Woke::Moved
    }

    /// A wait was not fulfilled in time.
    pub(crate) fn timed_out(&mut self, place: usize, wait: &Wait, now: i64) {
        self.abandon(wait);
        let step = &self.program.steps[wait.step];
        // A run that was started and does not come back is a failed step; a wait is not, unless its author says so.
        if matches!(wait.what, WaitFor::Run { .. } | WaitFor::Bulk { .. }) || !step.continue_on_timeout {
            let error = error("57014", &format!("step \"{}\" timed out", step.id), None);
            let thread = &mut self.state.threads[place];
            thread.wait = None;
            if step.action.kind().form().tells_wait {
                thread.wait_result.0 = waited(false, Some(0));
            }
            return self.try_again_or_fail(place, Some(wait.since), Vec::new(), error, now);
        }
        self.resolved(place, wait.step, Some(wait.since), waited(false, Some(0)));
    }

    fn abandon(&mut self, wait: &Wait) {
        if let WaitFor::Run { run: RunId(id) } | WaitFor::Bulk { job: id } = wait.what {
            self.abandoned.push(id);
        }
    }

    /// The wait of a step is over, or needed none: the step has completed.
    pub(crate) fn resolved(&mut self, place: usize, number: usize, since: Option<i64>, result: Value) {
        let attempt = self.state.threads[place].failed + 1;
        let (status, told) = ("completed", Some(result.clone()));
        self.push(Record { step: number, status, attempt, since, result: told, error: None });
        self.keep_result(number, result.clone());
        self.state.threads[place].wait_result.0 = result;
        self.step_on(place);
    }

    /// The entities whose change may end a wait. Only the wait for a condition has any.
    pub fn references(&self, wait: &Wait, world: &dyn Scope) -> References {
        let Some(condition) = self.program.steps[wait.step].action.awaited() else { return References::default() };
        match self.thread_of(wait) {
            Some(place) => {
                let scope = self.scope_at(place, world);
                condition.resolved_references(&scope, &mut Budget::default())
            }
            None => References::default(),
        }
    }

    /// When to evaluate the condition of a wait again because time alone may make it true; None if not before its
    /// timeout.
    pub fn look_again(&self, wait: &Wait, world: &dyn Scope) -> Option<Timestamp> {
        let condition = self.program.steps[wait.step].action.awaited()?;
        let scope = self.scope_at(self.thread_of(wait)?, world);
        let soon = Timestamp(world.now().0.saturating_add(LOOK_AGAIN));
        let found = condition.time_dependence(&scope, &mut Budget::default());
        let at = match found {
            Ok(found) if found.untracked => Some(found.next.map_or(soon, |next| next.min(soon))),
            Ok(found) => found.next,
            Err(_) => condition.references().clock.then_some(soon),
        };
        at.filter(|at| wait.due.is_none_or(|due| at.0 < due))
    }

    fn thread_of(&self, wait: &Wait) -> Option<usize> {
        self.state.threads.iter().position(|thread| thread.wait.as_ref().is_some_and(|own| own.no == wait.no))
    }
}

/// The value of `wait` and the step's result: was the wait fulfilled, and how many seconds were left?
pub(crate) fn waited(completed: bool, left: Option<i64>) -> Value {
    let seconds = |micros: i64| {
        let micros = micros.max(0);
        let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        Number::parse(text).map_or(Value::Null, Value::Number)
    };
    Value::object(vec![
        ("completed".into(), Value::Bool(completed)),
        ("timed_out".into(), Value::Bool(!completed)),
        ("remaining".into(), left.map_or(Value::Null, seconds)),
    ])
}

/// An object with one more entry.
pub(crate) fn with(value: Value, name: &str, extra: Value) -> Value {
    let mut entries: Vec<(Arc<str>, Value)> = match &value {
        Value::Object(object) => object.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        _ => Vec::new(),
    };
    entries.push((name.into(), extra));
    Value::object(entries)
}
