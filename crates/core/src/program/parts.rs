//! Reading the texts of one step or trigger, with every problem told where it stands.

use super::retry::length;
use crate::condition::Condition;
use crate::definition::{Problem, StepDef};
use crate::expr::{Expr, ExprError};
use crate::template::{JsonTemplate, Template};
use crate::value::Duration;
use serde_json::Value as Json;

/// A step, or another part of a document that has texts, and the list to which problems with it are added.
pub(crate) struct Parts<'a> {
    /// Its path in the document.
    pub path: String,
    /// The same in words, e.g. `step "charge"`.
    pub place: String,
    /// Problems found so far.
    pub problems: &'a mut Vec<Problem>,
}

impl Parts<'_> {
    /// Adds a problem: a field has a value that it cannot have.
    pub fn wrong(&mut self, field: &str, message: &str, hint: &str) {
        let problem = Problem::shape(self.path_of(field), &self.place, message);
        self.problems.push(if hint.is_empty() { problem } else { problem.hint(hint) });
    }

    /// Adds a problem with an error that its caller was given.
    pub fn refuse(&mut self, field: &str, error: ExprError) {
        self.problems.push(Problem { path: self.path_of(field), place: self.place.clone(), text: None, error });
    }

    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    fn words_of(&self, field: &str) -> String {
        if self.place.is_empty() { field.to_owned() } else { format!("{field} of {}", self.place) }
    }

    /// The result of parsing `text`, or a problem that points into it.
    pub fn parsed<T>(&mut self, result: Result<T, ExprError>, field: &str, text: &str) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let (path, place) = (self.path_of(field), self.words_of(field));
                self.problems.push(Problem { path, place, text: Some(text.to_owned()), error });
                None
            }
        }
    }

    /// A condition in any of its forms.
    pub fn condition(&mut self, given: Option<&Json>, field: &str) -> Option<Condition> {
        let given = given?;
        let result = match given {
            Json::String(text) => Condition::parse_text(text),
            other => Condition::from_json(other),
        };
        self.parsed(result, field, &shown(given))
    }

    /// A text that may hold `{{ }}`.
    pub fn template(&mut self, text: &str, field: &str) -> Option<Template> {
        self.parsed(Template::parse(text), field, text)
    }

    /// An expression; a number, true, a list or an object stand for themselves.
    pub fn expression(&mut self, given: Option<&Json>, field: &str) -> Option<Expr> {
        let text = shown(given?);
        let trimmed = text.trim();
        // `{{ x }}` means x: authors that know templates write it so
        let inner = trimmed.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        self.parsed(Expr::parse(inner.unwrap_or(&text)), field, &text)
    }

    /// A payload: text is parsed as an expression, anything else is a document whose texts may hold `{{ }}`.
    pub fn json(&mut self, given: Option<&Json>, field: &str) -> Option<JsonTemplate> {
        let empty = Json::Object(serde_json::Map::new());
        let given = given.unwrap_or(&empty);
        let result = match given {
            Json::String(text) => JsonTemplate::parse(text),
            other => JsonTemplate::from_json(other),
        };
        self.parsed(result, field, &shown(given))
    }

    /// A duration as text, or as `{"duration": 15, "unit": "minutes"}`, in microseconds.
    pub fn duration(&mut self, given: &Json, field: &str) -> Option<i64> {
        self.length(given, field).map(|duration| duration.total_micros() as i64)
    }

    /// As [`Parts::duration`], with months and days kept apart.
    pub fn length(&mut self, given: &Json, field: &str) -> Option<Duration> {
        match duration_text(given).as_deref().and_then(length) {
            Some(duration) => Some(duration),
            None => {
                let shown = shown(given);
                let hint = "A duration is like '15 minutes' or 'PT15M'; it is not negative and below 10000 years.";
                self.wrong(field, &format!("invalid duration \"{shown}\" in {}", self.words_of(field)), hint);
                None
            }
        }
    }
}

/// The text of a duration in either form.
pub(crate) fn duration_text(given: &Json) -> Option<String> {
    match given {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(format!("{number} seconds")),
        Json::Object(fields) if fields.len() == 2 => {
            let unit = fields.get("unit")?.as_str()?;
            match fields.get("duration")? {
                Json::Number(number) => Some(format!("{number} {unit}")),
                Json::String(text) => Some(format!("{text} {unit}")),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The text in which a caret can point.
pub(crate) fn shown(given: &Json) -> String {
    match given {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The parts of a step.
pub(super) fn of_step<'a>(step: &StepDef, path: &str, problems: &'a mut Vec<Problem>) -> Parts<'a> {
    Parts { path: path.to_owned(), place: format!("step \"{}\"", step.id()), problems }
}
