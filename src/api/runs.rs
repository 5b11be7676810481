//! Starting and stopping runs by hand.
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use automation_core::by_name::call;
use automation_core::check;
use automation_core::condition::Condition;
use automation_core::expr::{Budget, FixedScope};
use automation_core::value::Value;

use super::by_name::{Named, typed};
use super::events::check_tenant;
use super::stop::Stop;
use crate::context;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::executor;
use crate::pg::append::next_id;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::identity;
use crate::pg::jsonb::Jsonb;
use crate::pg::key_lock::{self, Sort};
use crate::pg::server_text;
use crate::pg::text::Text;
use crate::scope::instant;
use crate::store::automations::{self, Automation};
use crate::store::dispatches::{self, Dispatch};
use crate::store::events::{self, NewEvent, Op, append_event};
use crate::store::history::{self, EndedRun, Ending};
use crate::store::live::{self, LiveRun};
use crate::store::{dwells, runs, stats, step_stats, tenant_pauses};

/// Starts a run by hand. The run's id is known at once; it starts when this transaction has committed.
#[pg_extern]
fn start_run(
    name: Option<Text>,
    payload: default!(Option<Jsonb>, "'{}'"),
    tenant: default!(Option<Text>, "NULL"),
) -> Result<Option<i64>, ErrorReport> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    let (Some(name), Some(payload)) = (name, payload) else { return Ok(None) };
    let named = Named { function: "start_run", name, tenant };
    order(&named, &payload.0.to_string(), serde_json::json!({})).map(Some).or_report()
}

/// Starts a run for a step of another run, which waits for its end.
pub fn start_child(name: &str, payload: &str, parent: i64) -> Result<i64, PgError> {
    server_text::check(payload)?;
    let named = Named { function: "start_run", name, tenant: None };
    order(&named, payload, serde_json::json!({ "parent": parent })).map_err(|error| error.to_pg())
}

/// An automation that the caller may start now.
pub fn startable(named: &Named<'_>) -> EngineResult<Automation> {
    check_tenant(named.tenant.filter(|tenant| !tenant.is_empty()))?;
    let known = named.find_for_tenant()?;
    let own = context::tenant();
    let tenant = named.tenant.filter(|tenant| !tenant.is_empty()).or(own.as_deref());
    if known.status == "active" {
        check_paused(&known, tenant)?;
        return Ok(known);
    }
    Err(EngineError::wrong_state(format!("cannot start automation \"{}\"", known.name))
        .detail(format!("It is {}.", known.status))
        .hint(format!("{}.", typed("activate", &known.name, known.tenant.as_deref()))))
}

/// An automation that is for all tenants may be paused for one.
pub fn check_paused(known: &Automation, tenant: Option<&str>) -> EngineResult<()> {
    let Some(tenant) = tenant.filter(|tenant| tenant_pauses::is_paused(known.id, Some(tenant))) else { return Ok(()) };
    Err(EngineError::wrong_state(format!("cannot start automation \"{}\" for tenant \"{tenant}\"", known.name))
        .detail("It is paused for that tenant, see automation.paused_tenants.")
        .hint(format!("{}.", call("resume", &known.name, Some(tenant)))))
}

/// Orders a run: the router starts it when this transaction has committed.
fn order(named: &Named<'_>, payload: &str, extra: serde_json::Value) -> EngineResult<i64> {
    let known = startable(named)?;
    let run_id = next_id("run_id_seq");
    let mut order = serde_json::json!({ "automation_id": known.id, "version_id": known.version_id, "run_id": run_id });
    if let (Some(order), serde_json::Value::Object(extra)) = (order.as_object_mut(), extra) {
        order.extend(extra);
    }
    let given = named.tenant.filter(|tenant| !tenant.is_empty());
    let (name, theirs) = (known.name.as_str(), known.tenant.as_deref().or(given));
    let own = context::tenant();
    if let (Some(own), Some(theirs)) = (own.as_deref(), theirs)
        && own != theirs
    {
        return Err(EngineError::not_allowed(format!("cannot start automation \"{name}\" of tenant \"{theirs}\""))
            .detail(format!("The run that starts it belongs to tenant \"{own}\".")));
    }
    place(name, theirs.or(own.as_deref()), &order, Some(payload));
    Ok(run_id)
}

/// Puts an order to start a run into the log. Returns the order's number.
pub fn place(name: &str, tenant: Option<&str>, order: &serde_json::Value, payload: Option<&str>) -> i64 {
    let (topic, order) = (format!("automation.invocation.{name}"), order.to_string());
    append_event(&NewEvent {
        op: Some(Op::Started),
        topic: Some(&topic),
        tenant: tenant.map(str::as_bytes),
        next: Some(order.as_bytes()),
        payload: payload.map(str::as_bytes),
        ..Default::default()
    })
}

/// Cancels a run that has not ended, with the runs it waits for; of one that executes, the statement under way is
/// interrupted and its effects are rolled back. True if this call did it.
#[pg_extern]
fn cancel_run(id: i64) -> Result<bool, ErrorReport> {
    cancel(id).or_report()
}

/// Cancels every run of yours, executing, waiting or queued, for which a condition over `run` holds. Returns how many.
#[pg_extern(name = "cancel_run")]
fn cancel_runs(filter: Text) -> Result<i64, ErrorReport> {
    let filter = &*filter;
    cancel_matching(filter).or_report()
}

fn cancel_matching(filter: &str) -> EngineResult<i64> {
    let condition = Condition::parse_text(filter).map_err(|error| EngineError::expression("filter", filter, &error))?;
    if let Some(error) = check::check_condition(&condition, &check::Names::of_runs()).first() {
        return Err(EngineError::expression("filter", filter, error));
    }
    let user = identity::current_user();
    let mut cancelled = 0;
    for (id, owner, fields) in runs::not_ended() {
        if !identity::has_role(user, owner) {
            continue;
        }
        let run = Value::from_json(&fields).unwrap_or_default();
        let scope = FixedScope::new(Value::object(vec![("run".into(), run)]), instant(clock::engine_now()));
        let holds = condition
            .holds(&scope, &mut Budget::default())
            .map_err(|error| EngineError::expression("filter", filter, &error))?;
        if holds && context::run() != Some(id) && cancel(id)? {
            cancelled += 1;
        }
    }
    Ok(cancelled)
}

/// Cancels a run or a bulk job that another run waited for and does not any more. It may have ended meanwhile.
pub fn cancel_abandoned(id: i64) {
    if super::bulk::cancel_abandoned(id) {
        return;
    }
    if let Ok(None) = cancel_known(id, false) {
        key_lock::wait_for(Sort::Run, id);
        if let Ok(None) = cancel_known(id, false) {
            runs::request_cancel(id);
        }
    }
}

fn cancel(id: i64) -> EngineResult<bool> {
    if let Some(done) = cancel_known(id, true)? {
        return Ok(done);
    }
    // Not queued and not ended. No executor begins a run ordered by hand while this lock is held, so a run that is not
    // found now has not begun, and does not before this transaction ends. Then the request decides.
    key_lock::wait_for(Sort::Run, id);
    if let Some(done) = cancel_known(id, true)? {
        return Ok(done);
    }
    let owner = runs::owner_of_unrouted(id).filter(|owner| identity::has_role(identity::current_user(), *owner));
    match owner {
        Some(_) => Ok(runs::request_cancel(id)),
        None => Err(EngineError::unknown_run(id)),
    }
}

/// Cancels a run that is queued or waits, or says that it has ended. None if it is neither.
fn cancel_known(id: i64, ask: bool) -> EngineResult<Option<bool>> {
    if context::run() == Some(id) {
        let error = EngineError::wrong_state(format!("run {id} cannot cancel itself"));
        return if ask { Err(error.hint("Use the step automation.stop().")) } else { Ok(Some(false)) };
    }
    if executor::is_in_hand(id) {
        return Err(in_the_same_batch(id));
    }
    let user = identity::current_user();
    let hidden = |owner: pg_sys::Oid| ask && !identity::has_role(user, owner);
    // Asked before anything is waited for or interrupted.
    if runs::owner_under_way(id).is_some_and(hidden) {
        return Err(EngineError::unknown_run(id));
    }
    let stop = Stop::new(id);
    // Stops an executor that executes the run, or waits for a session that drives it by hand; then the run has ended,
    // waits, or was given back.
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
        executor::cancel_held(&held);
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

/// Cancels a run that waits, and what it waits for.
pub fn end_waiting(found: &LiveRun, reason: &str) {
    let ended = executor::cancelled(found, reason);
    let children = ended.abandoned.clone();
    if !ended.is_part() {
        stats::count_cancelled(ended.automation_id, ended.trigger_no, clock::now());
        if let Some(tenant) = &ended.tenant {
            step_stats::count_cancelled(ended.automation_id, tenant, clock::now());
        }
    }
    executor::end(&[ended]);
    for child in children {
        cancel_abandoned(child);
    }
}

fn end_cancelled(owner: pg_sys::Oid, cancelled: &[Dispatch]) {
    let now = clock::engine_now();
    let ended: Vec<EndedRun> = cancelled
        .iter()
        .map(|dispatch| {
            let event = events::one(dispatch.event_id);
            executor::of_dispatch(owner, dispatch, event.as_ref(), now).ended(Ending::Cancelled, Some("cancelled"))
        })
        .collect();
    executor::end(&ended);
    let ids: Vec<i64> = cancelled.iter().map(|dispatch| dispatch.id).collect();
    dispatches::finish(owner, &ids);
}

/// Cancels everything an automation has queued or waiting.
pub fn cancel_all(automation_id: i32) -> EngineResult<()> {
    super::bulk::cancel_all(automation_id, false);
    let others = |run: i64| match executor::is_in_hand(run) {
        // A run that drops its own automation goes on to its end.
        true if context::run() == Some(run) => Ok(false),
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

/// What became of it is not written yet. Whoever asks comes back when it is.
fn in_the_same_batch(run: i64) -> EngineError {
    EngineError::try_again(format!("run {run} is under way in the same batch"))
}
