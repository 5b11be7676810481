//! Starting and stopping runs by hand.
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::automations::visible;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::append::next_id;
use crate::pg::clock;
use crate::pg::identity::{self, as_engine};
use crate::pg::jsonb::Jsonb;
use crate::store::dispatches::{self, Dispatch};
use crate::store::events::{self, NewEvent, Op, append_event};
use crate::store::history::{self, EndedRun, Ending};
use crate::store::{automations, runs};

/// Starts a run by hand. The run's id is known at once; it starts when this transaction has committed.
#[pg_extern]
fn start_run(name: &str, payload: default!(Jsonb, "'{}'")) -> Result<i64, ErrorReport> {
    start(name, &payload.0).or_report()
}

fn start(name: &str, payload: &serde_json::Value) -> EngineResult<i64> {
    let known = visible(name)?;
    if known.status != "active" {
        return Err(EngineError::wrong_state(format!("cannot start automation \"{name}\""))
            .detail(format!("It is {}.", known.status))
            .hint(format!("SELECT automation.activate('{name}').")));
    }
    let run_id = next_id("run_id_seq");
    let order =
        serde_json::json!({ "automation_id": known.id, "version_id": known.version_id, "run_id": run_id }).to_string();
    let (topic, payload) = (format!("automation.invocation.{name}"), payload.to_string());
    append_event(&NewEvent {
        op: Some(Op::Started),
        topic: Some(&topic),
        tenant: known.tenant.as_deref().map(str::as_bytes),
        next: Some(order.as_bytes()),
        payload: Some(payload.as_bytes()),
        ..Default::default()
    });
    Ok(run_id)
}

/// Cancels a run that has not ended. True if this call did it.
#[pg_extern]
fn cancel_run(id: i64) -> Result<bool, ErrorReport> {
    cancel(id).or_report()
}

fn cancel(id: i64) -> EngineResult<bool> {
    if let Some(done) = cancel_known(id)? {
        return Ok(done);
    }
    // Not queued and not ended. Keep the router away, so that what is found now stays true until we commit.
    as_engine(crate::store::router::wait_for_cursor);
    if let Some(done) = cancel_known(id)? {
        return Ok(done);
    }
    let owner = runs::owner_of_unrouted(id).filter(|owner| identity::has_role(identity::current_user(), *owner));
    match owner {
        Some(_) => Ok(runs::request_cancel(id)),
        None => Err(EngineError::unknown_run(id)),
    }
}

/// Cancels a run that is queued, or says that it has ended. None if it is neither.
fn cancel_known(id: i64) -> EngineResult<Option<bool>> {
    // Waits for an executor that has the run in hand; then it has ended, or was given back.
    if let Some((owner, dispatch)) = dispatches::lock_run(id) {
        if !identity::has_role(identity::current_user(), owner) {
            return Err(EngineError::unknown_run(id));
        }
        if let Some(dispatch) = dispatches::one(owner, dispatch) {
            end_cancelled(owner, &[dispatch]);
        }
        return Ok(Some(true));
    }
    if let Some((owner, status, at)) = history::ending(id) {
        if !identity::has_role(identity::current_user(), owner) {
            return Err(EngineError::unknown_run(id));
        }
        if status == "cancelled" {
            return Ok(Some(false));
        }
        return Err(EngineError::wrong_state(format!("cannot cancel run {id}")).detail(format!("It {status} at {at}.")));
    }
    Ok(None)
}

fn end_cancelled(owner: pg_sys::Oid, cancelled: &[Dispatch]) {
    let now = clock::now();
    let ended: Vec<EndedRun> = cancelled
        .iter()
        .map(|dispatch| {
            let event = events::one(dispatch.event_id);
            EndedRun {
                ended_at: now,
                ..crate::executor::ended(owner, dispatch, event.as_ref(), now, Ending::Cancelled, Some("cancelled"))
            }
        })
        .collect();
    history::insert(now, &ended);
    let ids: Vec<i64> = cancelled.iter().map(|dispatch| dispatch.id).collect();
    dispatches::finish(owner, &ids);
}

/// Cancels everything an automation has queued.
pub fn cancel_queued(automation_id: i32) {
    for (owner, id) in automations::pending(automation_id) {
        if let Some(dispatch) = dispatches::one(owner, id) {
            end_cancelled(owner, &[dispatch]);
        }
    }
}
