//! The `bulk` step: does its steps for each row of a query, each row in a run of its own.
//!
//! This module has the beginning of a job, the first state of a row's run, and the end of the step when the runs of all
//! rows have ended. The job itself is decided in [`crate::bulk`].

use super::form::{any, steps, text};
use super::{Action, Checked, Done, Effects, Form, Isolation, Performed, StepAction, TimeLimit, Touch, Tries, field};
use crate::bulk::{RATE_HINT, is_rate};
use crate::definition::StepDef;
use crate::expr::{Budget, Scope};
use crate::machine::{JobItem, Kept, Machine, State, Wait, WaitFor, error, with};
use crate::program::{Block, Compiler, Op, Parts, Program};
use crate::template::SqlTemplate;
use crate::value::Value;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A job over the rows of a query.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// The query that gives the rows.
    pub query: SqlTemplate,
    /// Most rows in a second.
    pub rate: Option<f64>,
    /// The instruction at which the run of a row begins.
    pub body: usize,
}

impl StepAction for Bulk {
    const FORM: Form = Form {
        name: "bulk",
        required: &[text("query"), steps("steps")],
        optional: &[any("rate")],
        retries: false,
        time_limit: TimeLimit::OfWork,
        may_wait: true,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Bulk> {
        let text = def.text("query");
        if text.trim().is_empty() {
            parts.wrong("query", &format!("query of {} is empty", parts.place), "");
            return None;
        }
        if def.steps("steps").is_empty() {
            parts.wrong("steps", &format!("{} has no steps", parts.place), "");
        }
        let query = parts.parsed(SqlTemplate::parse(text), "query", text)?;
        let rate = match def.get("rate") {
            None => None,
            Some(given) => match given.as_f64().filter(|rate| is_rate(*rate)) {
                Some(rate) => Some(rate),
                None => {
                    parts.wrong("rate", &format!("invalid rate {given} of {}", parts.place), RATE_HINT);
                    return None;
                }
            },
        };
        Some(Bulk { query, rate, body: 0 })
    }

    /// The steps of a row stand beside the instructions of the run itself, which jumps over them: the run of a row
    /// begins there.
    fn lay_out(compiler: &mut Compiler, def: &StepDef, number: usize, path: &str, block: &Block) {
        compiler.code.push(Op::Act(number));
        let jump = compiler.code.len();
        compiler.code.push(Op::Jump(0));
        let inner = compiler.lane(block);
        compiler.block(&def.steps("steps"), &format!("{path}.steps"), &inner);
        compiler.code.push(Op::Stop);
        compiler.code[jump] = Op::Jump(compiler.code.len());
        if let Action::Bulk(bulk) = &mut compiler.steps[number].action {
            bulk.body = jump + 1;
        }
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("query", Checked::Sql(&self.query))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        vec![Touch::Query("query", &self.query)]
    }
}

impl Performed for Bulk {
    const ISOLATION: Isolation = Isolation::None;

    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
        let values = effects.values(&self.query, scope, &mut Budget::default())?;
        effects.start_bulk(&self.query, &values, self.rate).map(Done::StartedJob)
    }
}

impl Action {
    /// The instruction at which the run of a row begins.
    pub(crate) fn body_of_rows(&self) -> Option<usize> {
        if let Action::Bulk(bulk) = self { Some(bulk.body) } else { None }
    }
}

/// The values of the run with the `bulk` step that the runs of rows can read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// The variables of that run.
    #[serde(default)]
    pub vars: Kept,
    /// The results of its steps so far.
    #[serde(default)]
    pub results: Vec<(String, Kept)>,
}

impl Machine<'_> {
    /// The values that the runs of rows can read, as they are now.
    pub fn surroundings(&self, thread: u32) -> Surroundings {
        let vars = self.state.threads[self.place_of(thread)].vars.clone();
        Surroundings { vars, results: self.state.results.clone() }
    }

    /// The first state of the run for one row. None if there is no such bulk step.
    pub fn start_item(program: &Program, step: usize, around: Surroundings, item: Value) -> Option<State> {
        let body = program.steps.get(step)?.action.body_of_rows()?;
        let mut state = State { results: around.results, item: Some(Kept(item)), ..State::new() };
        state.threads[0].pc = body;
        state.threads[0].vars = around.vars;
        Some(state)
    }

    /// Says that the run is one item of a bulk job.
    pub fn belongs_to(&mut self, item: Option<JobItem>) {
        self.state.job = item;
    }

    pub(crate) fn bulk_ended(
        &mut self,
        place: usize,
        wait: &Wait,
        status: &str,
        counts: Value,
        reason: Value,
        now: i64,
    ) {
        let WaitFor::Bulk { job } = wait.what else { return };
        let count = |name: &str| counts.get(name).and_then(Value::to_text).unwrap_or_else(|| "0".to_owned());
        let failed = count("failed");
        if status == "finished" && failed == "0" && count("cancelled") == "0" {
            return self.resolved(place, wait.step, Some(wait.since), counts);
        }
        let message = match status {
            "finished" if failed != "0" => format!("{failed} of {} items failed", count("total")),
            "finished" => format!("{} of {} items were cancelled", count("cancelled"), count("total")),
            "failed" => format!("the query of bulk job {job} failed"),
            other => format!("bulk job {job} was {other}"),
        };
        let text = |name: &str| reason.get(name).and_then(Value::to_text);
        let mut failure = error(&text("sqlstate").unwrap_or_else(|| "P0001".to_owned()), &message, None);
        if let Some(detail) = text("message") {
            failure = with(failure, "detail", Value::text(detail));
        }
        let given: Vec<(Arc<str>, Value)> = match &counts {
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            _ => Vec::new(),
        };
        self.state.threads[place].wait = None;
        self.try_again_or_fail(place, Some(wait.since), given, failure, now);
    }
}
