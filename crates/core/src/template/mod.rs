//! `text {{ expr }} text`: texts, SQL statements and JSON payloads with expressions in them.
//!
//! In a text the values are joined. In SQL they become bound parameters, in JSON they stay values; neither is ever
//! built by concatenation.

mod json;
mod sql;

pub use json::JsonTemplate;
pub use sql::SqlTemplate;

use crate::expr::{Budget, Expr, ExprError, ExprErrorKind, References, Scope};
use crate::value::Value;

/// A text with expressions in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    /// An expression and where its text starts.
    Expr(Expr, usize),
}

impl Template {
    /// Parses a text; one without `{{` is itself.
    pub fn parse(text: &str) -> Result<Template, ExprError> {
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(open) = text[at..].find("{{").map(|i| at + i) {
            if open > at {
                parts.push(Part::Text(text[at..open].to_owned()));
            }
            let (expr, start, after) = placeholder(text, open)?;
            parts.push(Part::Expr(expr, start));
            at = after;
        }
        if at < text.len() {
            parts.push(Part::Text(text[at..].to_owned()));
        }
        Ok(Template { text: text.to_owned(), parts })
    }

    /// A text that is one expression as a whole.
    pub fn expression(text: &str) -> Result<Template, ExprError> {
        Ok(Template { text: text.to_owned(), parts: vec![Part::Expr(Expr::parse(text)?, 0)] })
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text with the values in place; null is empty.
    pub fn render(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<String, ExprError> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Expr(expr, start) => {
                    let value = expr.eval(scope, budget).map_err(|e| e.shifted(*start))?;
                    let text = value.to_text().unwrap_or_default();
                    let span = *start..*start + expr.text().len();
                    budget.charge_output(text.len(), &span).map_err(|e| *e)?;
                    out.push_str(&text);
                }
            }
        }
        Ok(out)
    }

    /// The value: of the expression if there is nothing else, so that `{{ new.id }}` stays a number; else the text.
    pub fn eval(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<Value, ExprError> {
        match self.parts.as_slice() {
            [Part::Expr(expr, start)] => expr.eval(scope, budget).map_err(|e| e.shifted(*start)),
            _ => self.render(scope, budget).map(Value::text),
        }
    }

    /// The expressions inside, with the byte offsets of their texts.
    pub fn expressions(&self) -> impl Iterator<Item = (&Expr, usize)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Expr(expr, start) => Some((expr, *start)),
            Part::Text(_) => None,
        })
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether there is no expression inside.
    pub fn is_constant(&self) -> bool {
        self.expressions().next().is_none()
    }

    /// The entities the expressions read.
    pub fn references(&self) -> References {
        let mut all = References::default();
        self.expressions().for_each(|(expr, _)| all.extend(expr.references()));
        all
    }

    pub(crate) fn into_parts(self) -> Vec<Part> {
        self.parts
    }
}

/// Reads `{{ expr }}` at an offset: the expression, where its text starts, and the offset after the closing braces.
pub(crate) fn placeholder(text: &str, open: usize) -> Result<(Expr, usize, usize), ExprError> {
    let start = open + 2;
    let Some(end) = closing(text, start) else {
        return Err(ExprError::new(ExprErrorKind::Syntax, open..open + 2, "\"{{\" without \"}}\"")
            .with_hint("Close the expression with }}."));
    };
    let expr = Expr::parse(&text[start..end]).map_err(|e| e.shifted(start))?;
    Ok((expr, start, end + 2))
}

/// The offset of the `}}` that closes an expression, quotes and inner braces respected.
fn closing(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'\'' | b'"') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' && quote == b'"' { 2 } else { 1 };
                }
            }
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b'}' if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::FixedScope;
    use crate::value::Timestamp;

    fn render(text: &str) -> String {
        let scope = FixedScope::new(Value::from_json(r#"{"new": {"id": 7, "name": "Ann"}}"#).unwrap(), Timestamp(0));
        match Template::parse(text).and_then(|t| t.render(&scope, &mut Budget::default())) {
            Ok(out) => out,
            Err(e) => format!("{} at {:?}", e.message, e.span),
        }
    }

    #[test]
    fn values_take_the_place_of_their_expressions() {
        assert_eq!(render("order {{ new.id }} of {{new.name}}!"), "order 7 of Ann!");
        assert_eq!(render("nothing here"), "nothing here");
        assert_eq!(render("{{ new.missing }}"), "");
        assert_eq!(render("{{ '}}' }} {{ {\"a\": {\"b\": 1}}.a.b }}"), "}} 1");
    }

    #[test]
    fn mistakes_point_into_the_template() {
        assert_eq!(render("a {{ new.id"), "\"{{\" without \"}}\" at 2..4");
        assert_eq!(render("a {{ new.id + }}"), "syntax error at end of input at 14..14");
    }
}
