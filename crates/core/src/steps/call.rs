//! The `call` step: calls a function that takes and returns jsonb.

use super::form::{any, text};
use super::{Checked, Done, Effects, Form, Isolation, Performed, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::{Budget, Scope};
use crate::program::Parts;
use crate::template::JsonTemplate;

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function as the author named it.
    pub function: String,
    /// The argument of the function.
    pub args: JsonTemplate,
}

impl StepAction for Call {
    const FORM: Form = Form {
        name: "call",
        required: &[text("function")],
        optional: &[any("args")],
        retries: true,
        time_limit: TimeLimit::OfWork,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Call> {
        let args = parts.json(def.get("args"), "args")?;
        Some(Call { function: def.text("function").to_owned(), args })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("args", Checked::Json(&self.args))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        vec![Touch::Function("function", &self.function)]
    }
}

impl Performed for Call {
    const ISOLATION: Isolation = Isolation::OwnersSql;

    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
        let argument = effects.value(&self.args, scope, &mut Budget::default())?;
        effects.call(&self.function, argument).map(Done::Result)
    }
}
