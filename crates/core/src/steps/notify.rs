//! The `notify` step: sends a NOTIFY.

use super::form::{any, text};
use super::{Checked, Done, Effects, Form, Isolation, Performed, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::{Budget, Scope};
use crate::program::Parts;
use crate::template::{JsonTemplate, Template};

/// A NOTIFY to send.
#[derive(Clone, Debug)]
pub struct Notify {
    /// On this channel.
    pub channel: Template,
    /// With this payload.
    pub payload: JsonTemplate,
}

impl StepAction for Notify {
    const FORM: Form = Form {
        name: "notify",
        required: &[text("channel")],
        optional: &[any("payload")],
        retries: true,
        time_limit: TimeLimit::OfWork,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Notify> {
        let channel = parts.template(def.text("channel"), "channel");
        let payload = parts.json(def.get("payload"), "payload");
        Some(Notify { channel: channel?, payload: payload? })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("channel", Checked::Template(&self.channel)), field("payload", Checked::Json(&self.payload))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Performed for Notify {
    const ISOLATION: Isolation = Isolation::Subtransaction;

    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
        let mut budget = Budget::default();
        let channel = effects.text(&self.channel, scope, &mut budget)?;
        let payload = effects.value(&self.payload, scope, &mut budget)?;
        effects.notify(&channel, &payload)?;
        Ok(Done::Result("{}".to_owned()))
    }
}
