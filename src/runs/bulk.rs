//! Beginning and cancelling bulk jobs for runs and automations. The executor that tends a job is in
//! src/executor/bulk.rs.
use automation_core::bulk::{JobState, Refusal};
use automation_core::definition::OnPause;
use automation_core::ids::{AutomationId, RunId, VersionId};
use automation_core::machine::{Kept, Surroundings};
use automation_core::value::Value;
use pgrx::pg_sys;

use super::bulk_item::nudge;
use super::cancel::cancel_executing;
use crate::definitions::versions::Version;
use crate::event_log::events::Event;
use crate::pg::append::next_id;
use crate::pg::key_lock::{self, Sort};
use crate::pg::{clock, names, server_text};
use crate::store::bulk::{self, Job, NewJob, Step};

/// A run at a step that begins a bulk job.
pub struct RunOfStep {
    pub id: RunId,
    pub owner: pg_sys::Oid,
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    pub trigger_no: i16,
    pub depth: i16,
    pub step: i32,
}

/// Begins the job of a bulk step. The query runs later, in a transaction of its own.
pub fn start_step(
    run: &RunOfStep,
    version: &Version,
    query: (&str, &[Value]),
    rate: Option<f64>,
    event: &Event,
    around: &Surroundings,
) -> i64 {
    let id = next_id("run_id_seq");
    let values: Vec<Kept> = query.1.iter().cloned().map(Kept).collect();
    let params = serde_json::to_string(&values).unwrap_or_else(|_| "[]".to_owned());
    let around = serde_json::to_string(around).unwrap_or_default();
    bulk::insert(&NewJob {
        id,
        owner: run.owner,
        automation_id: run.automation_id,
        version_id: run.version_id,
        trigger_no: run.trigger_no,
        needs_approval: false,
        query: query.0,
        params: &params,
        search_path: &server_text::read_c(&version.search_path),
        rate,
        rows_as: None,
        kind: None,
        topic: None,
        step: Some(Step {
            run_id: run.id,
            no: run.step,
            finishes: version.program.on_pause == OnPause::Finish,
            event: &event.to_json(),
            surroundings: &around,
        }),
        cause: Some((run.id, run.depth)),
        created_by: &names::role_name(run.owner).unwrap_or_default(),
        now: clock::engine_now(),
    });
    if let Some(job) = bulk::find(id) {
        nudge(job.waiter(), true);
    }
    id
}

/// Has a job cancelled by the executor that tends it next; its executing rows are interrupted and end here, or go on to
/// their end if they are left open. False if the job was being cancelled already.
pub fn put_an_end(mut job: Job, leave_open: bool) -> Result<bool, Refusal> {
    let Some(state) = job.state.cancel()? else { return Ok(false) };
    job.state = state;
    job.leave_open = leave_open;
    bulk::save(&mut job);
    nudge(job.waiter(), true);
    if !leave_open {
        // Until this transaction ends no executor begins a row of the job or repeats its query: rows wait for this
        // lock.
        key_lock::wait_for(Sort::Run, job.id);
        cancel_executing(job.id);
    }
    Ok(true)
}

/// Cancels a job that no run waits for any more. False if there is no such job.
pub fn cancel_abandoned(id: i64) -> bool {
    let Some(job) = bulk::find(id).and_then(|job| bulk::wait_for(job.id)) else { return false };
    // For a job that has ended meanwhile nothing is to be done, and it counts as found.
    put_an_end(job, false).is_ok() || bulk::ended(id).is_some()
}

/// Ends the jobs of an automation that is being dropped; their rows under way are cancelled, or go on to their end.
pub fn cancel_all(automation_id: AutomationId, leave_open: bool) {
    // No job in this list has ended, so none refuses to be cancelled.
    bulk::of_automation(automation_id).into_iter().filter_map(|job| put_an_end(job, leave_open).ok()).for_each(drop);
}

/// Lets the jobs of an automation that is active again go on.
pub fn go_on(automation_id: AutomationId) {
    for job in bulk::of_automation(automation_id) {
        nudge(job.waiter(), job.state == JobState::Querying);
    }
}
