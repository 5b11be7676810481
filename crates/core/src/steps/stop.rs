//! The `stop` step: ends the run.

use super::form::text;
use super::{Checked, Form, StepAction, Taken, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::Scope;
use crate::machine::{End, Machine, error};
use crate::program::{Parts, StopStatus};
use crate::template::Template;
use crate::value::Value;

/// An end of the run.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The status that the run ends with.
    pub status: StopStatus,
    /// The reason that the author gives.
    pub message: Option<Template>,
}

impl StepAction for Stop {
    const FORM: Form = Form {
        name: "stop",
        required: &[],
        optional: &[text("status"), text("message")],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Stop> {
        let status = match def.get("status").map(|_| def.text("status")) {
            None | Some("completed") => StopStatus::Completed,
            Some("failed") => StopStatus::Failed,
            Some("cancelled") => StopStatus::Cancelled,
            Some(other) => {
                let message = format!("unknown status \"{other}\" of {}", parts.place);
                parts.wrong("status", &message, "Use completed, failed or cancelled.");
                return None;
            }
        };
        let message = match def.get("message") {
            Some(_) => Some(parts.template(def.text("message"), "message")?),
            None => None,
        };
        Some(Stop { status, message })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        self.message.iter().map(|message| field("message", Checked::Template(message))).collect()
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Taken for Stop {
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope) {
        let text = self.message.as_ref().map(|message| machine.render(place, message, world));
        let text = match text.transpose() {
            Ok(text) => text,
            Err(error) => return machine.failed(place, number, error),
        };
        let told = text.as_ref().map(|text| Value::object(vec![("message".into(), Value::text(text))]));
        machine.record(number, "completed", told, None);
        let step = machine.program().steps[number].id.clone();
        // A run that has failed stays failed, however its on_failure steps end.
        if self.status == StopStatus::Failed || machine.state.failing.is_some() {
            let error = error("P0001", text.as_deref().unwrap_or("the run was stopped as failed"), None);
            return machine.run_failed("stopped", Some(step), error);
        }
        let cancelled = self.status == StopStatus::Cancelled;
        let error = cancelled.then(|| text.map(|text| error("P0001", &text, None))).flatten();
        machine.finish(End { status: self.status, reason: Some("stopped".to_owned()), step: Some(step), error });
    }
}
