//! Problems of a document, each with its place.

use crate::expr::{ExprError, ExprErrorKind};

/// A problem in a document: its place, the text that holds it, and the error.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Path into the document, e.g. `steps[0].sql`.
    pub path: String,
    /// The same place in words, e.g. `sql of step "charge"`.
    pub place: String,
    /// The user's text that `error.span` points into, if the problem is inside one.
    pub text: Option<String>,
    /// The error.
    pub error: ExprError,
}

impl Problem {
    /// A problem with the document's shape rather than with a text inside it.
    pub fn shape(path: impl Into<String>, place: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem {
            path: path.into(),
            place: place.into(),
            text: None,
            error: ExprError::new(ExprErrorKind::InvalidValue, 0..0, message),
        }
    }

    /// Adds a hint: the thing to do about the problem.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.error = self.error.with_hint(hint);
        self
    }
}
