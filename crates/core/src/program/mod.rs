//! A definition made ready to run: every text parsed, every option resolved, its steps laid out as a flat list of
//! instructions with jumps. Where a run stands is then a number, also inside a loop inside a branch.

mod compile;
mod parts;
mod retry;
mod trigger;

pub use crate::steps::Action;
pub use crate::triggers::{Change, Matcher, Measure, Range, Transition};
pub(crate) use compile::{Block, Compiler};
pub use compile::{compile, compile_parts};
pub(crate) use parts::{Parts, duration_text, shown};
pub use retry::{Backoff, Retry, is_retryable};
pub(crate) use retry::{length, unit};
pub use trigger::{Dedup, Hold, Limits, Trigger};

use crate::condition::Condition;
use crate::definition::{OnPause, Ordering};
use crate::expr::Expr;

/// An automation compiled for execution.
#[derive(Clone, Debug)]
pub struct Program {
    /// The triggers that start it.
    pub triggers: Vec<Trigger>,
    /// Checked before each run.
    pub condition: Option<Condition>,
    /// The expression for the key of a run.
    pub key: Option<Expr>,
    /// Every step, also those inside others, in the order of the document; those of `on_failure` come last.
    pub steps: Vec<Step>,
    /// The instructions.
    pub code: Vec<Op>,
    /// Where the steps begin that are taken when a run has failed.
    pub on_failure: Option<usize>,
    /// The runs among which each starts in the order of its event.
    pub ordering: Ordering,
    /// How runs under way are treated when the automation is paused.
    pub on_pause: OnPause,
    /// Most steps a run may execute.
    pub max_steps: u32,
    /// How long a run may take, in microseconds.
    pub timeout: Option<i64>,
    /// Only events of this tenant start runs.
    pub tenant: Option<String>,
    /// The limits on its runs: mode, rates, locks.
    pub limits: Limits,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name.
    pub id: String,
    /// Where it stands in the document, e.g. `steps[0].lanes[1]`.
    pub path: String,
    /// The action of the step, with its texts parsed.
    pub action: Action,
    /// The step is skipped unless this holds.
    pub condition: Option<Condition>,
    /// The run goes on though the step failed.
    pub continue_on_error: bool,
    /// How long the step may take, in milliseconds.
    pub timeout_ms: Option<i64>,
    /// How often, and when, the step is tried again.
    pub retry: Option<Retry>,
    /// A wait that was not fulfilled in time is no failure.
    pub continue_on_timeout: bool,
    /// False leaves the step out.
    pub enabled: bool,
    /// The step that this step is inside of, if no lane begins in between.
    pub within: Option<usize>,
    /// How many frames are open where the step stands.
    pub frames: usize,
}

/// How a `stop` ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopStatus {
    /// The run has completed.
    Completed,
    /// The run has failed.
    Failed,
    /// The run is cancelled.
    Cancelled,
}

/// The place at which a branch goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Number of the step.
    pub step: usize,
    /// Number of the instruction.
    pub pc: usize,
    /// How many frames are open there.
    pub frames: usize,
    /// The steps that are passed over on the way.
    pub skipped: Vec<usize>,
}

/// One instruction. Numbers are those of steps and of instructions.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Does a step that has no steps inside.
    Act(usize),
    /// Begins a step with steps inside; goes on at `past` if it is not to be done.
    Begin {
        /// The step.
        step: usize,
        /// The instruction after the step.
        past: usize,
    },
    /// Ends that step.
    End(usize),
    /// Goes on at another instruction.
    Jump(usize),
    /// Goes on at `otherwise` unless the condition of this way holds.
    Way {
        /// A `choose`.
        step: usize,
        /// Which of its ways.
        way: usize,
        /// The instruction for the next way.
        otherwise: usize,
    },
    /// Begins a loop, or goes on at `done` if there is nothing to do.
    Loop {
        /// The step.
        step: usize,
        /// The instruction after the loop.
        done: usize,
    },
    /// Begins the next round at `body`, or ends the loop.
    Next {
        /// The step.
        step: usize,
        /// The first instruction of a round.
        body: usize,
    },
    /// From here on, variables are local.
    Open,
    /// Variables have again the values from before `Open`.
    Close,
    /// Begins a thread at each of these and waits for all of them.
    Fork {
        /// The step.
        step: usize,
        /// Where the lanes begin.
        lanes: Vec<usize>,
        /// Where to go on when they have ended.
        join: usize,
    },
    /// Ends the thread.
    Stop,
}

impl Op {
    /// The step that the instruction is about.
    pub(crate) fn step(&self) -> Option<usize> {
        match self {
            Op::Act(step)
            | Op::Begin { step, .. }
            | Op::End(step)
            | Op::Way { step, .. }
            | Op::Loop { step, .. }
            | Op::Next { step, .. }
            | Op::Fork { step, .. } => Some(*step),
            Op::Jump(_) | Op::Open | Op::Close | Op::Stop => None,
        }
    }
}

impl Program {
    /// The first instruction of a step.
    pub(crate) fn begin(&self, step: usize) -> usize {
        let first = self.code.iter().position(|op| op.step() == Some(step));
        first.unwrap_or(self.code.len())
    }

    /// The instruction behind a step and all steps inside of it.
    pub(crate) fn past(&self, step: usize) -> usize {
        let behind = self.code.iter().enumerate().find_map(|(pc, op)| match op {
            Op::Act(found) if *found == step => Some(pc + 1),
            Op::Begin { step: found, past } if *found == step => Some(*past),
            _ => None,
        });
        behind.unwrap_or(self.code.len())
    }
}

impl Program {
    /// Every condition in the program: its own, those of triggers and those of steps.
    pub fn conditions(&self) -> Vec<&Condition> {
        let filters = self.triggers.iter().filter_map(|trigger| trigger.filter.as_ref());
        let steps = self.steps.iter().flat_map(|step| step.condition.iter().chain(step.action.conditions()));
        filters.chain(&self.condition).chain(steps).collect()
    }
}

impl Program {
    /// Does the program name a kind: is it started by changes of its entities, does it wait for them, does a condition
    /// read them?
    pub fn names_kind(&self, kind: &str) -> bool {
        let is_of = |topic: &str| crate::topic::canonical(topic.trim()).split('.').next() == Some(kind);
        let starts = |trigger: &Trigger| {
            trigger.kind.as_deref() == Some(kind) || trigger.patterns.iter().any(|pattern| is_of(pattern))
        };
        let waits = |step: &Step| step.action.awaited_event().is_some_and(|event| is_of(event.topic.text()));
        let reads = |condition: &Condition| condition.references().entities.iter().any(|entity| entity.kind == kind);
        self.triggers.iter().any(starts) || self.steps.iter().any(waits) || self.conditions().into_iter().any(reads)
    }
}
