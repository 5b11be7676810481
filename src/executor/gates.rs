//! Between an event and a run. What the event alone decides was decided when it was routed; the rest is here, in the order
//! config -> filter -> window -> hold_for -> condition -> dedup -> hot flow -> mode and limits.
//!
//! Gates that count or exclude lock their key first and give up if somebody else has it: then the dispatch stays queued.
//! All locks are taken before anything is written, so that what comes back later finds no trace of its first try.
mod executions;
mod limits;
mod mode;
mod window;

use automation_core::condition::Condition;
use automation_core::definition::Mode;
use automation_core::expr::{Budget, ExprError};
use automation_core::gate::change::{self, Occurrence};
use automation_core::gate::{Code, key};
use automation_core::machine::text_of;
use automation_core::program::Dedup;

use super::batch::Claimer;
use super::run::from_expression;
use super::scope::RunScope;
use super::versions::Version;
use super::walk::Run;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::key_lock::{Sort, hash, try_take};
use crate::store::events::Event;
use crate::store::gates as store;
pub use limits::{Class, admit, lock_entity};
pub use mode::{is_its_turn, may_move};

/// Why a run did not get to its steps.
pub enum Refusal {
    /// It is counted, and there is no run.
    Counted(Code),
    /// The run is skipped.
    Skipped(&'static str),
    /// Too many executions: the automation is paused.
    Hot,
    Failed(&'static str, PgError),
    /// It cannot be told now, because somebody else has in hand what decides.
    Later,
}

/// How a run came about.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub class: Class,
    /// It repeats a run that has passed the gates already.
    pub again: bool,
    /// Equal events are sorted out.
    pub dedups: bool,
}

/// What has passed the gates.
pub struct Passed {
    /// The run has to wait for its turn.
    pub queues: bool,
    /// The event, if the gates had something to add to it.
    pub event: Option<Event>,
}

/// Sends a run through the gates.
pub fn pass(
    claimer: &mut Claimer,
    run: &mut Run,
    version: &Version,
    event: &Event,
    origin: Origin,
) -> Result<Passed, Refusal> {
    let program = &version.program;
    let trigger = program.triggers.get(run.trigger_no as usize);
    let limits = &program.limits;
    let plain = program.condition.is_none() && program.key.is_none() && limits.dedup.is_none();
    // A filter over the event alone was evaluated when the event was routed, and so was a change that nothing else
    // decides.
    let routed = trigger.is_none_or(|trigger| trigger.is_pure_event() && trigger.window.is_none());
    let free = limits.mode == Mode::Parallel && !mode::applies(run, program) && !limits.entity_lock;
    if plain && routed && free && limits.concurrency.is_none() && !executions::apply(program, event) {
        return if limits::admit(claimer, run, program, origin.class) { passed() } else { Err(Refusal::Later) };
    }
    let scope = run.scope(version, event);
    if let Some(trigger) = trigger.filter(|trigger| !origin.again && !trigger.has_pure_change()) {
        let occurrence =
            Occurrence { tenant: event.tenant.as_deref(), entity: event.entity_id.as_deref(), changed: &event.changed };
        if change::config(trigger, &occurrence, &scope, &mut Budget::default(), None).is_err() {
            return Err(Refusal::Skipped("trigger"));
        }
    }
    let filter = trigger.and_then(|trigger| trigger.filter.as_ref()).filter(|filter| !filter.is_pure_event());
    ask(filter.filter(|_| !origin.again), "filter", &scope)?;
    name(run, version, &scope)?;
    // Locks, then decisions.
    let counted =
        trigger.filter(|_| !origin.again).and_then(|trigger| window::Counted::of(run, trigger, event, &scope));
    let dedup = limits.dedup.as_ref().filter(|_| origin.dedups && !origin.again);
    let dedup = dedup.and_then(|dedup| Some((dedup, dedup_key(dedup, run, &scope)?)));
    let judged = executions::of(program, event, run).filter(|_| !origin.again);
    let locked = counted.as_ref().is_none_or(window::Counted::lock)
        && dedup.as_ref().is_none_or(|(_, key)| try_take(Sort::Dedup, lock_of(run, key)))
        && judged.as_ref().is_none_or(|_| try_take(Sort::Executions, i64::from(run.automation_id)))
        && limits::lock_entity(run, program)
        && limits::admit(claimer, run, program, origin.class);
    let place = if locked { mode::lock(claimer, run, program) } else { None };
    let Some(place) = place else { return Err(Refusal::Later) };
    let event = counted.map(|counted| counted.count(event)).transpose()?;
    let scope = event.as_ref().map_or(scope, |event| run.scope(version, event));
    ask(program.condition.as_ref().filter(|_| !origin.again), "condition", &scope)?;
    if let Some((dedup, key)) = &dedup {
        let now = clock::engine_now();
        if !store::claim(run.automation_id, key, run.event_id, now, now.saturating_add(dedup.ttl)) {
            return Err(Refusal::Skipped(Code::Duplicate.word()));
        }
    }
    if let Some(judged) = judged {
        judged.judge(claimer, run)?;
    }
    let queues = place.enter(claimer, run, program)?;
    Ok(Passed { queues, event })
}

fn passed() -> Result<Passed, Refusal> {
    Ok(Passed { queues: false, event: None })
}

/// Asks a condition, if there is one.
fn ask(condition: Option<&Condition>, reason: &'static str, scope: &RunScope<'_>) -> Result<(), Refusal> {
    let Some(condition) = condition else { return Ok(()) };
    match condition.holds(scope, &mut Budget::default()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::Skipped(reason)),
        Err(error) => Err(Refusal::Failed("condition_failed", from_expression(&error, &text_of(condition)))),
    }
}

/// Works out what the run is about.
fn name(run: &mut Run, version: &Version, scope: &RunScope<'_>) -> Result<(), Refusal> {
    let failed = |error: &ExprError, text: &str| Refusal::Failed("key_failed", from_expression(error, text));
    if let Some(key) = &version.program.key {
        let value = key.eval(scope, &mut Budget::default()).map_err(|error| failed(&error, key.text()))?;
        run.key = value.to_text();
    }
    let entity = run.kind.as_deref().zip(run.entity_id.as_deref());
    let key = key::run(version.program.key.as_ref(), scope, &mut Budget::default(), run.tenant.as_deref(), entity);
    run.mode_key = key;
    Ok(())
}

fn dedup_key(dedup: &Dedup, run: &Run, scope: &RunScope<'_>) -> Option<String> {
    key::dedup(&dedup.key, scope, &mut Budget::default(), run.tenant.as_deref())
}

/// The lock on one of an automation's keys.
fn lock_of(run: &Run, key: &str) -> i64 {
    hash(&[&run.automation_id.to_string(), key])
}
