//! State of a suspended run: everything that it remembers, and nothing else.

use crate::ids::{RunId, WaitNo};
use crate::value::{Timestamp, Value, tagged};
use serde::{Deserialize, Serialize};

/// A run between two moves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The threads of the run; the first is the run itself, the others are lanes.
    pub threads: Vec<Thread>,
    /// Number of the next thread.
    pub next_thread: u32,
    /// Number of the next wait.
    pub next_wait: WaitNo,
    /// Steps taken so far, as `max_steps` counts them.
    pub executed: u32,
    /// Steps taken so far, the rounds of all loops included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken: u32,
    /// The results of the steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<(String, Kept)>,
    /// The error that failed the run, while its `on_failure` steps are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
    /// The row that the run of a `bulk` step is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Kept>,
    /// The bulk job that the run is one item of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobItem>,
}

/// One item of a bulk job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobItem {
    /// The job.
    pub job: i64,
    /// Which of its rows, from 1.
    pub no: i64,
}

/// Why a run is failing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failing {
    /// Its `ended_reason`.
    pub reason: String,
    /// The step that failed.
    pub step: Option<String>,
    /// The error.
    pub error: Kept,
    /// The threads when the run failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<Thread>,
}

/// A value that is stored with its type.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kept(#[serde(with = "tagged")] pub Value);

/// One thread of a run: the run itself, or a lane.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// The thread that waits for this lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// The next instruction.
    pub pc: usize,
    /// The loops and blocks with local variables that the thread is inside of, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// Its variables.
    #[serde(default, skip_serializing_if = "is_null")]
    pub vars: Kept,
    /// How the last wait ended.
    #[serde(default, skip_serializing_if = "is_null")]
    pub wait_result: Kept,
    /// How often the step at `pc` has been tried and failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// Its wait; None if it can go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
}

fn is_null(kept: &Kept) -> bool {
    kept.0.is_null()
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A loop, or a block with variables of its own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Frame {
    /// The variables around the block.
    pub vars: Kept,
    /// Which round of a loop this is, from 1; 0 if the frame is no loop.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    /// How many rounds there will be, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// How many steps of this round have been counted, if the number of rounds is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub counted: u32,
    /// The items of a `for_each`, as they were when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Kept>,
}

/// The wait of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Its number within the run. A wake-up names this number; if the run has no such wait any more, the wake-up is
    /// late.
    pub no: WaitNo,
    /// The step.
    pub step: usize,
    /// The kind of thing that ends the wait.
    #[serde(rename = "for")]
    pub what: WaitFor,
    /// Since when, in microseconds since 1970.
    pub since: i64,
    /// When the wait is over in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
}

/// The kinds of things that can end a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// Time.
    Delay,
    /// Time, after which the step is tried again.
    Retry,
    /// Nothing: the run let other runs have their turn.
    Turn,
    /// A condition.
    Until,
    /// An event on a topic that matches.
    Event {
        /// The pattern.
        topic: String,
    },
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// Its key, if the run has one.
        key: Option<String>,
    },
    /// The end of another run.
    Run {
        /// Its number.
        run: RunId,
    },
    /// The end of a bulk job.
    Bulk {
        /// Its number.
        job: i64,
    },
    /// The lanes of a `parallel`.
    Lanes {
        /// How many are still under way.
        left: u32,
        /// The failure of lanes, if some have failed.
        failed: Option<Box<LaneFailure>>,
    },
}

/// The failure of lanes: its error, and their states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneFailure {
    /// The first error.
    pub error: Kept,
    /// Where each of these lanes stands, should it be tried again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<Thread>,
}

impl PartialEq for LaneFailure {
    fn eq(&self, other: &LaneFailure) -> bool {
        self.error.0 == other.error.0
    }
}

impl State {
    /// A run that has not begun.
    pub fn new() -> State {
        State { threads: vec![Thread::default()], next_thread: 1, next_wait: WaitNo(1), ..State::default() }
    }

    /// The waits of the run for things outside of it.
    pub fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.threads.iter().filter_map(|thread| thread.wait.as_ref()).filter(|wait| wait.is_outside())
    }

    /// The wait with this number.
    pub fn wait(&self, no: WaitNo) -> Option<&Wait> {
        self.waits().find(|wait| wait.no == no)
    }

    /// The numbers of the runs and bulk jobs this one waits for.
    pub fn children(&self) -> impl Iterator<Item = i64> + '_ {
        self.waits().filter_map(|wait| match wait.what {
            WaitFor::Run { run } => Some(run.0),
            WaitFor::Bulk { job } => Some(job),
            _ => None,
        })
    }
}

impl Wait {
    /// Does something outside the run end the wait?
    pub fn is_outside(&self) -> bool {
        !matches!(self.what, WaitFor::Lanes { .. })
    }

    /// When the wait is over in any case.
    pub fn due(&self) -> Option<Timestamp> {
        self.due.map(Timestamp)
    }
}
