//! The `require` step: ends the sequence it stands in unless a condition holds.

use super::form::any;
use super::{Checked, Form, StepAction, Taken, TimeLimit, Touch, Tries, field};
use crate::condition::Condition;
use crate::definition::StepDef;
use crate::expr::Scope;
use crate::machine::Machine;
use crate::program::Parts;
use crate::value::Value;

/// A condition for the rest of a sequence.
#[derive(Clone, Debug)]
pub struct Require {
    /// The condition that the rest of the sequence needs.
    pub condition: Condition,
    /// The instruction behind the sequence.
    pub end: usize,
}

impl StepAction for Require {
    const FORM: Form = Form {
        name: "require",
        required: &[any("if")],
        optional: &[],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    /// The end is known when the sequence has all its instructions.
    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Require> {
        Some(Require { condition: parts.condition(def.get("if"), "if")?, end: 0 })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("if", Checked::Condition(&self.condition))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Taken for Require {
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope) {
        match machine.holds(place, &self.condition, world) {
            Ok(answer) => {
                let passed = Value::object(vec![("passed".into(), Value::Bool(answer))]);
                machine.record(number, "completed", Some(passed), None);
                if answer {
                    machine.step_on(place);
                } else {
                    machine.state.threads[place].pc = self.end;
                }
            }
            Err(error) => machine.failed(place, number, error),
        }
    }
}
