//! The `repeat_while` step: does its steps while a condition holds.

use super::form::{any, steps};
use super::{Checked, Form, Repeat, StepAction, TimeLimit, Touch, Tries, field};
use crate::condition::Condition;
use crate::definition::StepDef;
use crate::program::{Block, Compiler, Parts};

/// A loop with a condition.
#[derive(Clone, Debug)]
pub struct RepeatWhile {
    /// A round begins if this holds.
    pub condition: Condition,
}

impl StepAction for RepeatWhile {
    const FORM: Form = Form {
        name: "repeat_while",
        required: &[any("while"), steps("steps")],
        optional: &[],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<RepeatWhile> {
        Some(RepeatWhile { condition: parts.condition(def.get("while"), "while")? })
    }

    fn lay_out(compiler: &mut Compiler, def: &StepDef, number: usize, path: &str, block: &Block) {
        compiler.repeat(def, number, path, block);
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("while", Checked::Condition(&self.condition))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }

    fn repeat(&self) -> Option<Repeat<'_>> {
        Some(Repeat::While(&self.condition))
    }
}
