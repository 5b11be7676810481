//! The `wait_signal` step: waits for a signal.

use super::form::{any, text};
use super::{Checked, Form, StepAction, Taken, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::Scope;
use crate::machine::{Machine, WaitFor, error};
use crate::program::Parts;
use crate::template::Template;
use crate::value::Value;

/// Most bytes of a signal's name, and of its key.
pub const MAX_SIGNAL: usize = 1000;

/// A wait for a signal.
#[derive(Clone, Debug)]
pub struct WaitSignal {
    /// Of this name.
    pub signal: Template,
    /// With this key; the run's own if it is not given.
    pub key: Option<Template>,
}

impl StepAction for WaitSignal {
    const FORM: Form = Form {
        name: "wait_signal",
        required: &[text("signal")],
        optional: &[text("key"), any("continue_on_timeout")],
        retries: false,
        time_limit: TimeLimit::OfWait,
        may_wait: true,
        tells_wait: true,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<WaitSignal> {
        let signal = parts.template(def.text("signal"), "signal")?;
        if def.text("signal").trim().is_empty() {
            parts.wrong("signal", &format!("signal of {} is empty", parts.place), "");
        }
        for (field, words) in [("signal", "the name"), ("key", "the key")] {
            if def.text(field).len() > MAX_SIGNAL && !def.text(field).contains("{{") {
                parts.wrong(field, &format!("{words} of a signal has at most {MAX_SIGNAL} bytes"), "");
            }
        }
        let key = match def.get("key") {
            Some(_) => Some(parts.template(def.text("key"), "key")?),
            None => None,
        };
        Some(WaitSignal { signal, key })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        let key = self.key.iter().map(|key| field("key", Checked::Template(key)));
        [field("signal", Checked::Template(&self.signal))].into_iter().chain(key).collect()
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Taken for WaitSignal {
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope) {
        let now = world.now().0;
        let name = machine.render(place, &self.signal, world);
        let key = match &self.key {
            Some(key) => machine.render(place, key, world).map(Some),
            None => Ok(machine.key().map(str::to_owned)),
        };
        match name.and_then(|name| Ok((name, key?))).and_then(|(name, key)| signal_of(name, key)) {
            Ok(what) => {
                let due = machine.timeout_of(number, now);
                machine.suspend(place, number, what, now, due);
            }
            Err(error) => machine.failed(place, number, error),
        }
    }
}

/// Only a signal that signal() can send can be waited for.
fn signal_of(name: String, key: Option<String>) -> Result<WaitFor, Value> {
    if name.trim().is_empty() || name.len() > MAX_SIGNAL {
        return Err(error("22023", &format!("the name of a signal has 1 to {MAX_SIGNAL} bytes"), None));
    }
    if key.as_ref().is_some_and(|key| key.len() > MAX_SIGNAL) {
        return Err(error("22023", &format!("the key of a signal has at most {MAX_SIGNAL} bytes"), None));
    }
    Ok(WaitFor::Signal { name, key })
}
