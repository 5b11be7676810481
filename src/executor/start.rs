//! The beginning of a run: takes it through the gates and then through its first steps.
use std::rc::Rc;

use automation_core::definition::OnPause;
use automation_core::gate::{Code, apart};
use automation_core::ids::WaitNo;
use automation_core::machine::{Machine, State};
use automation_core::order::Start;

use super::batch::Outcome;
use super::bulk::{self, Standing};
use super::claimer::Claimer;
use super::gates::{self, Class, Origin, Passed, Refusal};
use super::resume;
use super::walk::{Walk, Walked};
use crate::definitions::versions::{self, Version};
use crate::error::EngineError;
use crate::event_log::events::Event;
use crate::pg::catch::PgError;
use crate::pg::identity;
use crate::provenance::{self, RunContext};
use crate::runs::bulk_item;
use crate::runs::error::error_json;
use crate::runs::in_hand;
use crate::runs::run::Run;
use crate::runs::suspend;
use crate::signal::running;
use crate::store::history::{EndedRun, Ending};
use crate::store::{automations, tenant_pauses};

/// Begins a run, or takes up again a run that had failed, with the event of that run.
pub fn start(claimer: &mut Claimer, mut run: Run, active: bool, ordered: &Event) -> Outcome {
    let order = ordered.start().unwrap_or_default();
    let original = ordered.ordered();
    let event = original.as_ref().unwrap_or(ordered);
    // The order of a row stands for an event of its own, also when the row is tried again.
    let meant = bulk_item::event_of(event);
    let event = meant.as_ref().unwrap_or(event);
    match run.item.map_or(Standing::GoOn, |item| bulk::standing(claimer, item.job)) {
        Standing::GoOn => {}
        Standing::Cancelled => {
            in_hand::note(run.id);
            return Outcome::Ended(run.ended(Ending::Cancelled, Some("cancelled")));
        }
        Standing::Undecided => {
            claimer.unsettled.insert((run.id, WaitNo::NONE));
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
                claimer.unsettled.insert((run.id, WaitNo::NONE));
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
        // The rows of a bulk step pass no gates: they are part of a run that has passed them.
        let passed = may_read(owner, event).and_then(|()| match order.row_of_step() {
            None => gates::pass(claimer, &mut run, &version, event, origin),
            Some(_) => Ok(Passed { queues: false, event: None }),
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
fn origin(run: &Run, version: &Version, order: &Start) -> Origin {
    let trigger = version.program.triggers.get(run.trigger_no as usize);
    // The rows of a backfill are many, and all of them are wanted.
    let counts = order.row.is_none();
    let class = match trigger {
        Some(trigger) if counts && trigger.schedule.is_none() => Class::Event,
        _ => Class::Schedule,
    };
    let dedups = class.dedups() || order.dedup;
    Origin { class, again: order.retry.is_some(), dedups, counts }
}

/// The outcome of a run that did not pass the gates.
pub fn refused(claimer: &mut Claimer, run: &Run, refusal: Refusal) -> Outcome {
    let reason = match refusal {
        Refusal::Later => {
            claimer.unsettled.insert((run.id, WaitNo::NONE));
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
    /// The automation of the run is active.
    pub active: bool,
    /// Other runs with the same key come first.
    pub queues: bool,
}

/// Executes the first steps of a run that has passed all gates.
pub fn first_walk(
    claimer: &mut Claimer,
    run: &Run,
    version: &Rc<Version>,
    event: &Event,
    (ordered, order): (&Event, &Start),
    beginning: Beginning,
) -> Outcome {
    let world = run.scope(version, event);
    let state = bulk_item::begin(version, ordered, order).unwrap_or_else(|| resume_point(version, order));
    let mut machine = Machine::new(&version.program, state, run.id.0 as u64, run.key.clone());
    machine.belongs_to(run.item);
    if order.retry.as_ref().is_some_and(|retry| retry.skip) {
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

/// The state in which the run begins: at the first step, or where the run that it repeats had failed.
fn resume_point(version: &Version, order: &Start) -> State {
    let Some(retry) = &order.retry else { return State::new() };
    let before = retry.state.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let state = before.map_or_else(State::new, |state: State| state.to_try_again(&version.program));
    match retry.from_step.as_deref() {
        // retry_run() has checked that the run can go on at this step
        Some(step) => state.clone().at(&version.program, step).unwrap_or(state),
        None => state,
    }
}

/// Marks all that this process writes until the returned value is dropped as written by the run.
pub fn enter(run: &Run) -> (provenance::Entered, running::Shown) {
    in_hand::note(run.id);
    let entered = provenance::enter(RunContext {
        run_id: run.id,
        automation: run.automation.clone(),
        owner: run.owner,
        depth: run.depth,
        tenant: run.tenant.clone(),
    });
    (entered, running::show(run.task()))
}

/// Refuses the run if its owner may not read the table of the event any more.
pub fn may_read(owner: pgrx::pg_sys::Oid, event: &Event) -> Result<(), Refusal> {
    let Some(relation) = event.relation else { return Ok(()) };
    if identity::may_read(relation, owner) {
        return Ok(());
    }
    Err(Refusal::Failed("permission_denied", EngineError::closed_table(relation, owner).to_pg()))
}
