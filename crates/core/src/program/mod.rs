//! A definition made ready to run: every text parsed, every option resolved, its steps laid out as a flat list of
//! instructions with jumps. Where a run stands is then a number, also inside a loop inside a branch.

mod compile;
mod parts;
mod retry;
mod trigger;
mod variables;
mod webhook;

pub use compile::{compile, compile_parts};
pub use retry::{Backoff, Retry, is_retryable};
pub(crate) use retry::{length, unit};
pub use trigger::{Change, Dedup, Hold, Limits, Matcher, Measure, Range, Transition, Trigger};

use crate::condition::Condition;
use crate::definition::{OnPause, Ordering, StepKind};
use crate::expr::Expr;
use crate::template::{JsonTemplate, SqlTemplate, Template};
use crate::value::Duration;
use crate::webhook::Webhook;

/// What an automation does.
#[derive(Clone, Debug)]
pub struct Program {
    /// What starts it.
    pub triggers: Vec<Trigger>,
    /// Checked before each run.
    pub condition: Option<Condition>,
    /// Names what a run is about.
    pub key: Option<Expr>,
    /// Every step, also those inside others, in the order of the document; those of `on_failure` come last.
    pub steps: Vec<Step>,
    /// The instructions.
    pub code: Vec<Op>,
    /// Where the steps begin that are taken when a run has failed.
    pub on_failure: Option<usize>,
    /// Whose runs start in order.
    pub ordering: Ordering,
    /// What becomes of runs under way when it is paused.
    pub on_pause: OnPause,
    /// Most steps a run may execute.
    pub max_steps: u32,
    /// How long a run may take, in microseconds.
    pub timeout: Option<i64>,
    /// Only events of this tenant.
    pub tenant: Option<String>,
    /// What holds runs back.
    pub limits: Limits,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name.
    pub id: String,
    /// Where it stands in the document, e.g. `steps[0].lanes[1]`.
    pub path: String,
    /// What it does.
    pub action: Action,
    /// It is skipped unless this holds.
    pub condition: Option<Condition>,
    /// The run goes on though it failed.
    pub continue_on_error: bool,
    /// How long it may take, in milliseconds.
    pub timeout_ms: Option<i64>,
    /// How often, and when, it is tried again.
    pub retry: Option<Retry>,
    /// A wait that was not fulfilled in time is no failure.
    pub continue_on_timeout: bool,
    /// False leaves it out.
    pub enabled: bool,
    /// The step that it is inside of, if no lane begins in between.
    pub within: Option<usize>,
    /// How many frames are open where it stands.
    pub frames: usize,
}

/// What a step does, with its texts parsed.
#[derive(Clone, Debug)]
pub enum Action {
    /// Runs SQL.
    Sql(SqlTemplate),
    /// Calls a function (jsonb) -> jsonb.
    Call {
        /// As the author named it.
        function: String,
        /// Its argument.
        args: JsonTemplate,
    },
    /// Publishes an event.
    Publish {
        /// On this topic.
        topic: Template,
        /// With this payload.
        payload: JsonTemplate,
    },
    /// Sends a NOTIFY.
    Notify {
        /// On this channel.
        channel: Template,
        /// With this payload.
        payload: JsonTemplate,
    },
    /// Gives variables their values.
    Set(Vec<(String, JsonTemplate)>),
    /// Gives an entity without a table its state.
    StoreState {
        /// Its kind.
        kind: Template,
        /// Its id.
        entity: Template,
        /// Its state; null removes it.
        state: JsonTemplate,
    },
    /// Puts a message into the outbox.
    Webhook(Box<Webhook>),
    /// Starts another automation and waits for its end.
    Run {
        /// Which one.
        automation: String,
        /// The payload it is started with.
        args: JsonTemplate,
    },
    /// Waits for a time.
    Delay(Delay),
    /// Waits until a condition holds.
    WaitUntil(Condition),
    /// Waits for an event.
    WaitForEvent {
        /// On a topic that matches this.
        topic: Template,
        /// For which this holds.
        filter: Option<Condition>,
        /// Events up to this many microseconds before the wait count as well.
        lookback: Option<i64>,
    },
    /// Waits for a signal.
    WaitSignal {
        /// Of this name.
        signal: Template,
        /// With this key; the run's own if it is not given.
        key: Option<Template>,
    },
    /// Goes on at one of two steps.
    Branch {
        /// Decides.
        condition: Condition,
        /// Where to go if it holds; the next step if it is not given.
        yes: Option<Target>,
        /// Where to go if it does not.
        no: Option<Target>,
    },
    /// Takes the first way whose condition holds.
    Choose(Vec<Condition>),
    /// Does its steps again and again.
    Repeat(Repeat),
    /// Does its steps for each row of a query, each row in a run of its own.
    Bulk {
        /// Which rows.
        query: SqlTemplate,
        /// Most rows in a second.
        rate: Option<f64>,
        /// Where the run of a row begins.
        body: usize,
    },
    /// Does its steps side by side.
    Parallel,
    /// Does its steps one after the other.
    Sequence,
    /// Ends the sequence it stands in unless a condition holds.
    Require {
        /// Decides.
        condition: Condition,
        /// The end of the sequence.
        end: usize,
    },
    /// Ends the run.
    Stop {
        /// How.
        status: StopStatus,
        /// Why.
        message: Option<Template>,
    },
}

/// For how long to wait.
#[derive(Clone, Debug)]
pub enum Delay {
    /// This long.
    For(Duration),
    /// As long as this says.
    Computed(Template),
    /// Until the instant that this says.
    Until(Template),
}

/// How often the steps of a loop are done.
#[derive(Clone, Debug)]
pub enum Repeat {
    /// So many times.
    Count(Expr),
    /// While this holds.
    While(Condition),
    /// Until this holds, at least once.
    Until(Condition),
    /// Once for each item.
    Each(Expr),
}

/// How a `stop` ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopStatus {
    /// All is well.
    Completed,
    /// The run has failed.
    Failed,
    /// It is not to go on.
    Cancelled,
}

/// Where a branch goes.
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
        /// What comes after it.
        past: usize,
    },
    /// Ends it.
    End(usize),
    /// Goes on elsewhere.
    Jump(usize),
    /// Goes on at `otherwise` unless the condition of this way holds.
    Way {
        /// A `choose`.
        step: usize,
        /// Which of its ways.
        way: usize,
        /// What comes next.
        otherwise: usize,
    },
    /// Begins a loop, or goes on at `done` if there is nothing to do.
    Loop {
        /// The step.
        step: usize,
        /// What comes after the loop.
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
    /// Variables are again what they were.
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
    /// The step it is about.
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

    /// The instruction behind a step, whatever is inside of it.
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
    /// Every condition in it, wherever it stands.
    pub fn conditions(&self) -> Vec<&Condition> {
        let filters = self.triggers.iter().filter_map(|trigger| trigger.filter.as_ref());
        let steps = self.steps.iter().flat_map(|step| step.condition.iter().chain(step.action.conditions()));
        filters.chain(&self.condition).chain(steps).collect()
    }
}

impl Program {
    /// Does it name a kind: is it started by changes of its entities, does it wait for them, does a condition read them?
    pub fn names_kind(&self, kind: &str) -> bool {
        let is_of = |topic: &str| crate::topic::canonical(topic.trim()).split('.').next() == Some(kind);
        let starts = |trigger: &Trigger| {
            trigger.kind.as_deref() == Some(kind) || trigger.patterns.iter().any(|pattern| is_of(pattern))
        };
        let waits = |step: &Step| matches!(&step.action, Action::WaitForEvent { topic, .. } if is_of(topic.text()));
        let reads = |condition: &Condition| condition.references().entities.iter().any(|entity| entity.kind == kind);
        self.triggers.iter().any(starts) || self.steps.iter().any(waits) || self.conditions().into_iter().any(reads)
    }
}

impl Action {
    /// The conditions that it is about.
    pub fn conditions(&self) -> &[Condition] {
        match self {
            Action::WaitUntil(condition)
            | Action::WaitForEvent { filter: Some(condition), .. }
            | Action::Branch { condition, .. }
            | Action::Require { condition, .. }
            | Action::Repeat(Repeat::While(condition) | Repeat::Until(condition)) => std::slice::from_ref(condition),
            Action::Choose(ways) => ways,
            _ => &[],
        }
    }

    /// The kind of step it came from.
    pub fn kind(&self) -> StepKind {
        match self {
            Action::Sql(_) => StepKind::Sql,
            Action::Call { .. } => StepKind::Call,
            Action::Publish { .. } => StepKind::Publish,
            Action::Notify { .. } => StepKind::Notify,
            Action::Set(_) => StepKind::Set,
            Action::StoreState { .. } => StepKind::StoreState,
            Action::Webhook(_) => StepKind::Webhook,
            Action::Run { .. } => StepKind::Run,
            Action::Delay(_) => StepKind::Delay,
            Action::WaitUntil(_) => StepKind::WaitUntil,
            Action::WaitForEvent { .. } => StepKind::WaitForEvent,
            Action::WaitSignal { .. } => StepKind::WaitSignal,
            Action::Branch { .. } => StepKind::Branch,
            Action::Choose(_) => StepKind::Choose,
            Action::Repeat(Repeat::Count(_)) => StepKind::RepeatCount,
            Action::Repeat(Repeat::While(_)) => StepKind::RepeatWhile,
            Action::Repeat(Repeat::Until(_)) => StepKind::RepeatUntil,
            Action::Repeat(Repeat::Each(_)) => StepKind::ForEach,
            Action::Bulk { .. } => StepKind::Bulk,
            Action::Parallel => StepKind::Parallel,
            Action::Sequence => StepKind::Sequence,
            Action::Require { .. } => StepKind::Require,
            Action::Stop { .. } => StepKind::Stop,
        }
    }
}
