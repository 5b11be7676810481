//! Cancels runs in any state: queued, executing, waiting, or held.
use automation_core::ids::{AutomationId, RunId};
use pgrx::pg_sys;

use super::bulk;
use super::end::{cancelled, end};
use super::holds::cancel_held;
use super::in_hand::is_in_hand;
use super::run::of_dispatch;
use super::stop::Stop;
use crate::error::{EngineError, EngineResult};
use crate::event_log::events;
use crate::pg::key_lock::{self, Sort};
use crate::pg::{clock, identity};
use crate::provenance;
use crate::signal::running;
use crate::store::automations;
use crate::store::dispatches::{self, Dispatch};
use crate::store::history::{self, EndedRun, Ending};
use crate::store::live::{self, LiveRun};
use crate::store::{dwells, runs, stats, step_stats};

/// Cancels a run or a bulk job that no run waits for any more. It may have ended meanwhile.
pub fn cancel_abandoned(id: i64) {
    if bulk::cancel_abandoned(id) {
        return;
    }
    if let Ok(None) = cancel_known(RunId(id), false) {
        key_lock::wait_for(Sort::Run, id);
        if let Ok(None) = cancel_known(RunId(id), false) {
            runs::request_cancel(RunId(id));
        }
    }
}

pub fn cancel(id: RunId) -> EngineResult<bool> {
    if let Some(done) = cancel_known(id, true)? {
        return Ok(done);
    }
    // The run is not queued and has not ended. No executor begins a run ordered by hand while this lock is held, so a
    // run that is not found now has not begun, and does not begin before this transaction ends. After that, the
    // executor obeys the stored request to cancel it.
    key_lock::wait_for(Sort::Run, id.0);
    if let Some(done) = cancel_known(id, true)? {
        return Ok(done);
    }
    let owner = runs::owner_of_unrouted(id).filter(|owner| identity::has_role(identity::current_user(), *owner));
    match owner {
        Some(_) => Ok(runs::request_cancel(id)),
        None => Err(EngineError::unknown_run(id)),
    }
}

/// Cancels a run that is queued or waits. Some(false) or an error if it has ended already, None if the run is not
/// found.
fn cancel_known(id: RunId, ask: bool) -> EngineResult<Option<bool>> {
    if provenance::run() == Some(id) {
        let error = EngineError::wrong_state(format!("run {id} cannot cancel itself"));
        return if ask { Err(error.hint("Use the step automation.stop().")) } else { Ok(Some(false)) };
    }
    if is_in_hand(id) {
        return Err(in_the_same_batch(id));
    }
    let user = identity::current_user();
    let hidden = |owner: pg_sys::Oid| ask && !identity::has_role(user, owner);
    // Checked before this session waits for a lock or interrupts an executor.
    if runs::owner_under_way(id).is_some_and(hidden) {
        return Err(EngineError::unknown_run(id));
    }
    let stop = Stop::new(id.0);
    // Stops an executor that executes the run, or waits for a session that drives the queue by hand; after that the run
    // has ended, waits, or is queued again.
    if let Some((owner, dispatch)) = stop.lock(|| dispatches::lock_run(id)) {
        if hidden(owner) {
            return Err(EngineError::unknown_run(id));
        }
        if let Some(dispatch) = dispatches::one(owner, dispatch) {
            end_cancelled(owner, &[dispatch]);
        }
        return Ok(Some(true));
    }
    if let Some(found) = stop.lock(|| live::wait_for(id)) {
        if hidden(found.owner) {
            return Err(EngineError::unknown_run(id));
        }
        end_waiting(&found, "cancelled");
        return Ok(Some(true));
    }
    if let Some(held) = stop.lock(|| dwells::wait_for(id)) {
        if hidden(held.owner) {
            return Err(EngineError::unknown_run(id));
        }
        cancel_held(&held);
        return Ok(Some(true));
    }
    if let Some((owner, status, at)) = history::ending(id) {
        if hidden(owner) {
            return Err(EngineError::unknown_run(id));
        }
        if status == "cancelled" {
            return Ok(Some(false));
        }
        return Err(EngineError::wrong_state(format!("cannot cancel run {id}")).detail(format!("It {status} at {at}.")));
    }
    Ok(None)
}

/// Cancels a live run, and the runs and jobs it waits for.
pub fn end_waiting(found: &LiveRun, reason: &str) {
    let ended = cancelled(found, reason);
    let children = ended.abandoned.clone();
    if !ended.is_part() {
        stats::count_cancelled(ended.automation_id, ended.trigger_no, clock::now());
        if let Some(tenant) = &ended.tenant {
            step_stats::count_cancelled(ended.automation_id, tenant, clock::now());
        }
    }
    end(&[ended]);
    for child in children {
        cancel_abandoned(child);
    }
}

/// Cancels the runs of a bulk job, or all runs of an automation, that other processes execute, and interrupts the query
/// of a job. No executor begins one of them before the returned value is dropped.
pub fn cancel_executing(whole: i64) -> Stop {
    let stop = Stop::new(whole);
    stop.end_executing(|run| {
        if run != whole {
            // An error means that the run has ended meanwhile.
            drop(cancel_known(RunId(run), false));
        }
    });
    stop
}

/// Ends a run that another executor executes, because a later run restarts it. False if that executor was quicker, or
/// another transaction holds the run.
pub fn end_restarted(id: RunId) -> bool {
    let stop = Stop::new(id.0);
    match stop.lock_soon(|| dispatches::lock_run(id)) {
        Ok(Some((owner, dispatch))) => {
            let found = dispatches::one(owner, dispatch);
            end_queued(owner, found.as_slice(), RESTARTED);
            return found.is_some();
        }
        Ok(None) => {}
        Err(_) => return false,
    }
    match stop.lock_soon(|| live::wait_for(id)) {
        Ok(Some(found)) => {
            end_waiting(&found, RESTARTED);
            true
        }
        Ok(None) | Err(_) => false,
    }
}

/// The reason recorded for a run that a later run restarts.
pub const RESTARTED: &str = "restarted";

fn end_cancelled(owner: pg_sys::Oid, cancelled: &[Dispatch]) {
    end_queued(owner, cancelled, "cancelled");
}

fn end_queued(owner: pg_sys::Oid, cancelled: &[Dispatch], reason: &str) {
    let now = clock::engine_now();
    let ended: Vec<EndedRun> = cancelled
        .iter()
        .map(|dispatch| {
            let event = events::one(dispatch.event_id);
            of_dispatch(owner, dispatch, event.as_ref(), now).ended(Ending::Cancelled, Some(reason))
        })
        .collect();
    end(&ended);
    let ids: Vec<i64> = cancelled.iter().map(|dispatch| dispatch.id).collect();
    dispatches::finish(owner, &ids);
}

/// Cancels all runs of an automation that are executing, queued or waiting.
pub fn cancel_all(automation_id: AutomationId) -> EngineResult<()> {
    bulk::cancel_all(automation_id, false);
    let _stop = cancel_executing(running::all_of(automation_id));
    let others = |run: RunId| match is_in_hand(run) {
        // A run that drops its own automation goes on to its end.
        true if provenance::run() == Some(run) => Ok(false),
        true => Err(in_the_same_batch(run)),
        false => Ok(true),
    };
    for (owner, id) in automations::pending(automation_id) {
        if let Some(dispatch) = dispatches::one(owner, id).filter(|dispatch| dispatch.reason.starts())
            && others(dispatch.run_id)?
        {
            end_cancelled(owner, &[dispatch]);
        }
    }
    for id in live::of_automation(automation_id) {
        if others(id)?
            && let Some(found) = live::wait_for(id)
        {
            end_waiting(&found, "cancelled");
        }
    }
    Ok(())
}

/// The result of the run is not committed yet: a retryable error.
fn in_the_same_batch(run: RunId) -> EngineError {
    EngineError::try_again(format!("run {run} is under way in the same batch"))
}
