//! What can be wrong with a document, and where.

use crate::expr::{ExprError, ExprErrorKind};

/// A problem in a document: where, in whose text, and what.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Path into the document, e.g. `steps[0].sql`.
    pub path: String,
    /// The same place in words, e.g. `sql of step "charge"`.
    pub place: String,
    /// The user's text that `error.span` points into, if the problem is inside one.
    pub text: Option<String>,
    /// What is wrong.
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

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.error = self.error.with_hint(hint);
        self
    }
}
