//! What must hold, whatever happened.

use crate::actors::Simulation;
use crate::database::*;
use crate::executor::{fits, key_of, world};
use automation_core::expr::Budget;
use automation_core::ids::RunId;
use automation_core::machine::{Cause, Machine, Next, State, WaitFor, Woke, error};
use automation_core::program::{Action, Program, StopStatus};
use automation_core::steps::Publish;
use automation_core::topic;
use automation_core::value::Value;
use std::collections::BTreeSet;

/// When nothing is left to be done: every run that waits has a reason to move and none to have moved, and the tables say
/// of the waits exactly what the runs say.
pub fn at_rest(simulation: &Simulation) -> Result<(), String> {
    let db = &simulation.db;
    let mut rows = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (run, live) in &db.runs {
        let world = world(simulation, *run, live.started);
        let program = &simulation.family[live.automation];
        let state: State = serde_json::from_str(&live.state).map_err(|error| error.to_string())?;
        let machine = Machine::new(program, state.clone(), *run as u64, key_of(*run));
        let waits = waits(&state);
        if waits.is_empty() {
            return Err(format!("run {run} waits for nothing"));
        }
        for wait in waits {
            let place = format!("wait {} of run {run} at step {}", wait.no, program.steps[wait.step].id);
            numbers.insert((*run, wait.no));
            let sources = sources(&machine, &wait, &world);
            if let Some(due) = wait.due
                && !db.timers.contains(&(due, *run, wait.no, TimerKind::Due))
            {
                return Err(format!("{place} has lost its timer"));
            }
            let looks = db.timers.iter().any(|timer| (timer.1, timer.2, timer.3) == (*run, wait.no, TimerKind::Look));
            if sources.is_empty() && wait.due.is_none() && !looks {
                return Err(format!("{place} has no reason to move"));
            }
            rows.extend(sources.into_iter().map(|source| (*run, wait.no, source)));
            let wakes = |cause: Cause, event: Option<Value>| {
                let mut trial = Machine::new(program, state.clone(), *run as u64, key_of(*run));
                trial.wake(wait.no, cause, &World { event, ..world.clone() }) == Woke::Moved
            };
            let missed = match &wait.what {
                WaitFor::Event { topic } => db.events.iter().any(|(id, event)| match event {
                    Event::Emitted { topic: name, n } => {
                        !live.seen.get(&wait.no).is_some_and(|seen| seen.contains(id))
                            && topic::matches(topic, name)
                            && wakes(Cause::Event, Some(event_value(name, *n)))
                    }
                    _ => false,
                }),
                WaitFor::Signal { .. } => db.signals.values().any(|signal| fits(&wait, signal)),
                WaitFor::Run { run } => db.ended.contains_key(&run.0),
                _ => wakes(Cause::Timer, None),
            };
            if missed {
                return Err(format!("{place} has missed what it waits for: {:?}", wait.what));
            }
        }
    }
    if rows != db.index {
        let strange: Vec<_> = rows.symmetric_difference(&db.index).collect();
        return Err(format!("the wake-index does not match the waits: {strange:?}"));
    }
    match db.timers.iter().find(|timer| !numbers.contains(&(timer.1, timer.2))) {
        Some(timer) => Err(format!("a timer is left of a wait that is over: {timer:?}")),
        None => Ok(()),
    }
}

/// Makes the moves of a run again, with one machine that is never put away: it must do the same.
pub fn replay(program: &Program, run: i64, moves: &[Move], status: &str, output: &Value) -> Result<(), String> {
    let mut machine = Machine::new(program, State::new(), run as u64, key_of(run));
    let mut end = None;
    for made in moves {
        if let Some(cause) = made.cause.clone()
            && machine.wake(made.wait, cause, &made.world) != Woke::Moved
        {
            return Err(format!("run {run} would not have moved: {:?}", made.cause));
        }
        let world = World { event: None, ..made.world.clone() };
        let mut outcomes = made.outcomes.iter().peekable();
        loop {
            let (thread, step) = match machine.advance(&world) {
                Next::Suspend => break,
                Next::End(how) => {
                    end = Some(how);
                    break;
                }
                Next::Act { thread, step } => (thread, step),
            };
            let made = outcomes.next();
            let again = match made {
                Some(Performed::Failed(_)) => {
                    machine.fail(thread, error("22012", "by chance", None), world.now);
                    Performed::Failed(step)
                }
                Some(Performed::Started(_, child)) => {
                    machine.wait_for_run(thread, RunId(*child), world.now);
                    Performed::Started(step, *child)
                }
                _ => {
                    let path = match &program.steps[step].action {
                        Action::Publish(Publish { payload, .. }) => {
                            payload.eval(&machine.scope(thread, &world), &mut Budget::default()).ok()
                        }
                        _ => None,
                    };
                    let path = path.and_then(|value| value.get("path")?.to_text()).unwrap_or_default();
                    machine.succeed(thread, Value::object(vec![("n".into(), Value::int(1))]));
                    Performed::Done(step, path)
                }
            };
            if made != Some(&again) {
                return Err(format!("run {run} did {made:?}, but {again:?} without waiting"));
            }
            if outcomes.next_if(|next| **next == Performed::Paused).is_some() {
                machine.pause_here(world.now);
            }
        }
        if let Some(left) = outcomes.next() {
            return Err(format!("run {run} would not have done {left:?}"));
        }
    }
    let found = end.map(|end| match end.status {
        StopStatus::Completed => "completed",
        StopStatus::Failed => "failed",
        StopStatus::Cancelled => "cancelled",
    });
    if found != Some(status) || machine.output().to_json() != output.to_json() {
        return Err(format!("run {run} ended as {status} with {}, but {found:?} without waiting", output.to_json()));
    }
    Ok(())
}
