//! The form of a kind of step: its name, the fields of its own, and the facts that the rest of the engine asks about
//! it.

use crate::definition::Problem;
use serde_json::{Map, Value as Json};

/// The form of a kind of step. No fact has a default: the author of a new kind decides each.
pub struct Form {
    /// The word in `do`, which is also the name of its builder in SQL.
    pub name: &'static str,
    /// Fields that a step of this kind must have.
    pub required: &'static [Field],
    /// Fields that it may have, beside those of all steps.
    pub optional: &'static [Field],
    /// The step can fail for reasons that pass, so it takes `retry`.
    pub retries: bool,
    /// Whether the step takes `timeout`, and how long that can be.
    pub time_limit: TimeLimit,
    /// The step may suspend the run.
    pub may_wait: bool,
    /// Expressions after the step see in `wait` how it ended.
    pub tells_wait: bool,
}

/// A field of a step.
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The values it can have.
    pub holds: Holds,
}

/// The values that a field can have, as far as reading a document asks; the rest is for the compiler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Any JSON.
    Any,
    /// A text.
    Text,
    /// A list of steps.
    Steps,
    /// A list of ways, each with a condition and steps.
    Ways,
}

/// Does a kind of step take `timeout`?
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TimeLimit {
    /// The kind takes no `timeout`.
    None,
    /// The step does work that may take long. Postgres counts such a limit in milliseconds, in 31 bits.
    OfWork,
    /// The step waits, for years if need be.
    OfWait,
}

pub(super) const fn any(name: &'static str) -> Field {
    Field { name, holds: Holds::Any }
}

pub(super) const fn text(name: &'static str) -> Field {
    Field { name, holds: Holds::Text }
}

pub(super) const fn steps(name: &'static str) -> Field {
    Field { name, holds: Holds::Steps }
}

pub(super) const fn ways(name: &'static str) -> Field {
    Field { name, holds: Holds::Ways }
}

impl Form {
    /// The fields of its own, in the order in which they are checked.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> {
        self.required.iter().chain(self.optional)
    }
}

/// One step of a document while its fields are checked.
pub(crate) struct Checking<'a> {
    /// The step.
    pub step: &'a Map<String, Json>,
    /// Where it stands, e.g. `steps[0]`.
    pub path: &'a str,
    /// The same in words, e.g. `step "charge"`.
    pub place: &'a str,
    /// Problems found so far.
    pub problems: &'a mut Vec<Problem>,
}
