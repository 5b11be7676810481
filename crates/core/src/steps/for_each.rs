//! The `for_each` step: does its steps for each item of a list.

use super::form::{any, steps};
use super::{Checked, Form, Repeat, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::Expr;
use crate::program::{Block, Compiler, Parts};

/// A loop over a list.
#[derive(Clone, Debug)]
pub struct ForEach {
    /// The list.
    pub items: Expr,
}

impl StepAction for ForEach {
    const FORM: Form = Form {
        name: "for_each",
        required: &[any("in"), steps("steps")],
        optional: &[],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<ForEach> {
        Some(ForEach { items: parts.expression(def.get("in"), "in")? })
    }

    fn lay_out(compiler: &mut Compiler, def: &StepDef, number: usize, path: &str, block: &Block) {
        compiler.repeat(def, number, path, block);
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("in", Checked::Expr(&self.items))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }

    fn repeat(&self) -> Option<Repeat<'_>> {
        Some(Repeat::Each(&self.items))
    }
}
