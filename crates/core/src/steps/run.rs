//! The `run` step: starts another automation and waits for its end.

use super::form::{any, text};
use super::{Action, Checked, Done, Effects, Form, Isolation, Performed, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::{Budget, Scope};
use crate::machine::{Machine, Wait, WaitFor};
use crate::program::Parts;
use crate::template::JsonTemplate;
use crate::value::Value;
use std::sync::Arc;

/// A run of another automation.
#[derive(Clone, Debug)]
pub struct Run {
    /// The name of the automation.
    pub automation: String,
    /// The payload it is started with.
    pub args: JsonTemplate,
}

impl StepAction for Run {
    const FORM: Form = Form {
        name: "run",
        required: &[text("automation")],
        optional: &[any("args")],
        retries: true,
        time_limit: TimeLimit::OfWork,
        may_wait: true,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Run> {
        let args = parts.json(def.get("args"), "args")?;
        Some(Run { automation: def.text("automation").to_owned(), args })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("args", Checked::Json(&self.args))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        vec![Touch::Automation(&self.automation)]
    }
}

impl Performed for Run {
    const ISOLATION: Isolation = Isolation::None;

    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
        let payload = effects.value(&self.args, scope, &mut Budget::default())?;
        effects.start_run(&self.automation, &payload).map(Done::StartedRun)
    }
}

/// The run that a step has started has ended, with this status, result and error.
pub(crate) fn ended(
    machine: &mut Machine<'_>,
    place: usize,
    wait: &Wait,
    status: &str,
    output: Value,
    reason: &Value,
    now: i64,
) {
    let WaitFor::Run { run } = wait.what else { return };
    let entry = |name: &str, value: Value| (Arc::from(name), value);
    let fields =
        vec![entry("run_id", Value::int(run.0)), entry("status", Value::text(status)), entry("result", output)];
    if status == "completed" || status == "skipped" {
        return machine.resolved(place, wait.step, Some(wait.since), Value::object(fields));
    }
    let Action::Run(Run { automation, .. }) = &machine.program().steps[wait.step].action else { return };
    let message = format!("run {run} of automation \"{automation}\" {status}");
    let mut failure = vec![
        entry("sqlstate", reason.get("sqlstate").cloned().unwrap_or_else(|| Value::text("P0001"))),
        entry("message", Value::text(message)),
    ];
    if let Some(inner) = reason.get("message") {
        failure.push(entry("detail", inner.clone()));
    }
    machine.state.threads[place].wait = None;
    machine.try_again_or_fail(place, Some(wait.since), fields, Value::object(failure), now);
}
