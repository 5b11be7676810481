//! The `choose` step: takes the first way whose condition holds.

use super::form::{steps, ways};
use super::{Action, Checked, Form, StepAction, TimeLimit, Touch, Tries};
use crate::condition::Condition;
use crate::definition::StepDef;
use crate::program::{Block, Compiler, Op, Parts};

/// Ways to choose from.
#[derive(Clone, Debug)]
pub struct Choose {
    /// The condition of each way.
    pub ways: Vec<Condition>,
}

impl StepAction for Choose {
    const FORM: Form = Form {
        name: "choose",
        required: &[ways("whens")],
        optional: &[steps("otherwise")],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Choose> {
        let whens = def.whens();
        let ways = whens
            .iter()
            .enumerate()
            .filter_map(|(i, (when, _))| parts.condition(Some(when), &format!("whens[{i}].when")))
            .collect();
        Some(Choose { ways })
    }

    fn lay_out(compiler: &mut Compiler, def: &StepDef, number: usize, path: &str, block: &Block) {
        let begin = compiler.begin(number);
        let mut exits = Vec::new();
        for (way, (_, steps)) in def.whens().iter().enumerate() {
            let test = compiler.code.len();
            compiler.code.push(Op::Way { step: number, way, otherwise: 0 });
            let inner = compiler.inside(block, number, 0);
            compiler.local(steps, &format!("{path}.whens[{way}].steps"), &inner);
            exits.push(compiler.code.len());
            compiler.code.push(Op::Jump(0));
            let here = compiler.code.len();
            if let Op::Way { otherwise, .. } = &mut compiler.code[test] {
                *otherwise = here;
            }
        }
        let inner = compiler.inside(block, number, 0);
        compiler.local(&def.steps("otherwise"), &format!("{path}.otherwise"), &inner);
        let here = compiler.code.len();
        for exit in exits {
            compiler.code[exit] = Op::Jump(here);
        }
        compiler.end(begin, number);
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        let ways = self.ways.iter().enumerate();
        ways.map(|(i, way)| (format!("whens[{i}].when"), Checked::Condition(way))).collect()
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Action {
    /// The condition of one of its ways.
    pub(crate) fn way(&self, way: usize) -> Option<&Condition> {
        if let Action::Choose(choose) = self { choose.ways.get(way) } else { None }
    }
}
