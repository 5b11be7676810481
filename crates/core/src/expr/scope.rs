//! What an expression can see, and how much it may spend.

use super::error::{ExprError, ExprErrorKind};
use crate::value::{Timestamp, Unreadable, Value};
use std::borrow::Cow;
use std::ops::Range;

/// What an expression can see while it is evaluated.
pub trait Scope {
    /// The value of a root: `new`, `old`, `event`, `payload`, `vars`, `steps`, ... An error if it is there and cannot be
    /// read: an expression must not take that for null.
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable>;

    /// One member of a root, where it can be had without the whole; `None` if the root itself must be asked.
    fn member(&self, root: &str, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        let _ = (root, name);
        Ok(None)
    }

    /// The current state of an entity, null if there is none. Called once per use; the implementor remembers.
    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        let _ = (kind, id);
        Ok(Value::Null)
    }

    /// Since when a field of an entity is what it is, for `for` in a `state` condition; `None` if that is not known.
    /// The field may be a path into it, such as `address.city`. Asked only after the entity's state has been read.
    fn changed_at(&self, kind: &str, id: &str, field: &str) -> Result<Option<Timestamp>, ExprError> {
        let _ = (kind, id, field);
        Ok(None)
    }

    /// The time that `now()` returns, the same for the whole evaluation.
    fn now(&self) -> Timestamp;
}

/// A scope of given values, for tests, simulations and the SQL function `evaluate`.
#[derive(Clone, Debug)]
pub struct FixedScope {
    roots: Value,
    now: Timestamp,
}

impl FixedScope {
    /// Roots are the members of `roots`; entities are read from `roots.state.<kind>.<id>`.
    pub fn new(roots: Value, now: Timestamp) -> FixedScope {
        FixedScope { roots, now }
    }
}

impl Scope for FixedScope {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        Ok(self.roots.get(name))
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        let found = self.roots.get("state").and_then(|s| s.get(kind)).and_then(|k| k.get(id));
        Ok(found.cloned().unwrap_or_default())
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

/// How much one evaluation may spend.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Steps left; a node costs one, long texts and numbers more.
    pub steps: usize,
    /// Nesting left.
    pub depth: usize,
    /// Bytes of text, lists and objects that may still be made.
    pub output_bytes: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { steps: 100_000, depth: 512, output_bytes: 1024 * 1024 }
    }
}

impl Budget {
    /// Takes steps.
    #[inline]
    pub(crate) fn charge_steps(&mut self, steps: usize, span: &Range<usize>) -> Result<(), Box<ExprError>> {
        match self.steps.checked_sub(steps) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => Err(exceeded("steps", span).into()),
        }
    }

    /// Takes output, and the steps it took to make it.
    pub(crate) fn charge_output(&mut self, bytes: usize, span: &Range<usize>) -> Result<(), Box<ExprError>> {
        match self.output_bytes.checked_sub(bytes) {
            Some(left) => self.output_bytes = left,
            None => return Err(exceeded("output bytes", span).into()),
        }
        self.charge_steps(bytes / 64, span)
    }
}

/// The error for a budget that is used up.
pub(crate) fn exceeded(what: &str, span: &Range<usize>) -> ExprError {
    ExprError::new(ExprErrorKind::BudgetExceeded, span.clone(), format!("expression used up its budget of {what}"))
}
