//! The mode gate: decides on a firing while runs of the same automation with the same key are under way.
//!
//! The caller holds a lock on automation and key from reading the runs to writing the results of the decision. A run is
//! under way while it is pending, running or waiting.

use super::{Code, Reason};
use crate::definition::Mode;
use crate::ids::RunId;

/// How many runs with the same key there may be if the author does not say.
pub const DEFAULT_MAX_RUNS: u32 = 10;

/// A run that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveRun {
    /// Its id.
    pub id: RunId,
    /// The run has not begun: it waits for its turn.
    pub queued: bool,
}

/// The decision on a firing.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Start.
    Start,
    /// Wait behind so many other runs.
    Queue {
        /// Runs that come first, including the one under way.
        behind: usize,
    },
    /// Cancel these runs in the same transaction, then start.
    Restart {
        /// All runs that are under way, queued ones too.
        cancel: Vec<RunId>,
    },
    /// Do not start.
    Skip(Reason),
}

/// Decides on a firing. `active` are the runs under way with the same key, oldest first. Without a key (`keyed` is
/// false) they are all runs of the automation and tenant.
pub fn enter(mode: Mode, max_runs: Option<u32>, keyed: bool, active: &[ActiveRun]) -> Entry {
    let most = match (max_runs, mode, keyed) {
        (Some(most), ..) => most,
        // Runs that have nothing in common do not stand in each other's way unless the author says so.
        (None, Mode::Parallel, false) => u32::MAX,
        (None, ..) => DEFAULT_MAX_RUNS,
    };
    let full = active.len() >= most as usize;
    match mode {
        Mode::Single => match active.first() {
            Some(run) => Entry::Skip(Reason::new(
                Code::AlreadyRunning,
                "no run with the same key is under way",
                format!("run {} is", run.id),
            )),
            None => Entry::Start,
        },
        Mode::Restart if active.is_empty() => Entry::Start,
        Mode::Restart => Entry::Restart { cancel: active.iter().map(|run| run.id).collect() },
        Mode::Parallel | Mode::Queued if full => Entry::Skip(Reason::new(
            Code::MaxRuns,
            format!("fewer than {most} runs with the same key are under way"),
            format!("{} are", active.len()),
        )),
        Mode::Queued if !active.is_empty() => Entry::Queue { behind: active.len() },
        Mode::Parallel | Mode::Queued => Entry::Start,
    }
}

/// The run whose turn it is when a run of mode `queued` has ended: the oldest that waits, if none has begun. `active`
/// is oldest first and does not hold the run that ended.
pub fn next_in_queue(active: &[ActiveRun]) -> Option<RunId> {
    match active.iter().any(|run| !run.queued) {
        true => None,
        false => active.first().map(|run| run.id),
    }
}
