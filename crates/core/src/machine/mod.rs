//! The run itself: its next step, its waits, its end.
//!
//! The machine decides and remembers; it does nothing. Its caller performs the steps it names, reports how they went,
//! keeps its [`State`] while it waits and wakes it. A run that is taken up again after a crash, in another process or
//! years later, is the same machine with the same state.

mod again;
mod count;
mod failure;
mod flow;
mod scope;
mod state;
mod waits;

pub use crate::steps::{MAX_SIGNAL, Surroundings};
pub use again::NoStart;
pub use count::MOST_STEPS;
pub use failure::{error, fault, text_of};
pub use scope::ThreadScope;
pub use state::{Failing, Frame, JobItem, Kept, LaneFailure, State, Thread, Wait, WaitFor};
pub use waits::{Cause, Woke};
pub(crate) use waits::{waited, with};

use crate::condition::Condition;
use crate::expr::{Budget, Scope};
use crate::ids::RunId;
use crate::program::{Op, Program, Step, StopStatus};
use crate::steps;
use crate::template::Template;
use crate::value::Value;
use std::cell::OnceCell;

/// Most instructions of one walk.
const LONGEST_WALK: usize = 1000;
/// Most rounds of any loop.
pub const MAX_ROUNDS: u32 = 10_000;

/// The next thing that the caller of the machine has to do.
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
    /// The status that the run ends with.
    pub status: StopStatus,
    /// Why the run ended, if not because all steps were done.
    pub reason: Option<String>,
    /// The step that failed.
    pub step: Option<String>,
    /// The error.
    pub error: Option<Value>,
}

/// A step's entry in the history of the run.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number of the step.
    pub step: usize,
    /// `completed`, `failed` or `skipped`.
    pub status: &'static str,
    /// Which try this was.
    pub attempt: u32,
    /// When the step began, if not just now.
    pub since: Option<i64>,
    /// The result of the step.
    pub result: Option<Value>,
    /// The error of the step, if it failed.
    pub error: Option<Value>,
}

/// A run under way: its program and its state.
pub struct Machine<'p> {
    program: &'p Program,
    /// The state of the run.
    pub state: State,
    /// Seed of the random choices of the run.
    seed: u64,
    /// The key that a signal must have, unless the step gives another.
    key: Option<String>,
    steps: OnceCell<Value>,
    records: Vec<Record>,
    abandoned: Vec<i64>,
    warnings: Vec<(usize, String)>,
    /// The thread whose step was named last and whose outcome was not reported yet.
    named: Option<u32>,
    /// A step has given a result since waits were last looked at.
    news: bool,
    end: Option<End>,
}

impl<'p> Machine<'p> {
    /// Takes up a run in a state.
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
            named: None,
            news: false,
            end: None,
        }
    }

    /// The program of the run.
    pub fn program(&self) -> &'p Program {
        self.program
    }

    /// Which try of its step a thread is at, from 1.
    pub fn attempt(&self, thread: u32) -> u32 {
        self.state.threads[self.place_of(thread)].failed + 1
    }

    /// Removes and returns the records of steps made since the last call.
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

    /// The scope of a thread's expressions.
    pub fn scope<'a>(&'a self, thread: u32, world: &'a dyn Scope) -> ThreadScope<'a> {
        ThreadScope::new(world, &self.state, &self.state.threads[self.place_of(thread)], &self.steps)
    }

    /// As [`Machine::scope`], by the place of the thread in the state.
    pub(crate) fn scope_at<'a>(&'a self, place: usize, world: &'a dyn Scope) -> ThreadScope<'a> {
        ThreadScope::new(world, &self.state, &self.state.threads[place], &self.steps)
    }

    /// The text that a template has now.
    pub(crate) fn render(&self, place: usize, template: &Template, world: &dyn Scope) -> Result<String, Value> {
        let text = template.render(&self.scope_at(place, world), &mut Budget::default());
        text.map_err(|problem| fault(&problem, template.text()))
    }

    /// Notes that the condition of a wait could not be evaluated.
    pub(crate) fn warn(&mut self, step: usize, message: String) {
        self.warnings.push((step, message));
    }

    /// The key that a signal must have, unless the step gives another.
    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    pub(crate) fn place_of(&self, thread: u32) -> usize {
        self.state.threads.iter().position(|other| other.id == thread).unwrap_or_default()
    }

    /// The variables of the run, which are its result.
    pub fn output(&self) -> Value {
        self.state.threads.first().map_or(Value::Null, |thread| {
            // variables of a loop are local to it: take those around the outermost frame
            thread.frames.first().map_or_else(|| thread.vars.0.clone(), |frame| frame.vars.0.clone())
        })
    }

    /// Walks on until a step is to be performed, every thread waits, or the run has ended.
    ///
    /// A walk that goes on for long without any step to perform, such as a loop whose steps are all left out, lets
    /// other runs have their turn: it could not be interrupted.
    pub fn advance(&mut self, world: &dyn Scope) -> Next {
        for _ in 0..LONGEST_WALK {
            if let Some(end) = &self.end {
                return Next::End(end.clone());
            }
            let Some(place) = self.state.threads.iter().position(|thread| thread.wait.is_none()) else {
                let news = std::mem::take(&mut self.news) && self.state.threads.len() > 1;
                if news && steps::look_at_news(self, world) {
                    continue;
                }
                return Next::Suspend;
            };
            let pc = self.state.threads[place].pc;
            let program = self.program;
            let Some(op) = program.code.get(pc) else {
                self.finish_thread(place);
                continue;
            };
            match op {
                Op::Act(step) => match self.admits(place, *step, world) {
                    Some(true) if program.steps[*step].action.take(self, place, *step, world) => {}
                    Some(true) => {
                        let thread = self.state.threads[place].id;
                        self.named = Some(thread);
                        return Next::Act { thread, step: *step };
                    }
                    Some(false) => self.step_on(place),
                    None => {}
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
                    let condition = program.steps[*step].action.way(*way);
                    match condition.map_or(Ok(false), |condition| self.holds(place, condition, world)) {
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
        self.pause_here(world.now().0);
        Next::Suspend
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

    /// As [`Machine::succeed`], for a caller that keeps the record itself. None if no expression that follows could
    /// read the result.
    pub fn done(&mut self, thread: u32, result: Option<Value>) {
        let place = self.place_of(thread);
        if let Some(result) = result {
            let (step, _) = self.current(place);
            self.keep_result(step, result);
        }
        self.step_on(place);
    }

    pub fn wait_for_run(&mut self, thread: u32, run: RunId, now: i64) {
        let place = self.place_of(thread);
        let (step, _) = self.current(place);
        let due = self.timeout_of(step, now);
        self.suspend(place, step, WaitFor::Run { run }, now, due);
    }

    /// The step that was named last has begun a bulk job and is over when the job is.
    pub fn wait_for_bulk(&mut self, thread: u32, job: i64, now: i64) {
        let place = self.place_of(thread);
        let (step, _) = self.current(place);
        let due = self.timeout_of(step, now);
        self.suspend(place, step, WaitFor::Bulk { job }, now, due);
    }

    /// Lets other runs have their turn: every thread that could go on waits for a timer that is due at once. A step
    /// that was named will be named again.
    pub fn pause_here(&mut self, now: i64) {
        for place in 0..self.state.threads.len() {
            if self.state.threads[place].wait.is_none() {
                let named = self.named.take_if(|thread| *thread == self.state.threads[place].id);
                if named.is_some() && self.state.threads[place].failed == 0 {
                    self.uncount(place);
                }
                let (step, _) = self.current(place);
                self.suspend(place, step, WaitFor::Turn, now, Some(now));
            }
        }
    }

    fn current(&self, place: usize) -> (usize, u32) {
        let thread = &self.state.threads[place];
        (self.program.step_at(thread.pc), thread.failed + 1)
    }

    pub(crate) fn timeout_of(&self, step: usize, now: i64) -> Option<i64> {
        self.program.steps[step].timeout_ms.map(|ms| now.saturating_add(ms.saturating_mul(1000)))
    }

    /// Goes on behind the step at which a thread stands.
    pub(crate) fn step_on(&mut self, place: usize) {
        let thread = &mut self.state.threads[place];
        thread.pc += 1;
        thread.failed = 0;
        thread.wait = None;
        self.named = None;
    }

    /// Goes on behind a step that the thread is at or inside of.
    fn step_past(&mut self, place: usize, step: usize) {
        self.state.threads[place].pc = self.program.past(step);
        self.state.threads[place].failed = 0;
        self.state.threads[place].wait = None;
    }

    pub(crate) fn suspend(&mut self, place: usize, step: usize, what: WaitFor, now: i64, due: Option<i64>) {
        let no = self.state.next_wait;
        self.state.next_wait.0 += 1;
        self.state.threads[place].wait = Some(Wait { no, step, what, since: now, due });
        self.named = None;
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    pub(crate) fn record(&mut self, step: usize, status: &'static str, result: Option<Value>, error: Option<Value>) {
        self.push(Record { step, status, attempt: 1, since: None, result, error });
    }

    fn keep_result(&mut self, step: usize, result: Value) {
        let id = &self.program.steps[step].id;
        match self.state.results.iter_mut().find(|(known, _)| known == id) {
            Some((_, kept)) => kept.0 = result,
            None => self.state.results.push((id.clone(), Kept(result))),
        }
        self.steps = OnceCell::new();
        self.news = true;
    }

    pub(crate) fn holds(&self, place: usize, condition: &Condition, world: &dyn Scope) -> Result<bool, Value> {
        condition
            .holds(&self.scope_at(place, world), &mut Budget::default())
            .map_err(|error| fault(&error, &text_of(condition)))
    }

    /// Is a step to be done? None if deciding that has failed the step or ended the run.
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
                let Err(error) = self.count(place) else { return Some(true) };
                self.record(number, "failed", None, Some(error.clone()));
                let (step, reason) = (Some(step.id.clone()), "loop_cap".to_owned());
                match self.state.failing {
                    Some(_) => self.run_failed(&reason, step, error),
                    None => {
                        let (status, reason, error) = (StopStatus::Cancelled, Some(reason), Some(error));
                        self.finish(End { status, reason, step, error });
                    }
                }
                None
            }
        }
    }
}

impl Step {
    /// The name of the step's kind.
    pub fn kind(&self) -> &'static str {
        self.action.kind().name()
    }
}
