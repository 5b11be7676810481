//! The `parallel` step: does its steps side by side, each in a lane of its own.

use super::form::steps;
use super::{Checked, Form, StepAction, TimeLimit, Touch, Tries};
use crate::definition::StepDef;
use crate::program::{Block, Compiler, Op, Parts};

/// Lanes.
#[derive(Clone, Debug)]
pub struct Parallel;

impl StepAction for Parallel {
    const FORM: Form = Form {
        name: "parallel",
        required: &[steps("lanes")],
        optional: &[],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Parallel> {
        if def.steps("lanes").is_empty() {
            parts.wrong("lanes", &format!("{} has no lanes", parts.place), "");
        }
        Some(Parallel)
    }

    fn lay_out(compiler: &mut Compiler, def: &StepDef, number: usize, path: &str, block: &Block) {
        let begin = compiler.begin(number);
        let fork = compiler.code.len();
        compiler.code.push(Op::Fork { step: number, lanes: Vec::new(), join: 0 });
        let mut starts = Vec::new();
        for (i, lane) in def.steps("lanes").iter().enumerate() {
            starts.push(compiler.code.len());
            let inner = compiler.lane(block);
            compiler.block_of_one(lane, &format!("{path}.lanes[{i}]"), &inner);
            compiler.code.push(Op::Stop);
        }
        let here = compiler.code.len();
        compiler.code[fork] = Op::Fork { step: number, lanes: starts, join: here };
        compiler.end(begin, number);
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        Vec::new()
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}
