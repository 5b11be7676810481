//! The `wait_for_event` step: waits for an event on a topic.

use super::form::{any, text};
use super::{Action, Checked, Form, StepAction, Taken, TimeLimit, Touch, Tries, field};
use crate::condition::Condition;
use crate::definition::StepDef;
use crate::expr::Scope;
use crate::machine::{Machine, Wait, WaitFor, error, fault};
use crate::program::Parts;
use crate::template::Template;
use crate::topic;
use crate::value::Value;

/// A wait for an event.
#[derive(Clone, Debug)]
pub struct WaitForEvent {
    /// On a topic that matches this.
    pub topic: Template,
    /// Only events for which this holds end the wait.
    pub filter: Option<Condition>,
    /// Events up to this many microseconds before the wait count as well.
    pub lookback: Option<i64>,
}

impl StepAction for WaitForEvent {
    const FORM: Form = Form {
        name: "wait_for_event",
        required: &[text("topic")],
        optional: &[any("filter"), any("lookback"), any("continue_on_timeout")],
        retries: false,
        time_limit: TimeLimit::OfWait,
        may_wait: true,
        tells_wait: true,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<WaitForEvent> {
        let text = def.text("topic");
        let topic = parts.template(text, "topic")?;
        if text.trim().is_empty() {
            let message = format!("topic of {} is empty", parts.place);
            parts.wrong("topic", &message, "Wait for \"#\" to take any event.");
            return None;
        }
        if topic.is_constant() {
            parts.parsed(topic::validate(text), "topic", text)?;
        }
        let filter = parts.condition(def.get("filter"), "filter");
        let lookback = match def.get("lookback") {
            Some(given) => Some(parts.duration(given, "lookback")?),
            None => None,
        };
        Some(WaitForEvent { topic, filter, lookback })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        let filter = self.filter.iter().map(|filter| field("filter", Checked::Condition(filter)));
        filter.chain([field("topic", Checked::Template(&self.topic))]).collect()
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Taken for WaitForEvent {
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope) {
        let now = world.now().0;
        let wanted = machine.render(place, &self.topic, world).and_then(|text| match topic::validate(&text) {
            Ok(()) if text.trim().is_empty() => Err(error("22023", "the topic to wait for is empty", None)),
            Ok(()) => Ok(topic::canonical(&text)),
            Err(problem) => Err(fault(&problem, &text)),
        });
        match wanted {
            Ok(topic) => {
                let due = machine.timeout_of(number, now);
                machine.suspend(place, number, WaitFor::Event { topic }, now, due);
            }
            Err(error) => machine.failed(place, number, error),
        }
    }
}

impl Action {
    /// The event that it waits for.
    pub fn awaited_event(&self) -> Option<&WaitForEvent> {
        if let Action::WaitForEvent(wait) = self { Some(wait) } else { None }
    }
}

/// Is the event that the world shows one that a wait is for? Its topic has been matched by the caller.
pub(crate) fn matches(machine: &mut Machine<'_>, place: usize, wait: &Wait, world: &dyn Scope) -> bool {
    let program = machine.program();
    let awaited = program.steps[wait.step].action.awaited_event();
    let Some(filter) = awaited.and_then(|awaited| awaited.filter.as_ref()) else { return true };
    match machine.holds(place, filter, world) {
        Ok(answer) => answer,
        Err(error) => {
            machine.warn(wait.step, error.get("message").and_then(Value::to_text).unwrap_or_default());
            false
        }
    }
}
