//! The `repeat_until` step: does its steps until a condition holds, at least once.

use super::form::{any, steps};
use super::{Checked, Form, Repeat, StepAction, TimeLimit, Touch, Tries, field};
use crate::condition::Condition;
use crate::definition::StepDef;
use crate::program::{Block, Compiler, Parts};

/// A loop with a condition.
#[derive(Clone, Debug)]
pub struct RepeatUntil {
    /// A round is the last if this holds after it.
    pub condition: Condition,
}

impl StepAction for RepeatUntil {
    const FORM: Form = Form {
        name: "repeat_until",
        required: &[any("until"), steps("steps")],
        optional: &[],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<RepeatUntil> {
        Some(RepeatUntil { condition: parts.condition(def.get("until"), "until")? })
    }

    fn lay_out(compiler: &mut Compiler, def: &StepDef, number: usize, path: &str, block: &Block) {
        compiler.repeat(def, number, path, block);
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("until", Checked::Condition(&self.condition))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }

    fn repeat(&self) -> Option<Repeat<'_>> {
        Some(Repeat::Until(&self.condition))
    }
}
