//! The gate `mode`: starts, queues, skips or restarts while runs of the same automation with the same key are under
//! way.
use automation_core::definition::Mode;
use automation_core::gate::Code;
use automation_core::gate::mode::{self, ActiveRun, Entry};
use automation_core::ids::RunId;
use automation_core::program::Program;

use super::{Refusal, lock_of};
use crate::executor::claimer::Claimer;
use crate::pg::key_lock::{Sort, try_take};
use crate::runs::cancel::{RESTARTED, end_restarted, end_waiting};
use crate::runs::run::Run;
use crate::signal::running;
use crate::store::live::{self, LiveRun};

/// A run's place among the runs with the same key, which is locked.
pub struct Place {
    active: Vec<ActiveRun>,
    /// The runs that a restart cancels, locked.
    locked: Vec<LiveRun>,
    keyed: bool,
    /// One of the runs that come first waits for this run to end: a queue would never move.
    waits_for_us: bool,
}

/// Can there be runs that prevent this one from starting?
pub fn applies(run: &Run, program: &Program) -> bool {
    if program.limits.mode != Mode::Parallel || program.limits.max_runs.is_some() {
        return true;
    }
    let keyed = program.key.is_some() || run.entity_id.is_some();
    // A run that never suspends is never under way while another run starts.
    keyed && program.steps.iter().any(|step| step.retry.is_some() || step.action.kind().form().may_wait)
}

/// Locks the run's key and finds the runs with the same key. None if another transaction holds the key or one of those
/// runs. In mode `restart` an earlier run that another executor executes is then ended, if `may_start` says that this
/// run would start: it starts in the next turn, when that end is committed, so that no third run can undo it.
pub fn lock(claimer: &mut Claimer, run: &mut Run, program: &Program, may_start: impl Fn() -> bool) -> Option<Place> {
    let keyed = run.mode_key.is_some();
    if !applies(run, program) {
        return Some(Place { active: Vec::new(), locked: Vec::new(), keyed, waits_for_us: false });
    }
    // Runs without a key or an entity share one key per automation and tenant.
    let header = &mut run.header;
    let all = || header.tenant.as_ref().map_or("all".into(), |tenant| format!("{tenant}/all"));
    let key = header.mode_key.get_or_insert_with(all);
    let mark = (header.automation_id, key.clone());
    // The effect of an earlier run of this batch on the key is not in the tables yet.
    if claimer.touched.contains(&mark) {
        return None;
    }
    let (lock, behind) = (lock_of(run.automation_id, &mark.1), claimer.behind.take());
    let restarts = program.limits.mode == Mode::Restart && claimer.is_worker;
    let restart = |claimer: &mut Claimer, earlier: &[RunId]| {
        if restarts && earlier.iter().all(|id| *id < run.id) && may_start() {
            claimer.restarted |= earlier.iter().filter(|id| end_restarted(**id)).count() > 0;
        }
        None
    };
    if !try_take(Sort::Key, lock) {
        let earlier = running::with_key(run.automation_id, lock).filter(|id| behind.is_none_or(|behind| behind == *id));
        return restart(claimer, earlier.as_slice());
    }
    if behind.is_some() {
        // The run that this one is ordered behind has another key, or has just ended.
        return None;
    }
    let most = match program.limits.mode {
        Mode::Restart => i64::MAX,
        _ => i64::from(program.limits.max_runs.unwrap_or(mode::DEFAULT_MAX_RUNS)) + 1,
    };
    let mut active = live::with_key(run.automation_id, &mark.1, most);
    let waits_for_us = program.limits.mode == Mode::Queued
        && !active.is_empty()
        && run.parent.is_some_and(|parent| live::has_ancestor_with_key(parent, run.automation_id, &mark.1));
    let mut locked = Vec::new();
    if program.limits.mode == Mode::Restart && !active.is_empty() {
        let ids: Vec<RunId> = active.iter().map(|run| run.id).collect();
        locked = live::lock(&ids);
        let missing: Vec<RunId> = ids.into_iter().filter(|id| !locked.iter().any(|run| run.id == *id)).collect();
        let held = live::existing(&missing);
        if !held.is_empty() {
            let executed: Vec<RunId> = held.into_iter().filter(|id| running::executes_elsewhere(*id)).collect();
            return restart(claimer, &executed);
        }
        active.retain(|run| !missing.contains(&run.id));
    }
    if restarts {
        running::show_key(lock);
    }
    if program.limits.mode != Mode::Parallel {
        claimer.touched.insert(mark);
    } else if let Some(more) = claimer.entered.get(&mark) {
        active.extend(std::iter::repeat_n(ActiveRun { id: run.id, queued: false }, *more));
    }
    Some(Place { active, locked, keyed, waits_for_us })
}

impl Place {
    /// Takes the place. True if the run has to wait for its turn.
    pub fn enter(self, claimer: &mut Claimer, run: &Run, program: &Program) -> Result<bool, Refusal> {
        if self.waits_for_us {
            return Err(Refusal::Skipped(Code::AlreadyRunning.word()));
        }
        match mode::enter(program.limits.mode, program.limits.max_runs, self.keyed, &self.active) {
            Entry::Start => {
                if let (Mode::Parallel, Some(key)) = (program.limits.mode, &run.mode_key) {
                    *claimer.entered.entry((run.automation_id, key.clone())).or_default() += 1;
                }
                Ok(false)
            }
            Entry::Queue { .. } => Ok(true),
            Entry::Restart { .. } => {
                for earlier in &self.locked {
                    end_waiting(earlier, RESTARTED);
                }
                Ok(false)
            }
            Entry::Skip(reason) => Err(Refusal::Skipped(reason.code.word())),
        }
    }
}

/// May a live run go on, or has another run of the batch used its key already?
pub fn may_move(claimer: &mut Claimer, live: &LiveRun, program: &Program) -> bool {
    let Some(key) = live.mode_key.as_ref().filter(|_| program.limits.mode != Mode::Parallel) else { return true };
    claimer.touched.insert((live.automation_id, key.clone()))
}

/// Has the turn of a queued run come?
pub fn is_its_turn(live: &LiveRun) -> bool {
    let Some(key) = &live.mode_key else { return true };
    // Only the first run of the queue and a run that has begun matter.
    mode::next_in_queue(&live::with_key(live.automation_id, key, i64::MAX)) == Some(live.id)
}
