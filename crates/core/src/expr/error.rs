//! The one error type of the language: what is wrong, where, and what to write instead.

use std::fmt;
use std::ops::Range;

/// What kind of mistake it is; decides the SQLSTATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExprErrorKind {
    /// The text does not parse.
    Syntax,
    /// A root, column or entity kind that does not exist.
    UnknownName,
    /// A function that does not exist, or exists with other arguments.
    UnknownFunction,
    /// Values of the wrong type meet.
    TypeMismatch,
    /// The text is too long or nested too deeply.
    TooComplex,
    /// Evaluation used up its steps, depth or output.
    BudgetExceeded,
    /// A value that cannot be: a number out of range, a division by zero, a malformed pattern.
    InvalidValue,
    /// A field of a structured condition that is unknown or malformed.
    InvalidField,
    /// The state of an entity could not be read.
    State,
}

/// An error with its place in the user's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// What kind of mistake it is.
    pub kind: ExprErrorKind,
    /// Byte offsets into the text that was parsed; empty at the end of the text.
    pub span: Range<usize>,
    /// Lower case, no full stop.
    pub message: String,
    /// Facts, in full sentences.
    pub detail: Option<String>,
    /// What to write instead, in a full sentence.
    pub hint: Option<String>,
    /// The text the span points into, if it is only a part of what was given, such as a string in a JSON document.
    pub within: Option<String>,
}

impl ExprError {
    /// An error without detail or hint.
    pub fn new(kind: ExprErrorKind, span: Range<usize>, message: impl Into<String>) -> ExprError {
        ExprError { kind, span, message: message.into(), detail: None, hint: None, within: None }
    }

    /// Adds a detail.
    pub fn with_detail(mut self, detail: impl Into<String>) -> ExprError {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> ExprError {
        self.hint = Some(hint.into());
        self
    }

    /// Adds `Did you mean "..."?` if there is a candidate.
    pub fn with_suggestion(mut self, candidate: Option<&str>) -> ExprError {
        if let Some(candidate) = candidate {
            self.hint = Some(format!("Did you mean \"{candidate}\"?"));
        }
        self
    }

    /// Says which text the span points into, unless that is already said.
    pub fn within(mut self, text: &str) -> ExprError {
        self.within.get_or_insert_with(|| text.to_owned());
        self
    }

    /// Moves the span right, for a text that sits inside a larger one.
    pub fn shifted(mut self, by: usize) -> ExprError {
        self.span = self.span.start + by..self.span.end + by;
        self
    }

    /// The line of the text with the error and a caret under it, as psql shows it.
    pub fn caret(&self, text: &str) -> String {
        let text = self.within.as_deref().unwrap_or(text);
        let at = floor_boundary(text, self.span.start);
        let line_start = text[..at].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[at..].find('\n').map_or(text.len(), |i| at + i);
        let number = text[..line_start].matches('\n').count() + 1;
        let prefix = format!("LINE {number}: ");
        let indent = prefix.chars().count() + text[line_start..at].chars().count();
        format!("{prefix}{}\n{:indent$}^", &text[line_start..line_end], "")
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExprError {}
