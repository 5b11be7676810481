//! Waiting: how it begins, what ends it.

use super::{Machine, Record, ThreadScope, Wait, WaitFor, error, fault};
use crate::expr::{Budget, ExprError, References, Scope};
use crate::program::{Action, Delay, Op, length};
use crate::template::Template;
use crate::topic;
use crate::value::{Number, Timestamp, Value};
use std::sync::Arc;

/// How soon to look again at a condition that reads the clock in a way that cannot be foreseen.
const LOOK_AGAIN: i64 = 60_000_000;

/// Most bytes of a signal's name, and of its key.
pub const MAX_SIGNAL: usize = 1000;

/// What may end a wait.
#[derive(Clone, Debug)]
pub enum Cause {
    /// Its time has come.
    Timer,
    /// Something it depends on may have changed.
    Look,
    /// An event came; the world shows it.
    Event,
    /// A signal came, with this payload.
    Signal(Value),
    /// The run or bulk job it waited for has ended: status, what it gave back, its error.
    Ended {
        /// `completed`, `failed`, `cancelled` ...
        status: String,
        /// Its variables.
        output: Value,
        /// What failed it.
        error: Value,
    },
    /// A person said to go on without it.
    Skip,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woke {
    /// There is no such wait any more.
    Gone,
    /// It goes on.
    NotYet,
    /// The run can move.
    Moved,
}

impl Machine<'_> {
    pub(super) fn begin_wait(&mut self, place: usize, number: usize, world: &dyn Scope) {
        let program = self.program;
        let step = &program.steps[number];
        let now = world.now().0;
        let due = self.timeout_of(number, now);
        match &step.action {
            Action::Delay(delay) => match self.end_of(place, delay, world) {
                Ok(due) if due <= now => self.resolved(place, number, None, waited(true, None)),
                Ok(due) => self.suspend(place, number, WaitFor::Delay, now, Some(due)),
                Err(error) => self.failed(place, number, error),
            },
            Action::WaitUntil(condition) => {
                let answer = {
                    let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
                    condition.holds(&scope, &mut Budget::default())
                };
                match answer {
                    Ok(true) => self.resolved(place, number, None, waited(true, step.timeout_ms.map(|ms| ms * 1000))),
                    Ok(false) => self.suspend(place, number, WaitFor::Until, now, due),
                    Err(error) => {
                        // What cannot be evaluated does not hold yet.
                        self.warnings.push((number, error.message));
                        self.suspend(place, number, WaitFor::Until, now, due);
                    }
                }
            }
            Action::WaitForEvent { topic, .. } => {
                let wanted = self.render(place, topic, world).and_then(|text| match topic::validate(&text) {
                    Ok(()) if text.trim().is_empty() => Err(error("22023", "the topic to wait for is empty", None)),
                    Ok(()) => Ok(topic::canonical(&text)),
                    Err(problem) => Err(fault(&problem, &text)),
                });
                match wanted {
                    Ok(topic) => self.suspend(place, number, WaitFor::Event { topic }, now, due),
                    Err(error) => self.failed(place, number, error),
                }
            }
            Action::WaitSignal { signal, key } => {
                let name = self.render(place, signal, world);
                let key = match key {
                    Some(key) => self.render(place, key, world).map(Some),
                    None => Ok(self.key.clone()),
                };
                match name.and_then(|name| Ok((name, key?))).and_then(|(name, key)| signal_of(name, key)) {
                    Ok(what) => self.suspend(place, number, what, now, due),
                    Err(error) => self.failed(place, number, error),
                }
            }
            _ => {}
        }
    }

    fn render(&self, place: usize, template: &Template, world: &dyn Scope) -> Result<String, Value> {
        let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
        template.render(&scope, &mut Budget::default()).map_err(|problem| fault(&problem, template.text()))
    }

    /// When a delay is over.
    fn end_of(&self, place: usize, delay: &Delay, world: &dyn Scope) -> Result<i64, Value> {
        let evaluate = |template: &Template| {
            let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
            template.eval(&scope, &mut Budget::default()).map_err(|problem| fault(&problem, template.text()))
        };
        let too_far = || error("22008", "the end of the delay is out of range", None);
        let after = |duration| world.now().plus(duration).map(|at| at.0).ok_or_else(too_far);
        match delay {
            Delay::For(duration) => after(*duration),
            Delay::Computed(template) => {
                let value = evaluate(template)?;
                let text = value.to_text().unwrap_or_default();
                match length(&text) {
                    Some(duration) => after(duration),
                    None => Err(error(
                        "22023",
                        &format!("the delay is {}, not a duration", value.to_json()),
                        Some("It is like '15 minutes', not negative, and below 10000 years."),
                    )),
                }
            }
            Delay::Until(template) => {
                let value = evaluate(template)?;
                match value.as_time() {
                    Some(at) if at.0 < i64::MAX / 2 => Ok(at.0),
                    _ => Err(error(
                        "22023",
                        &format!("the delay ends at {}, not at a point in time", value.to_json()),
                        Some("Give a timestamp such as '2030-01-01 08:00+00'."),
                    )),
                }
            }
        }
    }

    /// Something happened that may end a wait. If it did, [`Machine::advance`] goes on from there.
    pub fn wake(&mut self, no: i32, cause: Cause, world: &dyn Scope) -> Woke {
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
            (WaitFor::Until, _) => self.look(place, &wait, over, world),
            (WaitFor::Event { .. }, Cause::Event) if self.event_matches(place, &wait, world) => {
                let event = match world.root("event") {
                    Ok(event) => event.cloned().unwrap_or_default(),
                    // Without its event the wait would go on with null.
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
                self.run_ended(place, &wait, &status, output, reason, now);
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
        // One that has its turn may stand between two steps, and then there is none to skip.
        if wait.what == WaitFor::Turn
            && !matches!(self.program.code.get(thread.pc), Some(Op::Act(_) | Op::Begin { .. }))
        {
            return Woke::NotYet;
        }
        let (attempt, since) = (thread.failed + 1, Some(wait.since));
        self.abandon(wait);
        self.push(Record { step: wait.step, status: "skipped", attempt, since, result: None, error: None });
        let result = Value::object(vec![("skipped".into(), Value::Bool(true))]);
        if self.program.steps[wait.step].action.kind().is_wait() {
            self.state.threads[place].wait_result.0 = result.clone();
        }
        self.keep_result(wait.step, result);
        self.step_past(place, wait.step);
        Woke::Moved
    }

    /// Evaluates the condition of a wait; what holds beats what is over.
    fn look(&mut self, place: usize, wait: &Wait, over: bool, world: &dyn Scope) -> Woke {
        let program = self.program;
        let Action::WaitUntil(condition) = &program.steps[wait.step].action else { return Woke::NotYet };
        let answer = {
            let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
            condition.holds(&scope, &mut Budget::default())
        };
        match answer {
            Ok(true) => {
                let left = wait.due.map(|due| (due - world.now().0).max(0));
                self.resolved(place, wait.step, Some(wait.since), waited(true, left));
                return Woke::Moved;
            }
            Ok(false) => {}
            Err(error) => self.warnings.push((wait.step, error.message)),
        }
        if over {
            self.timed_out(place, wait, world.now().0);
            return Woke::Moved;
        }
        Woke::NotYet
    }

    /// What a step in one lane gave back may be what another lane waits for, or what names the entities it waits for.
    /// Waits that read results are looked at; one that goes on gets a new number, so that it is armed anew. Returns
    /// whether the run can move.
    pub(super) fn look_at_news(&mut self, world: &dyn Scope) -> bool {
        if !std::mem::take(&mut self.news) || self.state.threads.len() == 1 {
            return false;
        }
        let program = self.program;
        let mut moved = false;
        for place in 0..self.state.threads.len() {
            let Some(wait) = self.state.threads[place].wait.clone() else { continue };
            let Action::WaitUntil(condition) = &program.steps[wait.step].action else { continue };
            if !condition.roots().contains("steps") {
                continue;
            }
            match self.look(place, &wait, false, world) {
                Woke::Moved => moved = true,
                _ => self.suspend(place, wait.step, wait.what, wait.since, wait.due),
            }
        }
        moved
    }

    fn event_matches(&mut self, place: usize, wait: &Wait, world: &dyn Scope) -> bool {
        let program = self.program;
        let Action::WaitForEvent { filter: Some(filter), .. } = &program.steps[wait.step].action else { return true };
        match self.holds(place, filter, world) {
            Ok(answer) => answer,
            Err(error) => {
                let message = error.get("message").and_then(Value::to_text).unwrap_or_default();
                self.warnings.push((wait.step, message));
                false
            }
        }
    }

    fn timed_out(&mut self, place: usize, wait: &Wait, now: i64) {
        self.abandon(wait);
        let step = &self.program.steps[wait.step];
        // A run that was started and does not come back is a failed step; a wait is not, unless its author says so.
        if matches!(wait.what, WaitFor::Run { .. } | WaitFor::Bulk { .. }) || !step.continue_on_timeout {
            let error = error("57014", &format!("step \"{}\" timed out", step.id), None);
            let thread = &mut self.state.threads[place];
            thread.wait = None;
            if step.action.kind().is_wait() {
                thread.wait_result.0 = waited(false, Some(0));
            }
            return self.try_again_or_fail(place, Some(wait.since), Vec::new(), error, now);
        }
        self.resolved(place, wait.step, Some(wait.since), waited(false, Some(0)));
    }

    fn abandon(&mut self, wait: &Wait) {
        if let WaitFor::Run { run: id } | WaitFor::Bulk { job: id } = wait.what {
            self.abandoned.push(id);
        }
    }

    fn run_ended(&mut self, place: usize, wait: &Wait, status: &str, output: Value, reason: Value, now: i64) {
        let WaitFor::Run { run } = wait.what else { return };
        let entry = |name: &str, value: Value| (Arc::from(name), value);
        let fields =
            vec![entry("run_id", Value::int(run)), entry("status", Value::text(status)), entry("result", output)];
        if status == "completed" || status == "skipped" {
            return self.resolved(place, wait.step, Some(wait.since), Value::object(fields));
        }
        let Action::Run { automation, .. } = &self.program.steps[wait.step].action else { return };
        let message = format!("run {run} of automation \"{automation}\" {status}");
        let mut failure = vec![
            entry("sqlstate", reason.get("sqlstate").cloned().unwrap_or_else(|| Value::text("P0001"))),
            entry("message", Value::text(message)),
        ];
        if let Some(inner) = reason.get("message") {
            failure.push(entry("detail", inner.clone()));
        }
        self.state.threads[place].wait = None;
        self.try_again_or_fail(place, Some(wait.since), fields, Value::object(failure), now);
    }

    pub(super) fn resolved(&mut self, place: usize, number: usize, since: Option<i64>, result: Value) {
        let attempt = self.state.threads[place].failed + 1;
        let (status, told) = ("completed", Some(result.clone()));
        self.push(Record { step: number, status, attempt, since, result: told, error: None });
        self.keep_result(number, result.clone());
        self.state.threads[place].wait_result.0 = result;
        self.step_on(place);
    }

    /// The entities whose change may end a wait. Only a condition has any.
    pub fn references(&self, wait: &Wait, world: &dyn Scope) -> References {
        let Action::WaitUntil(condition) = &self.program.steps[wait.step].action else { return References::default() };
        match self.thread_of(wait) {
            Some(place) => {
                let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
                condition.resolved_references(&scope, &mut Budget::default())
            }
            None => References::default(),
        }
    }

    /// When time alone may end a wait before it is over.
    pub fn look_again(&self, wait: &Wait, world: &dyn Scope) -> Option<Timestamp> {
        let Action::WaitUntil(condition) = &self.program.steps[wait.step].action else { return None };
        let scope = ThreadScope::new(world, &self.state, &self.state.threads[self.thread_of(wait)?], &self.steps);
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

/// What can be sent by signal() can be waited for, and nothing else.
fn signal_of(name: String, key: Option<String>) -> Result<WaitFor, Value> {
    if name.trim().is_empty() || name.len() > MAX_SIGNAL {
        return Err(error("22023", &format!("the name of a signal has 1 to {MAX_SIGNAL} bytes"), None));
    }
    if key.as_ref().is_some_and(|key| key.len() > MAX_SIGNAL) {
        return Err(error("22023", &format!("the key of a signal has at most {MAX_SIGNAL} bytes"), None));
    }
    Ok(WaitFor::Signal { name, key })
}

/// `wait` and the step's result: did it end as hoped, and how many seconds were left?
fn waited(completed: bool, left: Option<i64>) -> Value {
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
pub(super) fn with(value: Value, name: &str, extra: Value) -> Value {
    let mut entries: Vec<(Arc<str>, Value)> = match &value {
        Value::Object(object) => object.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        _ => Vec::new(),
    };
    entries.push((name.into(), extra));
    Value::object(entries)
}
