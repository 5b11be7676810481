//! The `publish` step: publishes an event.

use super::form::{any, text};
use super::{Checked, Done, Effects, Form, Isolation, Performed, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::{Budget, Scope};
use crate::program::Parts;
use crate::template::{JsonTemplate, Template};

/// An event to publish.
#[derive(Clone, Debug)]
pub struct Publish {
    /// On this topic.
    pub topic: Template,
    /// With this payload.
    pub payload: JsonTemplate,
}

impl StepAction for Publish {
    const FORM: Form = Form {
        name: "publish",
        required: &[text("topic")],
        optional: &[any("payload")],
        retries: true,
        time_limit: TimeLimit::OfWork,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Publish> {
        let topic = parts.template(def.text("topic"), "topic");
        let payload = parts.json(def.get("payload"), "payload");
        Some(Publish { topic: topic?, payload: payload? })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("topic", Checked::Template(&self.topic)), field("payload", Checked::Json(&self.payload))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        vec![Touch::Topic("topic", &self.topic)]
    }
}

impl Performed for Publish {
    const ISOLATION: Isolation = Isolation::Subtransaction;

    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
        let mut budget = Budget::default();
        let topic = effects.text(&self.topic, scope, &mut budget)?;
        effects.check_topic(&topic)?;
        let payload = effects.value(&self.payload, scope, &mut budget)?;
        let event = effects.publish(&topic, &payload)?;
        Ok(Done::Result(format!("{{\"event_id\":{event}}}")))
    }
}
