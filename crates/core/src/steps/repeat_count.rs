//! The `repeat_count` step: does its steps so many times.

use super::form::{any, steps};
use super::{Checked, Form, Repeat, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::Expr;
use crate::machine::MAX_ROUNDS;
use crate::program::{Block, Compiler, Parts};

/// A loop with a number of rounds.
#[derive(Clone, Debug)]
pub struct RepeatCount {
    /// How many rounds.
    pub count: Expr,
}

impl StepAction for RepeatCount {
    const FORM: Form = Form {
        name: "repeat_count",
        required: &[any("count"), steps("steps")],
        optional: &[],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<RepeatCount> {
        let given = def.get("count")?;
        if given.is_number() && given.as_u64().is_none_or(|rounds| rounds > u64::from(MAX_ROUNDS)) {
            let message = format!("count of {} is {given}, not a whole number from 0 to {MAX_ROUNDS}", parts.place);
            parts.wrong("count", &message, "");
        }
        Some(RepeatCount { count: parts.expression(Some(given), "count")? })
    }

    fn lay_out(compiler: &mut Compiler, def: &StepDef, number: usize, path: &str, block: &Block) {
        compiler.repeat(def, number, path, block);
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("count", Checked::Expr(&self.count))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }

    fn repeat(&self) -> Option<Repeat<'_>> {
        Some(Repeat::Count(&self.count))
    }
}
