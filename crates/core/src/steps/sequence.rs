//! The `sequence` step: does its steps one after the other.

use super::form::steps;
use super::{Checked, Form, StepAction, TimeLimit, Touch, Tries};
use crate::definition::StepDef;
use crate::program::{Block, Compiler, Parts};

/// Steps one after the other.
#[derive(Clone, Debug)]
pub struct Sequence;

impl StepAction for Sequence {
    const FORM: Form = Form {
        name: "sequence",
        required: &[steps("steps")],
        optional: &[],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(_def: &StepDef, _tries: &mut Tries, _parts: &mut Parts<'_>) -> Option<Sequence> {
        Some(Sequence)
    }

    fn lay_out(compiler: &mut Compiler, def: &StepDef, number: usize, path: &str, block: &Block) {
        let begin = compiler.begin(number);
        let inner = compiler.inside(block, number, 0);
        compiler.local(&def.steps("steps"), &format!("{path}.steps"), &inner);
        compiler.end(begin, number);
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        Vec::new()
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}
