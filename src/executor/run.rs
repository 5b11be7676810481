//! The beginning of a run: through the gates, then its first walk.
use std::rc::Rc;

use automation_core::definition::OnPause;
use automation_core::expr::ExprError;
use automation_core::gate::{Code, apart};
use automation_core::machine::{JobItem, Machine, State};

use super::batch::{Claimer, Outcome};
use super::bulk::{self, Standing};
use super::bulk_item;
use super::gates::{self, Class, Origin, Passed, Refusal};
use super::in_hand;
use super::resume;
use super::suspend;
use super::versions::{self, Version};
use super::walk::{Run, Walk, Walked};
use crate::context::{self, RunContext};
use crate::error::EngineError;
use crate::pg::catch::PgError;
use crate::pg::clock::Micros;
use crate::pg::identity;
use crate::running;
use crate::store::dispatches::Dispatch;
use crate::store::events::{Event, Op};
use crate::store::history::{EndedRun, Ending};
use crate::store::{automations, tenant_pauses};

/// What is known of a run that a dispatch starts.
pub fn of_dispatch(owner: pgrx::pg_sys::Oid, dispatch: &Dispatch, event: Option<&Event>, started_at: Micros) -> Run {
    let order = event.map(order_of).unwrap_or_default();
    let own = versions::get(dispatch.version_id).ok().and_then(|version| version.program.tenant.clone());
    Run {
        id: dispatch.run_id,
        owner,
        automation: dispatch.automation.clone(),
        automation_id: dispatch.automation_id,
        version_id: dispatch.version_id,
        trigger_no: dispatch.trigger_no,
        attempt: dispatch.attempt,
        event_id: dispatch.event_id,
        event_at: dispatch.event_at,
        started_at,
        depth: event.map_or(0, |event| event.depth),
        parent: order["parent"].as_i64(),
        kind: event.and_then(|event| event.kind.clone()),
        entity_id: event.and_then(|event| event.entity_id.clone()),
        key: None,
        mode_key: None,
        // The runs of a tenant's automation are that tenant's, also if the entity has gone over to another tenant.
        tenant: own.or_else(|| event.and_then(|event| event.tenant.clone())),
        item: bulk_item::of_order(&order),
    }
}

/// The row of a bulk job that an event orders a run for.
pub fn item_of(event: &Event) -> Option<JobItem> {
    bulk_item::of_order(&order_of(event))
}

/// What start_run() and others ordered; null for any other event.
fn order_of(event: &Event) -> serde_json::Value {
    match (event.op, &event.next) {
        (Op::Started, Some(order)) => serde_json::from_str(order).unwrap_or_default(),
        _ => serde_json::Value::Null,
    }
}

/// Begins a run, or takes up again one that had failed: then with the event that it was about.
pub fn start(claimer: &mut Claimer, mut run: Run, active: bool, ordered: &Event) -> Outcome {
    let order = order_of(ordered);
    let original = ordered.ordered();
    let event = original.as_ref().unwrap_or(ordered);
    // A row stands for an event of its own, also when it is tried again.
    let meant = bulk_item::event_of(event, &order_of(event));
    let event = meant.as_ref().unwrap_or(event);
    match run.item.map_or(Standing::GoOn, |item| bulk::standing(claimer, item.job)) {
        Standing::GoOn => {}
        Standing::Cancelled => {
            in_hand::note(run.id);
            return Outcome::Ended(run.ended(Ending::Cancelled, Some("cancelled")));
        }
        Standing::Undecided => {
            claimer.unsettled.insert((run.id, 0));
            return Outcome::Stays;
        }
    }
    run.event_id = event.id;
    run.event_at = if event.id == ordered.id { ordered.occurred_at } else { event.occurred_at };
    run.kind.clone_from(&event.kind);
    run.entity_id.clone_from(&event.entity_id);
    let version = match versions::get(run.version_id) {
        Ok(version) => version,
        Err(problem) => {
            let error = error_json(&PgError::new("XX000", problem), None);
            let ended = run.ended(Ending::Failed, Some("version_unreadable"));
            return Outcome::Ended(EndedRun { error: Some(error), ..ended });
        }
    };
    let tenant = apart::tenant(version.program.tenant.as_deref(), run.tenant.as_deref());
    let held_back = tenant_pauses::is_paused(run.automation_id, tenant);
    let mut active = active && !claimer.paused.contains(&run.automation_id) && !held_back;
    if !active && version.program.on_pause == OnPause::Freeze {
        match automations::stays_as_it_is(run.automation_id, tenant) {
            Some(now) => active = now,
            None => {
                claimer.unsettled.insert((run.id, 0));
                return Outcome::Stays;
            }
        }
    }
    if held_back && version.program.on_pause == OnPause::Drain {
        let reason = Code::TenantPaused.word();
        *claimer.refused.entry((run.automation_id, run.trigger_no, reason)).or_default() += 1;
        return Outcome::Ended(run.ended(Ending::Cancelled, Some(reason)));
    }
    if !active && version.program.on_pause == OnPause::Drain {
        return Outcome::Ended(run.ended(Ending::Cancelled, Some("automation_not_active")));
    }
    let _context = enter(&run);
    let owner = run.owner;
    identity::as_role(owner, || {
        let origin = origin(&run, &version, &order);
        // The rows of a bulk step have no gates to pass: they are part of a run that has.
        let passed = may_read(owner, event).and_then(|()| match order["step"].is_null() {
            true => gates::pass(claimer, &mut run, &version, event, origin),
            false => Ok(Passed { queues: false, event: None }),
        });
        match passed {
            Ok(passed) => {
                let event = passed.event.as_ref().unwrap_or(event);
                let beginning = Beginning { active, queues: passed.queues };
                first_walk(claimer, &run, &version, event, (ordered, &order), beginning)
            }
            Err(refusal) => refused(claimer, &run, refusal),
        }
    })
}

/// How the run came about.
fn origin(run: &Run, version: &Version, order: &serde_json::Value) -> Origin {
    let trigger = version.program.triggers.get(run.trigger_no as usize);
    // The rows of a backfill are many, and somebody wants all of them.
    let counts = order["bulk"].is_null();
    let class = match trigger {
        Some(trigger) if counts && trigger.schedule.is_none() => Class::Event,
        _ => Class::Schedule,
    };
    let dedups = class.dedups() || order["dedup"].as_bool() == Some(true);
    Origin { class, again: !order["retry_of"].is_null(), dedups, counts }
}

/// What becomes of a run that did not pass the gates.
pub fn refused(claimer: &mut Claimer, run: &Run, refusal: Refusal) -> Outcome {
    let reason = match refusal {
        Refusal::Later => {
            claimer.unsettled.insert((run.id, 0));
            return Outcome::Stays;
        }
        Refusal::Failed(reason, error) => {
            let error = Some(error_json(&error, None));
            return Outcome::Ended(EndedRun { error, ..run.ended(Ending::Failed, Some(reason)) });
        }
        Refusal::Counted(code) => code.word(),
        Refusal::Skipped(reason) => reason,
        Refusal::Hot => Code::Hot.word(),
    };
    *claimer.refused.entry((run.automation_id, run.trigger_no, reason)).or_default() += 1;
    match refusal {
        Refusal::Skipped(_) => Outcome::Ended(run.ended(Ending::Skipped, Some(reason))),
        Refusal::Hot => Outcome::Ended(run.ended(Ending::Hot, Some(reason))),
        _ => Outcome::Stays,
    }
}

/// How a run that has passed the gates begins.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// Its automation is active.
    pub active: bool,
    /// Others with the same key come first.
    pub queues: bool,
}

/// Takes the first steps of a run that has passed all gates.
pub fn first_walk(
    claimer: &mut Claimer,
    run: &Run,
    version: &Rc<Version>,
    event: &Event,
    (ordered, order): (&Event, &serde_json::Value),
    beginning: Beginning,
) -> Outcome {
    let world = run.scope(version, event);
    let state = bulk_item::begin(version, ordered, order).unwrap_or_else(|| resume_point(version, order));
    let mut machine = Machine::new(&version.program, state, run.id as u64, run.key.clone());
    machine.belongs_to(run.item);
    if order["skip"].as_bool() == Some(true) {
        machine.pass_over();
    }
    if beginning.queues {
        return Outcome::Suspended(Box::new(suspend::queued(run, event, &machine)));
    }
    if !beginning.active && version.program.on_pause == OnPause::Freeze {
        return Outcome::Suspended(Box::new(suspend::frozen(run, event, &machine)));
    }
    let mut walk = Walk { claimer, run, version: version.clone(), steps: String::new() };
    match walk.go(&mut machine, &world) {
        Walked::Ended(end) => {
            let ended = walk.history(&machine, &end);
            resume::conclude(&mut machine, ended)
        }
        Walked::Suspended => {
            let steps = walk.steps_json();
            Outcome::Suspended(Box::new(suspend::first(run, event, &mut machine, &world, steps)))
        }
    }
}

/// Where the run begins: at the first step, or where the run that it repeats had failed.
fn resume_point(version: &Version, order: &serde_json::Value) -> State {
    let before = order["state"].as_str().and_then(|text| serde_json::from_str(text).ok());
    let state = before.map_or_else(State::new, |state: State| state.to_try_again(&version.program));
    match order["from_step"].as_str() {
        // retry_run() has checked that the run can go on at this step
        Some(step) => state.clone().at(&version.program, step).unwrap_or(state),
        None => state,
    }
}

/// Marks what this process writes from here on as the run's.
pub fn enter(run: &Run) -> (context::Entered, running::Shown) {
    in_hand::note(run.id);
    let entered = context::enter(RunContext {
        run_id: run.id,
        automation: run.automation.clone(),
        owner: run.owner,
        depth: run.depth,
        tenant: run.tenant.clone(),
    });
    (entered, running::show(run.task()))
}

/// The owner must still be allowed to read what the event shows of the table.
pub fn may_read(owner: pgrx::pg_sys::Oid, event: &Event) -> Result<(), Refusal> {
    let Some(relation) = event.relation else { return Ok(()) };
    if identity::may_read(relation, owner) {
        return Ok(());
    }
    Err(Refusal::Failed("permission_denied", EngineError::closed_table(relation, owner).to_pg()))
}

pub fn from_expression(error: &ExprError, text: &str) -> PgError {
    let context = (!text.is_empty()).then(|| format!("expression {text}"));
    PgError {
        detail: error.detail.clone(),
        hint: error.hint.clone(),
        context,
        ..PgError::new("22023", error.message.clone())
    }
}

/// An error as the history keeps it.
pub fn error_json(error: &PgError, step: Option<&str>) -> String {
    let mut fields = serde_json::Map::new();
    fields.insert("sqlstate".into(), error.sqlstate.clone().into());
    fields.insert("message".into(), clean(&error.message).into());
    for (name, value) in [("detail", &error.detail), ("hint", &error.hint), ("context", &error.context)] {
        if let Some(value) = value {
            fields.insert(name.into(), clean(value).into());
        }
    }
    if let Some(step) = step {
        fields.insert("step".into(), step.into());
    }
    serde_json::Value::Object(fields).to_string()
}

/// No more than a screenful of it.
fn clean(text: &str) -> String {
    const MOST: usize = 4000;
    if text.len() <= MOST {
        return text.to_owned();
    }
    let end = (0..=MOST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}
