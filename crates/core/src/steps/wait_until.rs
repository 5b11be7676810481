//! The `wait_until` step: waits until a condition holds.

use super::form::any;
use super::{Action, Checked, Form, StepAction, Taken, TimeLimit, Touch, Tries, field};
use crate::condition::Condition;
use crate::definition::StepDef;
use crate::expr::{Budget, Scope};
use crate::machine::{Machine, Wait, WaitFor, Woke, waited};
use crate::program::Parts;

/// A wait for a condition.
#[derive(Clone, Debug)]
pub struct WaitUntil {
    /// The wait is over when this holds.
    pub condition: Condition,
}

impl StepAction for WaitUntil {
    const FORM: Form = Form {
        name: "wait_until",
        required: &[any("until")],
        optional: &[any("continue_on_timeout")],
        retries: false,
        time_limit: TimeLimit::OfWait,
        may_wait: true,
        tells_wait: true,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<WaitUntil> {
        Some(WaitUntil { condition: parts.condition(def.get("until"), "until")? })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("until", Checked::Condition(&self.condition))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Taken for WaitUntil {
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope) {
        let now = world.now().0;
        let due = machine.timeout_of(number, now);
        let answer = self.condition.holds(&machine.scope_at(place, world), &mut Budget::default());
        match answer {
            Ok(true) => {
                let left = machine.program().steps[number].timeout_ms.map(|ms| ms * 1000);
                machine.resolved(place, number, None, waited(true, left));
            }
            Ok(false) => machine.suspend(place, number, WaitFor::Until, now, due),
            Err(error) => {
                // A condition that cannot be evaluated does not hold yet.
                machine.warn(number, error.message);
                machine.suspend(place, number, WaitFor::Until, now, due);
            }
        }
    }
}

impl Action {
    /// The condition that it waits for.
    pub fn awaited(&self) -> Option<&Condition> {
        if let Action::WaitUntil(wait) = self { Some(&wait.condition) } else { None }
    }
}

/// Evaluates the condition of a wait. A condition that holds counts more than a timeout that is over.
pub(crate) fn look(machine: &mut Machine<'_>, place: usize, wait: &Wait, over: bool, world: &dyn Scope) -> Woke {
    let Some(condition) = machine.program().steps[wait.step].action.awaited() else { return Woke::NotYet };
    let answer = condition.holds(&machine.scope_at(place, world), &mut Budget::default());
    match answer {
        Ok(true) => {
            let left = wait.due.map(|due| (due - world.now().0).max(0));
            machine.resolved(place, wait.step, Some(wait.since), waited(true, left));
            return Woke::Moved;
        }
        Ok(false) => {}
        Err(error) => machine.warn(wait.step, error.message),
    }
    if over {
        machine.timed_out(place, wait, world.now().0);
        return Woke::Moved;
    }
    Woke::NotYet
}

/// Evaluates the conditions of all waits that read the results of steps: a step in one lane may have given the result
/// that another lane waits for, or that names the entities it waits for. A wait that goes on gets a new number, so that
/// it is armed anew. Returns whether the run can move.
pub(crate) fn look_at_news(machine: &mut Machine<'_>, world: &dyn Scope) -> bool {
    let program = machine.program();
    let mut moved = false;
    for place in 0..machine.state.threads.len() {
        let Some(wait) = machine.state.threads[place].wait.clone() else { continue };
        let Some(condition) = program.steps[wait.step].action.awaited() else { continue };
        if !condition.roots().contains("steps") {
            continue;
        }
        match look(machine, place, &wait, false, world) {
            Woke::Moved => moved = true,
            Woke::Gone | Woke::NotYet => machine.suspend(place, wait.step, wait.what, wait.since, wait.due),
        }
    }
    moved
}
