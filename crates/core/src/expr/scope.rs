//! The values that an expression can read, and the budget that it may spend.

use super::error::{ExprError, ExprErrorKind};
use crate::value::{Timestamp, Unreadable, Value};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

/// The values that an expression can read while it is evaluated.
pub trait Scope {
    /// The value of a root: `new`, `old`, `event`, `payload`, `vars`, `steps`, ... An error if the root is there and
    /// cannot be read: an expression must not take that for null.
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable>;

    /// One member of a root, where it can be had without reading the whole; `None` if the root itself must be asked.
    fn member(&self, root: &str, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        let _ = (root, name);
        Ok(None)
    }

    /// The current state of an entity, null if there is none. Called once per use; the implementor remembers the state.
    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        let _ = (kind, id);
        Ok(Value::Null)
    }

    /// Since when a field of an entity has its present value, for `for` in a `state` condition; `None` if that is not
    /// known. The field may be a path into it, such as `address.city`. Asked only after the entity's state has been
    /// read.
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

/// Steps of a usual budget. At worst a step takes a microsecond or so.
const STEPS: usize = 100_000;
/// So many steps pass between two looks at the time.
const LOOK_EVERY: usize = 1_000;

/// How an evaluation learns that it takes too long, and lets the process do its other duties. The language itself has
/// no clock.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// The time that this thread has spent at work, in microseconds.
    pub spent: fn() -> u64,
    /// How long one evaluation may take, in microseconds.
    pub most: fn() -> u64,
    /// Called every thousand steps or so. It may unwind: an evaluation keeps nothing that would be left half done.
    pub serve: fn(),
}

static WATCH: OnceLock<Watch> = OnceLock::new();

/// Has all evaluations of this process watched from now on; called once.
pub fn watch_evaluations(watch: Watch) {
    // A second watch would be the same one again: the library is loaded once.
    let _ = WATCH.set(watch);
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
    /// With fewer steps left than this, the watch is looked at.
    next_look: usize,
    /// The time on the watch when it was first looked at.
    since: Option<u64>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::of(STEPS, 512, 1024 * 1024)
    }
}

impl Budget {
    /// A budget of other sizes than usual.
    pub fn of(steps: usize, depth: usize, output_bytes: usize) -> Budget {
        Budget { steps, depth, output_bytes, next_look: steps.saturating_sub(LOOK_EVERY), since: None }
    }

    /// How long the evaluation has taken, in microseconds: `None` for the many evaluations that are over before the
    /// first look at the watch. Work is charged before it is done, so the time of all costly work is in it.
    pub fn time_spent(&self) -> Option<u64> {
        let watch = WATCH.get()?;
        self.since.map(|since| (watch.spent)().saturating_sub(since))
    }

    /// Takes steps.
    #[inline]
    pub(crate) fn charge_steps(&mut self, steps: usize, span: &Range<usize>) -> Result<(), Box<ExprError>> {
        match self.steps.checked_sub(steps) {
            Some(left) => {
                self.steps = left;
                if left < self.next_look { self.look(span) } else { Ok(()) }
            }
            None => Err(exceeded("steps", span).into()),
        }
    }

    /// Takes the steps for work that is told in nanoseconds.
    #[inline]
    pub(crate) fn charge_work(&mut self, work: usize, span: &Range<usize>) -> Result<(), Box<ExprError>> {
        if work < 1024 { Ok(()) } else { self.charge_steps(work / 1024, span) }
    }

    #[cold]
    fn look(&mut self, span: &Range<usize>) -> Result<(), Box<ExprError>> {
        self.next_look = self.steps.saturating_sub(LOOK_EVERY);
        let Some(watch) = WATCH.get() else { return Ok(()) };
        (watch.serve)();
        let spent = (watch.spent)();
        if spent.saturating_sub(*self.since.get_or_insert(spent)) > (watch.most)() {
            return Err(exceeded("time", span).into());
        }
        Ok(())
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
