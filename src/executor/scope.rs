//! What the expressions of a run see: the event, what the run has done so far, and the state of entities.
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use automation_core::expr::{ExprError, ExprErrorKind, Scope};
use automation_core::value::{Timestamp, Value};

use crate::capture::read;
use crate::scope::EventScope;

pub struct RunScope<'a> {
    event: EventScope<'a>,
    run: Value,
    trigger: Value,
    steps: Vec<(Arc<str>, Value)>,
    steps_value: OnceCell<Value>,
    states: RefCell<HashMap<(String, String), Value>>,
}

impl<'a> RunScope<'a> {
    pub fn new(event: EventScope<'a>, run: Value, trigger: Value) -> Self {
        let (steps, steps_value) = (Vec::new(), OnceCell::new());
        RunScope { event, run, trigger, steps, steps_value, states: RefCell::new(HashMap::new()) }
    }

    /// Adds the result of a step; later steps see it as `steps.<id>`.
    pub fn add_step(&mut self, id: &str, result: Value) {
        self.steps.push((id.into(), result));
        self.steps_value = OnceCell::new();
        // What a step wrote must be seen by the next.
        self.states.borrow_mut().clear();
    }
}

impl Scope for RunScope<'_> {
    fn root(&self, name: &str) -> Option<&Value> {
        match name {
            "run" => Some(&self.run),
            "trigger" => Some(&self.trigger),
            "steps" => Some(self.steps_value.get_or_init(|| Value::object(self.steps.clone()))),
            _ => self.event.root(name),
        }
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        let key = (kind.to_owned(), id.to_owned());
        if let Some(known) = self.states.borrow().get(&key) {
            return Ok(known.clone());
        }
        let text = read::state(kind, id)
            .map_err(|error| ExprError::new(ExprErrorKind::InvalidValue, 0..0, error.message().to_owned()))?;
        let value = text.map(|text| Value::from_json(&text).unwrap_or_default()).unwrap_or_default();
        self.states.borrow_mut().insert(key, value.clone());
        Ok(value)
    }

    fn member(&self, root: &str, name: &str) -> Option<Cow<'_, Value>> {
        self.event.member(root, name)
    }

    fn changed_at(&self, kind: &str, id: &str, field: &str) -> Result<Option<Timestamp>, ExprError> {
        Ok(super::held::changed_at(kind, id, field))
    }

    fn now(&self) -> Timestamp {
        self.event.now()
    }
}
