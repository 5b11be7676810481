//! Steering runs that wait or have failed: signals, retries, skipped steps, dead letters.
use std::rc::Rc;

use automation_core::ids::{AutomationId, RunId};
use automation_core::machine::{MAX_SIGNAL, NoStart, State};
use automation_core::order::{Order, Retry, Start};
use automation_core::run_state::Pause;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::definitions::by_name::typed;
use crate::definitions::derived;
use crate::definitions::tenant_view::TenantColumns;
use crate::definitions::tenant_view::check_tenant;
use crate::definitions::versions;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::event_log::events::append_move;
use crate::event_log::events::{self, Event, NewEvent, Op, append_event};
use crate::pg::append::next_id;
use crate::pg::jsonb::Jsonb;
use crate::pg::text::Text;
use crate::pg::{clock, identity};
use crate::provenance;
use crate::runs::order::{check_paused, place};
use crate::store::runs::{self, FailedRun};
use crate::store::signals::{self, NewSignal};
use crate::store::{automations, live, log, outbox, retries};

/// Sends a signal. A run that waits for it by this name, and by this key and of this tenant if both have one, takes it;
/// until one does, it is kept. Each signal is taken by one run.
#[pg_extern]
fn signal(
    name: Option<Text>,
    payload: default!(Option<Jsonb>, "'{}'"),
    key: default!(Option<Text>, "NULL"),
    tenant: default!(Option<Text>, "NULL"),
) -> Result<i64, ErrorReport> {
    let name = name.as_deref();
    let key = key.as_deref();
    let tenant = tenant.as_deref();
    let payload = payload.map_or_else(|| serde_json::json!({}), |payload| payload.0);
    name.ok_or_else(|| EngineError::null_argument("name"))
        .and_then(|name| send(name, &payload, key, tenant))
        .or_report()
}

fn send(name: &str, payload: &serde_json::Value, key: Option<&str>, tenant: Option<&str>) -> EngineResult<i64> {
    if name.trim().is_empty() || name.len() > MAX_SIGNAL {
        return Err(EngineError::invalid(format!("the name of a signal has 1 to {MAX_SIGNAL} bytes")));
    }
    if key.is_some_and(|key| key.len() > MAX_SIGNAL) {
        return Err(EngineError::invalid(format!("the key of a signal has at most {MAX_SIGNAL} bytes")));
    }
    check_tenant(tenant)?;
    let own = provenance::tenant();
    let (tenant, payload) = (tenant.or(own.as_deref()), payload.to_string());
    let signal = NewSignal { name, key, tenant, payload: &payload, sender: identity::current_user() };
    let id = signals::insert(&signal, clock::now());
    append_event(&NewEvent {
        op: Some(Op::Signalled),
        kind: Some(name),
        entity_id: key.map(str::as_bytes),
        ..Default::default()
    });
    Ok(id)
}

/// Makes a run go on without the step it waits at, or takes up a failed run behind the step that failed. Returns the
/// run that goes on.
#[pg_extern]
fn skip_step(run_id: Option<i64>, step: default!(Option<Text>, "NULL")) -> Result<i64, ErrorReport> {
    let step = step.as_deref();
    run_id
        .ok_or_else(|| EngineError::null_argument("run_id"))
        .and_then(|run_id| skip(RunId(run_id), step))
        .map(|run| run.0)
        .or_report()
}

fn skip(run_id: RunId, step: Option<&str>) -> EngineResult<RunId> {
    let Some(run) = live::wait_for(run_id) else { return again(run_id, step, true) };
    if !identity::has_role(identity::current_user(), run.owner) {
        return Err(EngineError::unknown_run(run_id));
    }
    let found: Vec<_> = run.waits.iter().filter(|wait| step.is_none_or(|step| step == wait.step)).collect();
    let wait = match found[..] {
        [wait] => wait,
        [] if run.pause == Pause::Frozen => {
            return Err(EngineError::wrong_state(format!("run {run_id} does not wait at a step"))
                .detail("It goes on when its automation is active again.")
                .hint(format!("{}.", typed("resume", &run.automation, tenant_of(run.automation_id).as_deref()))));
        }
        [] => {
            let at: Vec<String> = run.waits.iter().map(|wait| format!("\"{}\"", wait.step)).collect();
            return Err(EngineError::wrong_state(format!("run {run_id} does not wait at that step"))
                .detail(format!("It waits at {}.", at.join(", "))));
        }
        _ => {
            return Err(EngineError::invalid(format!("run {run_id} waits at several steps"))
                .hint("Name the one to skip: skip_step(run_id, step)."));
        }
    };
    append_move(&Order::Skip {
        run_id,
        wait_no: wait.no,
        owner: run.owner.to_u32(),
        automation_id: run.automation_id,
        version_id: run.version_id,
    });
    Ok(run_id)
}

/// The tenant that an automation was defined for.
fn tenant_of(automation: AutomationId) -> Option<String> {
    automations::find(automation)?.tenant
}

/// Takes up a failed run again, on its own version: where it failed, or from a step. A run is repeated once: a second
/// retry is refused, however the first ended, unless the first took no step. Returns the new run.
#[pg_extern]
fn retry_run(id: Option<i64>, from_step: default!(Option<Text>, "NULL")) -> Result<i64, ErrorReport> {
    let from_step = from_step.as_deref();
    id.ok_or_else(|| EngineError::null_argument("id"))
        .and_then(|id| again(RunId(id), from_step, false))
        .map(|run| run.0)
        .or_report()
}

fn again(id: RunId, from_step: Option<&str>, skip: bool) -> EngineResult<RunId> {
    let what = if skip { "skip a step of" } else { "retry" };
    let user = identity::current_user();
    let Some(run) = runs::ended(id).filter(|run| identity::has_role(user, run.owner)) else {
        return Err(match runs::under_way(id).filter(|(owner, _)| identity::has_role(user, *owner)) {
            Some((_, status)) => EngineError::wrong_state(format!("cannot {what} run {id}"))
                .detail(format!("It is {status}, not failed."))
                .hint(format!("SELECT * FROM automation.timeline({id}).")),
            None => EngineError::unknown_run(id),
        });
    };
    if !matches!(run.status.as_str(), "failed" | "cancelled") {
        return Err(EngineError::wrong_state(format!("cannot {what} run {id}"))
            .detail(format!("It is {}, not failed.", run.status))
            .hint(format!(
                "{} starts a new one.",
                typed("start_run", &run.automation, tenant_of(run.automation_id).as_deref())
            )));
    }
    if skip && from_step.is_some() && from_step != run.failed_step.as_deref() {
        let error = EngineError::wrong_state(format!("run {id} did not fail at that step"));
        return Err(match &run.failed_step {
            Some(step) => error.detail(format!("It failed at \"{step}\".")),
            None => error,
        });
    }
    if skip && run.failed_step.is_none() {
        return Err(EngineError::wrong_state(format!("cannot skip a step of run {id}"))
            .detail(format!("It is {}, and no step of it has failed.", run.status))
            .hint(format!(
                "SELECT automation.retry_run({id}) begins it again, SELECT automation.retry_run({id}, 'step') at a step."
            )));
    }
    if let Some(step) = from_step.filter(|_| !skip) {
        check_place(id, &run, step)?;
    }
    order_again(id, &run, from_step.filter(|_| !skip), skip)
}

/// Can the run go on at this step?
fn check_place(id: RunId, run: &FailedRun, step: &str) -> EngineResult<()> {
    versions::load(std::iter::once(run.version_id));
    let version = versions::get(run.version_id).map_err(EngineError::bug)?;
    let kept: Option<State> = run.state.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let state = kept.map_or_else(State::new, |state| state.to_try_again(&version.program));
    let known = state.places(&version.program).join(", ");
    match state.at(&version.program, step) {
        Ok(_) => Ok(()),
        Err(NoStart::Unknown) => {
            let error = EngineError::undefined(format!("run {id} has no step \"{step}\" to start from"));
            Err(error.hint(format!("Its steps are {known}.")))
        }
        Err(NoStart::NotInLanes { parallel }) => {
            let error = EngineError::wrong_state(format!("run {id} cannot start from step \"{step}\""));
            let detail = format!("It is a step of a lane of \"{parallel}\", and the run did not fail in those lanes.");
            Err(error.detail(detail).hint(format!("Start from one of {known}.")))
        }
    }
}

/// Notes that run `run_id` repeats run `id`, unless another run does so already.
fn claim_retry(id: RunId, run: &FailedRun, run_id: RunId, what: &str) -> EngineResult<()> {
    retries::give_way(id);
    if retries::note(run_id, id) {
        return Ok(());
    }
    let error = EngineError::wrong_state(format!("cannot {what} run {id}"));
    Err(match retries::standing(id) {
        Some((other, None)) => error
            .detail(format!("Run {other} repeats it and is under way."))
            .hint(format!("SELECT * FROM automation.timeline({other}).")),
        Some((other, Some((status, at)))) if status == "completed" => {
            error.detail(format!("Run {other} repeated it and completed at {at}.")).hint(format!(
                "{} starts a new one.",
                typed("start_run", &run.automation, tenant_of(run.automation_id).as_deref())
            ))
        }
        Some((other, Some((status, at)))) => {
            error.detail(format!("Run {other} repeated it and {status} at {at}.")).hint(match status.as_str() {
                "failed" => format!("SELECT automation.retry_run({other}) goes on where that one failed."),
                _ => format!("SELECT automation.retry_run({other}) begins that one again at its first step."),
            })
        }
        // The other session rolled its retry back while this one waited for it.
        None => EngineError::try_again(format!("run {id} is being retried by another session")),
    })
}

fn order_again(id: RunId, run: &FailedRun, from_step: Option<&str>, skip: bool) -> EngineResult<RunId> {
    if run.automation_status != "active" {
        return Err(EngineError::wrong_state(format!("cannot retry run {id}"))
            .detail(format!("Its automation \"{}\" is {}.", run.automation, run.automation_status)));
    }
    if let Some(known) = automations::find(run.automation_id) {
        check_paused(&known, run.tenant.as_deref())?;
    }
    let event = events::one(run.event_id).ok_or_else(|| {
        EngineError::wrong_state(format!("cannot retry run {id}"))
            .detail(format!("Its event {} is not in the log any more.", run.event_id))
    })?;
    let event = event.ordered().unwrap_or(event);
    let event = on_its_topic(run, event);
    let run_id = RunId(next_id("run_id_seq"));
    claim_retry(id, run, run_id, if skip { "skip a step of" } else { "retry" })?;
    let start = Start {
        automation_id: run.automation_id,
        version_id: run.version_id,
        trigger_no: Some(run.trigger_no),
        run_id,
        event: Some(event.to_json()),
        retry: Some(Retry { retry_of: id, state: run.state.clone(), from_step: from_step.map(str::to_owned), skip }),
        ..Default::default()
    };
    place(&run.automation, run.tenant.as_deref(), start, None);
    let mut details = serde_json::json!({ "run": id, "as": run_id });
    if let Some(tenant) = &run.tenant {
        details["tenant"] = tenant.as_str().into();
    }
    log::audit_of(Some(run.owner), "automation.run_retried", &run.automation, &details);
    Ok(run_id)
}

/// The event as the run's trigger heard it. The history does not keep a derived topic; the first one that the trigger
/// listens to is the one it was.
fn on_its_topic(run: &FailedRun, event: Event) -> Rc<Event> {
    let event = Rc::new(event);
    versions::load(std::iter::once(run.version_id));
    let Ok(version) = versions::get(run.version_id) else { return event };
    let seen = TenantColumns::default().seen_by(version.program.tenant.as_deref(), &event);
    let event = seen.unwrap_or(event);
    let Some(trigger) = version.program.triggers.get(run.trigger_no as usize) else { return event };
    let derivers = derived::current();
    let heard =
        trigger.patterns.iter().find_map(|pattern| derivers.heard(pattern, &event, |_| true).into_iter().next());
    heard.unwrap_or(event)
}

/// Tries a dead letter again: a run or a message that the engine gave up on. Returns the new run, or the new delivery.
#[pg_extern]
fn redrive(id: i64) -> Result<i64, ErrorReport> {
    redrive_letter(id).or_report()
}

fn redrive_letter(id: i64) -> EngineResult<i64> {
    let unknown = || EngineError::undefined(format!("dead letter {id} does not exist"));
    let letter = log::letter(id)
        .filter(|letter| {
            let user = identity::current_user();
            // A dead letter without an owner is for superusers.
            letter.owner.map_or_else(|| identity::is_superuser(user), |owner| identity::has_role(user, owner))
        })
        .ok_or_else(unknown)?;
    if let Some(delivery) = outbox::queue_letter(id, clock::now()) {
        log::forget_letter(id);
        let details = serde_json::json!({ "dead_letter": id, "as": delivery });
        log::audit_of(letter.owner, "delivery.redriven", "", &details);
        return Ok(delivery);
    }
    let new = match letter.run_id.and_then(|run| runs::ended(run).map(|found| (run, found))) {
        Some((run, found)) => order_again(run, &found, None, false)?.0,
        None => {
            let Some(event) = letter.event_id.and_then(events::one) else {
                return Err(EngineError::wrong_state(format!("cannot redrive dead letter {id}"))
                    .detail("Neither its run nor its event is kept any more."));
            };
            events::append_again(&event).0
        }
    };
    log::forget_letter(id);
    Ok(new)
}
