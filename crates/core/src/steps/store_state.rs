//! The `store_state` step: gives an entity without a table its state.

use super::form::{any, text};
use super::{Checked, Done, Effects, Form, Isolation, Performed, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::{Budget, Scope};
use crate::program::Parts;
use crate::template::{JsonTemplate, Template};

/// A state to store.
#[derive(Clone, Debug)]
pub struct StoreState {
    /// The kind of the entity.
    pub kind: Template,
    /// Its id.
    pub entity: Template,
    /// Its state; null removes it.
    pub state: JsonTemplate,
}

impl StepAction for StoreState {
    const FORM: Form = Form {
        name: "store_state",
        required: &[text("kind"), text("entity"), any("state")],
        optional: &[],
        retries: true,
        time_limit: TimeLimit::OfWork,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<StoreState> {
        let kind = parts.template(def.text("kind"), "kind");
        let entity = parts.template(def.text("entity"), "entity");
        let state = parts.json(def.get("state"), "state");
        Some(StoreState { kind: kind?, entity: entity?, state: state? })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![
            field("kind", Checked::Template(&self.kind)),
            field("entity", Checked::Template(&self.entity)),
            field("state", Checked::Json(&self.state)),
        ]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        vec![Touch::State(&self.kind)]
    }
}

impl Performed for StoreState {
    const ISOLATION: Isolation = Isolation::Subtransaction;

    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
        let mut budget = Budget::default();
        let kind = effects.text(&self.kind, scope, &mut budget)?;
        let entity = effects.text(&self.entity, scope, &mut budget)?;
        let state = effects.value(&self.state, scope, &mut budget)?;
        let event = effects.store_state(&kind, &entity, &state)?;
        let event = event.map_or_else(|| "null".to_owned(), |id| id.to_string());
        Ok(Done::Result(format!("{{\"event_id\":{event}}}")))
    }
}
