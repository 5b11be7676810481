//! The run itself: which step comes next, what it waits for, how it ends.
//!
//! The machine decides and remembers; it does nothing. Whoever drives it performs the steps it names, tells it how they
//! went, keeps its [`State`] while it waits and wakes it. A run that is taken up again after a crash, in another process
//! or years later, is the same machine with the same state.

mod failure;
mod scope;
mod state;
mod waits;

pub use scope::ThreadScope;
pub use state::{Failing, Frame, Kept, LaneFailure, State, Thread, Wait, WaitFor};
pub use waits::{Cause, MAX_SIGNAL, Woke};

use crate::condition::Condition;
use crate::expr::{Budget, ExprError, Scope};
use crate::program::{Action, Op, Program, Repeat, Step, StopStatus, Target, is_retryable};
use crate::value::Value;
use std::cell::OnceCell;

/// Most rounds of any loop.
pub const MAX_ROUNDS: u32 = 10_000;

/// What to do next.
#[derive(Debug)]
pub enum Next {
    /// Perform this step of this thread, then say how it went.
    Act {
        /// Number of the thread.
        thread: u32,
        /// Number of the step.
        step: usize,
    },
    /// Keep the state until one of its waits is over.
    Suspend,
    /// The run has ended.
    End(End),
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct End {
    /// The word.
    pub status: StopStatus,
    /// Why, if not because all was done.
    pub reason: Option<String>,
    /// The step that failed.
    pub step: Option<String>,
    /// The error.
    pub error: Option<Value>,
}

/// Something to be put down in the history.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number of the step.
    pub step: usize,
    /// `completed`, `failed` or `skipped`.
    pub status: &'static str,
    /// Which try this was.
    pub attempt: u32,
    /// When it began, if not just now.
    pub since: Option<i64>,
    /// What it gave back.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<Value>,
}

/// A run under way.
pub struct Machine<'p> {
    program: &'p Program,
    /// Where it stands.
    pub state: State,
    /// Decides what chance decides.
    seed: u64,
    /// What a signal's key is compared with, unless the step says otherwise.
    key: Option<String>,
    steps: OnceCell<Value>,
    records: Vec<Record>,
    abandoned: Vec<i64>,
    warnings: Vec<(usize, String)>,
    end: Option<End>,
}

/// Does the walk go on by itself?
enum Flow {
    On,
    Act,
}

impl<'p> Machine<'p> {
    /// Takes up a run where it stands.
    pub fn new(program: &'p Program, state: State, seed: u64, key: Option<String>) -> Machine<'p> {
        Machine {
            program,
            state,
            seed,
            key,
            steps: OnceCell::new(),
            records: Vec::new(),
            abandoned: Vec::new(),
            warnings: Vec::new(),
            end: None,
        }
    }

    /// A run that is to begin at a step, with what earlier steps gave back. None if there is no such step at the top
    /// level.
    pub fn start_at(program: &Program, step: &str) -> Option<State> {
        let number = program.steps.iter().position(|known| known.id == step)?;
        let pc = program
            .code
            .iter()
            .position(|op| matches!(op, Op::Act(found) | Op::Begin { step: found, .. } if *found == number))?;
        let nested = program.steps[number].path.matches('[').count() != 1;
        (!nested && program.on_failure.is_none_or(|failure| pc < failure)).then(|| {
            let mut state = State::new();
            state.threads[0].pc = pc;
            state
        })
    }

    /// What it runs.
    pub fn program(&self) -> &'p Program {
        self.program
    }

    /// Which try of its step a thread is at, from 1.
    pub fn attempt(&self, thread: u32) -> u32 {
        self.state.threads[self.place_of(thread)].failed + 1
    }

    /// What has happened since this was last asked.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Runs that were waited for and are not any more; they are to be cancelled.
    pub fn take_abandoned(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.abandoned)
    }

    /// Conditions of waits that could not be evaluated, by step.
    pub fn take_warnings(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.warnings)
    }

    /// What the expressions of a thread see.
    pub fn scope<'a>(&'a self, thread: u32, world: &'a dyn Scope) -> ThreadScope<'a> {
        ThreadScope::new(world, &self.state, &self.state.threads[self.place_of(thread)], &self.steps)
    }

    fn place_of(&self, thread: u32) -> usize {
        self.state.threads.iter().position(|other| other.id == thread).unwrap_or_default()
    }

    /// The variables of the run, which are what it gives back.
    pub fn output(&self) -> Value {
        self.state.threads.first().map_or(Value::Null, |thread| {
            // what a loop hides is local to it
            thread.frames.first().map_or_else(|| thread.vars.0.clone(), |frame| frame.vars.0.clone())
        })
    }

    /// Walks on until a step is to be performed, every thread waits, or the run has ended.
    pub fn advance(&mut self, world: &dyn Scope) -> Next {
        loop {
            if let Some(end) = self.end.take() {
                self.abandoned.extend(self.state.children().collect::<Vec<_>>());
                return Next::End(end);
            }
            let Some(place) = self.state.threads.iter().position(|thread| thread.wait.is_none()) else {
                return Next::Suspend;
            };
            let pc = self.state.threads[place].pc;
            let program = self.program;
            let Some(op) = program.code.get(pc) else {
                self.finish_thread(place);
                continue;
            };
            match op {
                Op::Act(step) => match self.act(place, *step, world) {
                    Flow::On => {}
                    Flow::Act => return Next::Act { thread: self.state.threads[place].id, step: *step },
                },
                Op::Begin { step, past } => match self.admits(place, *step, world) {
                    Some(true) => self.state.threads[place].pc += 1,
                    Some(false) => self.state.threads[place].pc = *past,
                    None => {}
                },
                Op::End(step) => {
                    self.record(*step, "completed", None, None);
                    self.state.threads[place].pc += 1;
                }
                Op::Jump(target) => self.state.threads[place].pc = *target,
                Op::Way { step, way, otherwise } => {
                    let Action::Choose(ways) = &program.steps[*step].action else { continue };
                    match ways.get(*way).map_or(Ok(false), |condition| self.holds(place, condition, world)) {
                        Ok(true) => self.state.threads[place].pc += 1,
                        Ok(false) => self.state.threads[place].pc = *otherwise,
                        Err(error) => self.failed(place, *step, error),
                    }
                }
                Op::Loop { step, done } => self.begin_loop(place, *step, *done, world),
                Op::Next { step, body } => self.next_round(place, *step, *body, world),
                Op::Open => {
                    let thread = &mut self.state.threads[place];
                    thread.frames.push(Frame { vars: thread.vars.clone(), ..Frame::default() });
                    thread.pc += 1;
                }
                Op::Close => {
                    self.pop_frame(place);
                    self.state.threads[place].pc += 1;
                }
                Op::Fork { lanes, join, .. } => self.fork(place, lanes, *join),
                Op::Stop => self.finish_thread(place),
            }
        }
    }

    /// The step that was named last went well.
    pub fn succeed(&mut self, thread: u32, result: Value) {
        let place = self.place_of(thread);
        let (step, attempt) = self.current(place);
        self.push(Record {
            step,
            status: "completed",
            attempt,
            since: None,
            result: Some(result.clone()),
            error: None,
        });
        self.done(thread, Some(result));
    }

    /// The same, for a caller that keeps the record itself. None if nothing that follows could read the result.
    pub fn done(&mut self, thread: u32, result: Option<Value>) {
        let place = self.place_of(thread);
        if let Some(result) = result {
            let (step, _) = self.current(place);
            self.keep_result(step, result);
        }
        self.step_on(place);
    }

    /// The step that was named last has failed.
    pub fn fail(&mut self, thread: u32, error: Value, now: i64) {
        self.try_again_or_fail(self.place_of(thread), error, now);
    }

    fn try_again_or_fail(&mut self, place: usize, error: Value, now: i64) {
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

    /// The step that was named last has started another run, whose end is to be waited for.
    pub fn wait_for_run(&mut self, thread: u32, run: i64, now: i64) {
        let place = self.place_of(thread);
        let (step, _) = self.current(place);
        let due = self.timeout_of(step, now);
        self.suspend(place, step, WaitFor::Run { run }, now, due);
    }

    /// Lets others have their turn: every thread that could go on waits for a timer that is due at once.
    pub fn pause_here(&mut self, now: i64) {
        for place in 0..self.state.threads.len() {
            if self.state.threads[place].wait.is_none() {
                let (step, _) = self.current(place);
                self.suspend(place, step, WaitFor::Turn, now, Some(now));
            }
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

    /// The step at which a thread stands, and the number of the try.
    fn current(&self, place: usize) -> (usize, u32) {
        let thread = &self.state.threads[place];
        let step = match self.program.code.get(thread.pc) {
            Some(
                Op::Act(step)
                | Op::Begin { step, .. }
                | Op::End(step)
                | Op::Way { step, .. }
                | Op::Loop { step, .. }
                | Op::Next { step, .. }
                | Op::Fork { step, .. },
            ) => *step,
            _ => 0,
        };
        (step, thread.failed + 1)
    }

    fn timeout_of(&self, step: usize, now: i64) -> Option<i64> {
        self.program.steps[step].timeout_ms.map(|ms| now.saturating_add(ms.saturating_mul(1000)))
    }

    /// Goes on behind the step at which a thread stands.
    fn step_on(&mut self, place: usize) {
        let thread = &mut self.state.threads[place];
        thread.pc += 1;
        thread.failed = 0;
        thread.wait = None;
    }

    fn suspend(&mut self, place: usize, step: usize, what: WaitFor, now: i64, due: Option<i64>) {
        let no = self.state.next_wait;
        self.state.next_wait += 1;
        self.state.threads[place].wait = Some(Wait { no, step, what, since: now, due });
    }

    fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    fn record(&mut self, step: usize, status: &'static str, result: Option<Value>, error: Option<Value>) {
        self.push(Record { step, status, attempt: 1, since: None, result, error });
    }

    fn keep_result(&mut self, step: usize, result: Value) {
        let id = &self.program.steps[step].id;
        match self.state.results.iter_mut().find(|(known, _)| known == id) {
            Some((_, kept)) => kept.0 = result,
            None => self.state.results.push((id.clone(), Kept(result))),
        }
        self.steps = OnceCell::new();
    }

    fn holds(&self, place: usize, condition: &Condition, world: &dyn Scope) -> Result<bool, Value> {
        let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
        condition.holds(&scope, &mut Budget::default()).map_err(|error| fault(&error, &text_of(condition)))
    }

    /// Is a step to be done? None if that alone has failed or ended something.
    fn admits(&mut self, place: usize, number: usize, world: &dyn Scope) -> Option<bool> {
        let step = &self.program.steps[number];
        if self.state.threads[place].failed > 0 {
            return Some(true);
        }
        let wanted = match &step.condition {
            _ if !step.enabled => Ok(false),
            None => Ok(true),
            Some(condition) => self.holds(place, condition, world),
        };
        match wanted {
            Err(error) => {
                self.failed(place, number, error);
                None
            }
            Ok(false) => {
                self.record(number, "skipped", None, None);
                Some(false)
            }
            Ok(true) => {
                self.state.executed += 1;
                if self.state.executed <= self.program.max_steps || self.state.failing.is_some() {
                    return Some(true);
                }
                let message = format!(
                    "Automation exceeded {} step executions \u{2014} cancelled to prevent a loop",
                    self.program.max_steps
                );
                let hint = "Raise max_steps if so many are meant.";
                let error = error("54000", &message, Some(hint));
                self.record(number, "failed", None, Some(error.clone()));
                let (step, reason) = (Some(step.id.clone()), Some("loop_cap".to_owned()));
                self.end = Some(End { status: StopStatus::Cancelled, reason, step, error: Some(error) });
                None
            }
        }
    }

    fn act(&mut self, place: usize, number: usize, world: &dyn Scope) -> Flow {
        match self.admits(place, number, world) {
            Some(true) => {}
            Some(false) => {
                self.step_on(place);
                return Flow::On;
            }
            None => return Flow::On,
        }
        let program = self.program;
        let step = &program.steps[number];
        match &step.action {
            Action::Sql(_)
            | Action::Call { .. }
            | Action::Publish { .. }
            | Action::Notify { .. }
            | Action::StoreState { .. }
            | Action::Run { .. } => return Flow::Act,
            Action::Set(variables) => self.set(place, number, variables, world),
            Action::Branch { condition, yes, no } => match self.holds(place, condition, world) {
                Ok(answer) => self.branch(place, number, answer, if answer { yes } else { no }.as_ref()),
                Err(error) => self.failed(place, number, error),
            },
            Action::Require { condition, end } => match self.holds(place, condition, world) {
                Ok(answer) => {
                    let passed = Value::object(vec![("passed".into(), Value::Bool(answer))]);
                    self.record(number, "completed", Some(passed), None);
                    if answer {
                        self.step_on(place);
                    } else {
                        self.state.threads[place].pc = *end;
                    }
                }
                Err(error) => self.failed(place, number, error),
            },
            Action::Stop { status, message } => self.stop(place, number, *status, message.as_ref(), world),
            Action::Delay(_) | Action::WaitUntil(_) | Action::WaitForEvent { .. } | Action::WaitSignal { .. } => {
                self.begin_wait(place, number, world);
            }
            Action::Choose(_) | Action::Repeat(_) | Action::Parallel | Action::Sequence => self.step_on(place),
        }
        Flow::On
    }

    fn set(
        &mut self,
        place: usize,
        number: usize,
        variables: &[(String, crate::template::JsonTemplate)],
        world: &dyn Scope,
    ) {
        // Each sees those before it.
        for (name, template) in variables {
            let value = {
                let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
                template.eval(&scope, &mut Budget::default())
            };
            match value {
                Ok(value) => {
                    let vars = &mut self.state.threads[place].vars.0;
                    let mut entries: Vec<_> = match &*vars {
                        Value::Object(object) => object.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
                        _ => Vec::new(),
                    };
                    entries.retain(|(known, _)| &**known != name);
                    entries.push((name.as_str().into(), value));
                    *vars = Value::object(entries);
                }
                Err(error) => return self.failed(place, number, fault(&error, template.text())),
            }
        }
        self.record(number, "completed", None, None);
        self.step_on(place);
    }

    fn branch(&mut self, place: usize, number: usize, answer: bool, target: Option<&Target>) {
        let mut result = vec![("answer".into(), Value::Bool(answer))];
        if let Some(target) = target {
            result.push(("to".into(), Value::text(&self.program.steps[target.step].id)));
        }
        self.record(number, "completed", Some(Value::object(result)), None);
        let Some(target) = target else { return self.step_on(place) };
        for skipped in &target.skipped {
            self.record(*skipped, "skipped", None, None);
        }
        while self.state.threads[place].frames.len() > target.frames {
            self.pop_frame(place);
        }
        self.state.threads[place].pc = target.pc;
    }

    fn stop(
        &mut self,
        place: usize,
        number: usize,
        status: StopStatus,
        message: Option<&crate::template::Template>,
        world: &dyn Scope,
    ) {
        let text = message.map(|message| {
            let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
            message.render(&scope, &mut Budget::default()).map_err(|error| fault(&error, message.text()))
        });
        let text = match text.transpose() {
            Ok(text) => text,
            Err(error) => return self.failed(place, number, error),
        };
        let told = text.as_ref().map(|text| Value::object(vec![("message".into(), Value::text(text))]));
        self.record(number, "completed", told, None);
        let step = self.program.steps[number].id.clone();
        if status == StopStatus::Failed {
            let error = error("P0001", text.as_deref().unwrap_or("the run was stopped as failed"), None);
            self.abandoned.extend(self.state.children().collect::<Vec<_>>());
            return self.run_failed("stopped", Some(step), error);
        }
        let reason = Some("stopped".to_owned());
        let error = (status == StopStatus::Cancelled).then(|| text.map(|text| error("P0001", &text, None))).flatten();
        self.end = Some(End { status, reason, step: Some(step), error });
    }

    fn pop_frame(&mut self, place: usize) {
        let thread = &mut self.state.threads[place];
        if let Some(frame) = thread.frames.pop() {
            thread.vars = frame.vars;
        }
    }

    fn begin_loop(&mut self, place: usize, number: usize, done: usize, world: &dyn Scope) {
        let program = self.program;
        let Action::Repeat(repeat) = &program.steps[number].action else { return };
        let evaluate = |expr: &crate::expr::Expr| {
            let scope = ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps);
            expr.eval(&scope, &mut Budget::default()).map_err(|error| fault(&error, expr.text()))
        };
        let (rounds, items) = match repeat {
            Repeat::While(_) | Repeat::Until(_) => (None, None),
            Repeat::Count(expr) => match evaluate(expr).and_then(|value| rounds_of(&value)) {
                Ok(rounds) => (Some(rounds), None),
                Err(error) => return self.failed(place, number, error),
            },
            Repeat::Each(expr) => match evaluate(expr).and_then(items_of) {
                Ok((rounds, items)) => (Some(rounds), Some(Kept(items))),
                Err(error) => return self.failed(place, number, error),
            },
        };
        let thread = &mut self.state.threads[place];
        if rounds == Some(0) {
            thread.pc = done;
            return;
        }
        thread.frames.push(Frame { vars: thread.vars.clone(), round: 1, rounds, items });
        let begin = match repeat {
            Repeat::While(condition) => self.holds(place, condition, world),
            _ => Ok(true),
        };
        match begin {
            Ok(true) => self.state.threads[place].pc += 1,
            Ok(false) => {
                self.pop_frame(place);
                self.state.threads[place].pc = done;
            }
            Err(error) => {
                self.pop_frame(place);
                self.failed(place, number, error);
            }
        }
    }

    fn next_round(&mut self, place: usize, number: usize, body: usize, world: &dyn Scope) {
        let program = self.program;
        let Action::Repeat(repeat) = &program.steps[number].action else { return };
        let again = match repeat {
            Repeat::Until(condition) => self.holds(place, condition, world).map(|holds| !holds),
            _ => Ok(true),
        };
        let Some(frame) = self.state.threads[place].frames.last_mut() else { return };
        frame.round += 1;
        let (round, rounds) = (frame.round, frame.rounds);
        let again = match (again, repeat) {
            (Ok(true), Repeat::While(condition)) => self.holds(place, condition, world),
            (Ok(true), _) => Ok(rounds.is_none_or(|rounds| round <= rounds)),
            (other, _) => other,
        };
        match again {
            Ok(true) if round > MAX_ROUNDS => {
                self.pop_frame(place);
                let message = format!("a loop does not take more than {MAX_ROUNDS} rounds");
                self.failed(place, number, error("54000", &message, None));
            }
            Ok(true) => self.state.threads[place].pc = body,
            Ok(false) => {
                self.pop_frame(place);
                self.state.threads[place].pc += 1;
            }
            Err(error) => {
                self.pop_frame(place);
                self.failed(place, number, error);
            }
        }
    }

    fn fork(&mut self, place: usize, lanes: &[usize], join: usize) {
        let (parent, vars) = (self.state.threads[place].id, self.state.threads[place].vars.clone());
        let (step, _) = self.current(place);
        for pc in lanes {
            let id = self.state.next_thread;
            self.state.next_thread += 1;
            let lane = Thread { id, parent: Some(parent), pc: *pc, vars: vars.clone(), ..Thread::default() };
            self.state.threads.push(lane);
        }
        // Not a wait that anything outside could end, so it needs no number.
        let what = WaitFor::Lanes { left: lanes.len() as u32, failed: None };
        let thread = &mut self.state.threads[place];
        thread.pc = join;
        thread.wait = Some(Wait { no: 0, step, what, since: 0, due: None });
    }

    fn finish_thread(&mut self, place: usize) {
        match self.state.threads[place].parent {
            Some(parent) => self.leave_lane(place, parent, None),
            None => match self.state.failing.take() {
                None => self.end = Some(End { status: StopStatus::Completed, reason: None, step: None, error: None }),
                Some(failing) => self.end_failed(failing),
            },
        }
    }

    fn leave_lane(&mut self, place: usize, parent: u32, error: Option<Value>) {
        self.state.threads.remove(place);
        let place = self.place_of(parent);
        let Some(Wait { step, what: WaitFor::Lanes { left, failed }, .. }) = &mut self.state.threads[place].wait else {
            return;
        };
        *left -= 1;
        if failed.is_none() {
            *failed = error.map(|error| Box::new(LaneFailure { error: Kept(error) }));
        }
        if *left > 0 {
            return;
        }
        let (step, failed) = (*step, failed.take());
        self.state.threads[place].wait = None;
        if let Some(failed) = failed {
            self.failed(place, step, failed.error.0);
        }
    }

    /// A step has failed for good.
    fn failed(&mut self, place: usize, number: usize, error: Value) {
        let attempt = self.state.threads[place].failed + 1;
        let (status, told) = ("failed", Some(error.clone()));
        self.push(Record { step: number, status, attempt, since: None, result: None, error: told });
        if let Some(bearer) = self.bearer(number) {
            return self.bear(place, number, bearer, error);
        }
        let step = &self.program.steps[number];
        if let Some((begin, _)) = self.extent(number) {
            // Should it be tried again, then from its beginning.
            self.state.threads[place].pc = begin;
        }
        match self.state.threads[place].parent {
            Some(parent) => self.leave_lane(place, parent, Some(error)),
            None => self.run_failed("step_failed", Some(step.id.clone()), error),
        }
    }

    /// The run has failed: its `on_failure` steps come next, if it has any and is not at them already.
    fn run_failed(&mut self, reason: &str, step: Option<String>, error: Value) {
        let error = match &step {
            Some(id) => waits::with(error, "step", Value::text(id)),
            None => error,
        };
        let failing = Failing { reason: reason.to_owned(), step, error: Kept(error), threads: Vec::new() };
        match (self.program.on_failure, self.state.failing.take()) {
            (_, Some(first)) => self.end_failed(first),
            (None, None) => self.end_failed(failing),
            (Some(pc), None) => {
                let vars = Kept(self.output());
                let id = self.state.threads.first().map_or(0, |thread| thread.id);
                let way = vec![Thread { id, pc, vars, ..Thread::default() }];
                let threads = std::mem::replace(&mut self.state.threads, way);
                self.state.failing = Some(Failing { threads, ..failing });
            }
        }
    }

    /// The run ends as failed, and its state says where that was.
    fn end_failed(&mut self, failing: Failing) {
        let Failing { reason, step, error, threads } = failing;
        if !threads.is_empty() {
            self.state.threads = threads;
        }
        self.end = Some(End { status: StopStatus::Failed, reason: Some(reason), step, error: Some(error.0) });
    }

    /// Goes on behind the step at which a failed run stands.
    pub fn pass_over(&mut self) {
        let (number, _) = self.current(0);
        self.record(number, "skipped", None, None);
        let extent = self.extent(number);
        self.step_on(0);
        if let Some((_, past)) = extent {
            self.state.threads[0].pc = past;
        }
    }
}

fn rounds_of(value: &Value) -> Result<u32, Value> {
    let number = value.as_number().and_then(|number| number.to_string().parse::<i64>().ok());
    match number {
        Some(rounds @ 0..) if rounds <= i64::from(MAX_ROUNDS) => Ok(rounds as u32),
        Some(0..) => Err(error("54000", &format!("a loop does not take more than {MAX_ROUNDS} rounds"), None)),
        _ => {
            let message = format!("the count of a loop is {}, not a whole number from 0", value.to_json());
            Err(error("22023", &message, None))
        }
    }
}

fn items_of(value: Value) -> Result<(u32, Value), Value> {
    match &value {
        Value::Null => Ok((0, value)),
        Value::List(items) if items.len() <= MAX_ROUNDS as usize => Ok((items.len() as u32, value)),
        Value::List(items) => {
            let message = format!("a loop does not take more than {MAX_ROUNDS} rounds, the list has {}", items.len());
            Err(error("54000", &message, None))
        }
        other => Err(error("22023", &format!("for_each needs a list, not {}", other.type_name()), None)),
    }
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

impl Step {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        self.action.kind().name()
    }
}
