//! The one error type of the language: the mistake, its place, and a text to write instead.

use super::locate::{self, Step};
use std::fmt;
use std::ops::Range;

/// The kind of a mistake; decides the SQLSTATE.
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
    /// A value that is not allowed.
    InvalidValue,
    /// A division by zero.
    DivisionByZero,
    /// A number, time or duration that is too large.
    OutOfRange,
    /// A malformed regular expression.
    InvalidPattern,
    /// Syntax that is understood, but not supported.
    NotSupported,
    /// A field of a structured condition that is unknown or malformed.
    InvalidField,
    /// The state of an entity could not be read.
    State,
}

/// An error with its place in the user's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// The kind of the mistake.
    pub kind: ExprErrorKind,
    /// Byte offsets into the text that was parsed; empty at the end of the text.
    pub span: Range<usize>,
    /// Lower case, no full stop.
    pub message: String,
    /// Facts, in full sentences.
    pub detail: Option<String>,
    /// A text to write instead, in a full sentence.
    pub hint: Option<String>,
    /// The text the span points into, if it is only a part of the given text, such as a string in a JSON document.
    pub within: Option<String>,
    /// The path of the mistake in a JSON document; the span is empty if the whole value at that path is meant.
    steps: Vec<Step>,
    /// Whether the mistake is in the key at the path, not in its value.
    at_key: bool,
}

impl ExprError {
    /// An error without detail or hint.
    pub fn new(kind: ExprErrorKind, span: Range<usize>, message: impl Into<String>) -> ExprError {
        let (steps, at_key) = (Vec::new(), false);
        ExprError { kind, span, message: message.into(), detail: None, hint: None, within: None, steps, at_key }
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
        if self.within.is_none() {
            if let Some((_, at)) = self.place_in(text) {
                self.span = at..at.max(self.span.end);
            }
            self.steps.clear();
            self.within = Some(text.to_owned());
        }
        self
    }

    /// Says in which member of a JSON object the mistake is.
    pub fn in_member(mut self, key: &str) -> ExprError {
        self.steps.insert(0, Step::Key(key.to_owned()));
        self
    }

    /// Says that a key of a JSON object is the mistake.
    pub fn at_key(mut self, key: &str) -> ExprError {
        self.at_key = true;
        self.in_member(key)
    }

    /// Says in which element of a JSON list the mistake is.
    pub fn in_element(mut self, index: usize) -> ExprError {
        self.steps.insert(0, Step::Index(index));
        self
    }

    /// The path into the JSON document that was given, such as `and[1].state`; empty if there is none.
    pub fn path(&self) -> String {
        locate::path_text(&self.steps)
    }

    /// The text to point into and the byte offset to point at, given the whole text; `None` if all of a document is
    /// meant.
    pub fn place_in<'a>(&'a self, text: &'a str) -> Option<(&'a str, usize)> {
        let start = self.span.start;
        match &self.within {
            Some(within) => Some((within, start)),
            None if self.span != (0..0) => Some((text, start)),
            None if !self.steps.is_empty() => Some((text, locate::locate(text, &self.steps, self.at_key))),
            // the document as a whole is meant: there is no place to point at
            None if is_document(text) => None,
            None => Some((text, start)),
        }
    }

    /// Moves the span right, for a text that sits inside a larger one.
    pub fn shifted(mut self, by: usize) -> ExprError {
        self.span = self.span.start + by..self.span.end + by;
        self
    }

    /// The line of the text with the error and a caret under it, as psql shows it.
    pub fn caret(&self, text: &str) -> String {
        let (text, at) = self.place_in(text).unwrap_or((text, 0));
        let at = floor_boundary(text, at);
        let line_start = text[..at].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[at..].find('\n').map_or(text.len(), |i| at + i);
        let number = text[..line_start].matches('\n').count() + 1;
        let prefix = format!("LINE {number}: ");
        let indent = prefix.chars().count() + text[line_start..at].chars().count();
        format!("{prefix}{}\n{:indent$}^", &text[line_start..line_end], "")
    }
}

/// Whether a text is JSON rather than an expression or a template.
fn is_document(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with(['{', '[']) && !text.starts_with("{{")
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
