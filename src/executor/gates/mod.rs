//! The gates between an event and a run. The router has decided all that depends on the event alone; the rest is
//! decided here, in the order config -> filter -> window -> hold_for -> condition -> dedup -> hot flow -> mode and
//! limits.
//!
//! Gates that count or exclude lock their key first and give up if another transaction holds it: then the dispatch
//! stays queued. All locks are taken before anything is written, so that a dispatch that is tried again finds no trace
//! of its first try.
mod executions;
mod limits;
mod mode;
mod window;

use automation_core::condition::Condition;
use automation_core::definition::Mode;
use automation_core::expr::{Budget, ExprError};
use automation_core::gate::change::Occurrence;
use automation_core::gate::{Code, key};
use automation_core::ids::AutomationId;
use automation_core::machine::text_of;
use automation_core::program::Dedup;

use super::claimer::Claimer;
use crate::definitions::numeric;
use crate::definitions::versions::Version;
use crate::event_log::events::Event;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::key_lock::{Sort, hash, try_take};
use crate::router::key_of;
use crate::runs::error::from_expression;
use crate::runs::run::Run;
use crate::runs::scope::RunScope;
use crate::store::gates as store;
pub use limits::{Class, admit, lock_entity};
pub use mode::{is_its_turn, may_move};

/// Why a run did not get to its steps.
pub enum Refusal {
    /// The refusal is counted, and there is no run.
    Counted(Code),
    /// The run is skipped.
    Skipped(&'static str),
    /// Too many executions: the automation is paused.
    Hot,
    Failed(&'static str, PgError),
    /// Not decidable now, because the key is locked by another transaction.
    Later,
}

/// How a run came about.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub class: Class,
    /// The run repeats a run that has passed the gates already.
    pub again: bool,
    /// The gate `dedup` sorts out equal events.
    pub dedups: bool,
    /// Windows and limits of executions count the run.
    pub counts: bool,
}

/// The result for a run that has passed the gates.
pub struct Passed {
    /// The run has to wait for its turn.
    pub queues: bool,
    /// The event, if the gates added fields to it.
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
    // A filter over the event alone was evaluated when the event was routed, and so was a change that depends on
    // nothing else.
    let routed = trigger.is_none_or(|trigger| trigger.is_pure_event() && trigger.window.is_none());
    let free = limits.mode == Mode::Parallel && !mode::applies(run, program) && !limits.entity_lock;
    if plain && routed && free && limits.concurrency.is_none() && !executions::apply(program, event) {
        let admitted = limits::admit(claimer, run, program, origin.class);
        return if admitted { Ok(Passed { queues: false, event: None }) } else { Err(Refusal::Later) };
    }
    let counted = if origin.again { None } else { configured(run, version, event)?.filter(|_| origin.counts) };
    if counted.as_ref().is_some_and(|counted| !counted.lock()) {
        return Err(Refusal::Later);
    }
    // The window counts when all locks are held, and its count may decide the condition.
    let may_restart = counted.is_none();
    let reserved = reserve(claimer, run, version, event, origin, may_restart)?;
    let event = counted.map(|counted| counted.count(event)).transpose()?;
    if !origin.again {
        let scope = run.scope(version, event.as_ref().unwrap_or(reserved.event));
        ask(program.condition.as_ref(), "condition", &scope)?;
    }
    let queues = reserved.enter(claimer, run, version)?;
    Ok(Passed { queues, event })
}

/// Passes the gates before `hold_for`. Returns the event if they added fields to it.
pub fn before_hold(run: &Run, version: &Version, event: &Event) -> Result<Option<Event>, Refusal> {
    let Some(counted) = configured(run, version, event)? else { return Ok(None) };
    if counted.lock() { counted.count(event).map(Some) } else { Err(Refusal::Later) }
}

/// Decides the parts of config and filter that the router could not, and returns the occurrence that the window counts.
fn configured<'v>(run: &Run, version: &'v Version, event: &Event) -> Result<Option<window::Counted<'v>>, Refusal> {
    let Some(trigger) = version.program.triggers.get(run.trigger_no as usize) else { return Ok(None) };
    let filter = trigger.filter.as_ref().filter(|filter| !filter.is_pure_event());
    if trigger.has_pure_change() && filter.is_none() && trigger.window.is_none() {
        return Ok(None);
    }
    let scope = run.scope(version, event);
    if !trigger.has_pure_change() {
        let occurrence =
            Occurrence { tenant: event.tenant.as_deref(), entity: event.entity_id.as_deref(), changed: &event.changed };
        let budget = &mut Budget::default();
        if numeric::config(run.automation_id, trigger, || key_of(event), &occurrence, &scope, budget).is_err() {
            return Err(Refusal::Skipped("trigger"));
        }
    }
    ask(filter, "filter", &scope)?;
    Ok(window::Counted::of(run, trigger, event, &scope))
}

/// The locks and the place that a run has obtained for the gates behind the condition.
pub struct Reserved<'a> {
    event: &'a Event,
    dedup: Option<(i64, String)>,
    judged: Option<executions::Judged>,
    place: mode::Place,
}

/// Takes the locks for the gates behind the condition. Nothing is written yet, with one exception: in mode `restart`,
/// if `may_restart`, an executing run is ended for this one.
pub fn reserve<'a>(
    claimer: &mut Claimer,
    run: &mut Run,
    version: &Version,
    event: &'a Event,
    origin: Origin,
    may_restart: bool,
) -> Result<Reserved<'a>, Refusal> {
    let program = &version.program;
    let scope = run.scope(version, event);
    name(run, version, &scope)?;
    let dedup = program.limits.dedup.as_ref().filter(|_| origin.dedups && !origin.again);
    let dedup = dedup.and_then(|dedup| Some((dedup.ttl, dedup_key(dedup, run, &scope)?)));
    let judged = if origin.counts && !origin.again { executions::of(program, event, run) } else { None };
    let locked = dedup.as_ref().is_none_or(|(_, key)| try_take(Sort::Dedup, lock_of(run.automation_id, key)))
        && judged.as_ref().is_none_or(|judged| judged.lock(run))
        && limits::lock_entity(run, program)
        && limits::admit(claimer, run, program, origin.class);
    let place = if locked {
        let scope = (program.limits.mode == Mode::Restart).then(|| run.scope(version, event));
        let holds = |scope: &RunScope<'_>| origin.again || ask(program.condition.as_ref(), "condition", scope).is_ok();
        // An event that starts no run, or may be equal to an earlier one, interrupts no run.
        let may_start = || may_restart && dedup.is_none() && scope.as_ref().is_some_and(holds);
        mode::lock(claimer, run, program, may_start)
    } else {
        None
    };
    Ok(Reserved { event, dedup, judged, place: place.ok_or(Refusal::Later)? })
}

impl Reserved<'_> {
    /// Passes the gates. True if the run has to wait for its turn.
    pub fn enter(self, claimer: &mut Claimer, run: &Run, version: &Version) -> Result<bool, Refusal> {
        if let Some((ttl, key)) = &self.dedup {
            let now = clock::engine_now();
            if !store::claim(run.automation_id, key, run.event_id, now, now.saturating_add(*ttl)) {
                return Err(Refusal::Skipped(Code::Duplicate.word()));
            }
        }
        if let Some(judged) = self.judged {
            judged.judge(claimer, run)?;
        }
        self.place.enter(claimer, run, &version.program)
    }
}

/// Evaluates a condition, if there is one.
fn ask(condition: Option<&Condition>, reason: &'static str, scope: &RunScope<'_>) -> Result<(), Refusal> {
    let Some(condition) = condition else { return Ok(()) };
    match condition.holds(scope, &mut Budget::default()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::Skipped(reason)),
        Err(error) => Err(Refusal::Failed("condition_failed", from_expression(&error, &text_of(condition)))),
    }
}

/// Computes the keys of the run.
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

/// The number of the lock on one of an automation's keys.
pub fn lock_of(automation: AutomationId, key: &str) -> i64 {
    hash(&[&automation.to_string(), key])
}
