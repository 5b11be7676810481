//! The `branch` step: goes on at one of two steps.

use super::form::{any, text};
use super::{Checked, Form, StepAction, Taken, TimeLimit, Touch, Tries, field};
use crate::condition::Condition;
use crate::definition::StepDef;
use crate::expr::Scope;
use crate::machine::Machine;
use crate::program::{Parts, Target};
use crate::value::Value;

/// A branch.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The condition that decides between the two steps.
    pub condition: Condition,
    /// The target if the condition holds; the next step if it is not given.
    pub yes: Option<Target>,
    /// The target if the condition does not hold; the next step if it is not given.
    pub no: Option<Target>,
}

impl StepAction for Branch {
    const FORM: Form = Form {
        name: "branch",
        required: &[any("if")],
        optional: &[text("yes"), text("no")],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    /// The targets are found when all steps have their instructions.
    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Branch> {
        Some(Branch { condition: parts.condition(def.get("if"), "if")?, yes: None, no: None })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("if", Checked::Condition(&self.condition))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Taken for Branch {
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope) {
        let answer = match machine.holds(place, &self.condition, world) {
            Ok(answer) => answer,
            Err(error) => return machine.failed(place, number, error),
        };
        let target = if answer { &self.yes } else { &self.no };
        let mut result = vec![("answer".into(), Value::Bool(answer))];
        if let Some(target) = target {
            result.push(("to".into(), Value::text(&machine.program().steps[target.step].id)));
        }
        machine.record(number, "completed", Some(Value::object(result)), None);
        let Some(target) = target else { return machine.step_on(place) };
        for skipped in &target.skipped {
            machine.record(*skipped, "skipped", None, None);
        }
        while machine.state.threads[place].frames.len() > target.frames {
            machine.pop_frame(place);
        }
        machine.state.threads[place].pc = target.pc;
    }
}
