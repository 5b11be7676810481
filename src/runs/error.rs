//! Errors of runs in the form in which the history stores them.
use automation_core::expr::ExprError;

use crate::pg::catch::PgError;

pub fn from_expression(error: &ExprError, text: &str) -> PgError {
    let context = (!text.is_empty()).then(|| format!("expression {text}"));
    PgError {
        detail: error.detail.clone(),
        hint: error.hint.clone(),
        context,
        ..PgError::new("22023", error.message.clone())
    }
}

/// An error as the JSON that the history stores.
pub fn error_json(error: &PgError, step: Option<&str>) -> String {
    let mut fields = serde_json::Map::new();
    fields.insert("sqlstate".into(), error.sqlstate.clone().into());
    fields.insert("message".into(), clean(&error.message).into());
    for (name, value) in [("detail", &error.detail), ("hint", &error.hint), ("context", &error.context)] {
        if let Some(value) = value {
            fields.insert(name.into(), clean(value).into());
        }
    }
    if let Some(step) = step {
        fields.insert("step".into(), step.into());
    }
    serde_json::Value::Object(fields).to_string()
}

/// Shortens a text to about a screenful.
fn clean(text: &str) -> String {
    const MOST: usize = 4000;
    if text.len() <= MOST {
        return text.to_owned();
    }
    let end = (0..=MOST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}
