//! Payloads: JSON whose values are expressions, built as values.

use super::{Part, Template};
use crate::expr::{Access, Budget, Expr, ExprError, Kind, Node, References, Scope, Span, Step, locate};
use crate::value::Value;
use std::sync::Arc;

/// A payload. As text it is an expression, usually an object such as `{"order": new.id}`; as JSON its strings may
/// hold `{{ }}`. Either way the result is a value.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonTemplate {
    expr: Expr,
}

impl JsonTemplate {
    /// Parses an expression whose strings may hold `{{ }}`, or else a plain text with `{{ }}`.
    pub fn parse(text: &str) -> Result<JsonTemplate, ExprError> {
        match Expr::parse(text) {
            Ok(expr) => {
                let root = interpolated(expr.node().clone(), text)?;
                Ok(JsonTemplate { expr: Expr::from_node(text, root) })
            }
            Err(error) if !text.contains("{{") => Err(error),
            Err(error) => match Template::parse(text) {
                // a text that looks like JSON was meant as JSON, and its error as JSON is the useful one
                Ok(template) if !text.trim_start().starts_with(['{', '[']) || sole(text) => {
                    let span = Span { start: 0, end: text.len() as u32 };
                    Ok(JsonTemplate { expr: Expr::from_node(text, join(template, span, Some(0))) })
                }
                _ => Err(error),
            },
        }
    }

    /// Takes a JSON document whose strings may hold `{{ }}`; a string that is nothing else keeps the value's type.
    pub fn from_json(document: &serde_json::Value) -> Result<JsonTemplate, ExprError> {
        let text = document.to_string();
        let root = Document { text: &text, path: Vec::new() }.node(document)?;
        Ok(JsonTemplate { expr: Expr::from_node(&text, root) })
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        self.expr.text()
    }

    /// The payload as one expression.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Builds the payload.
    pub fn eval(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<Value, ExprError> {
        self.expr.eval(scope, budget)
    }

    /// The entities it reads.
    pub fn references(&self) -> References {
        self.expr.references()
    }
}

/// Whether the text is one `{{ ... }}` and nothing else.
fn sole(text: &str) -> bool {
    text.trim_start().starts_with("{{") && text.trim_end().ends_with("}}")
}

/// Reads a document whose text is known, so that mistakes can point into it.
struct Document<'a> {
    text: &'a str,
    path: Vec<Step>,
}

impl Document<'_> {
    fn node(&mut self, value: &serde_json::Value) -> Result<Node, ExprError> {
        let kind = match value {
            serde_json::Value::String(text) if text.contains("{{") => return self.template(text),
            serde_json::Value::Array(items) => {
                let items = items.iter().enumerate();
                let nodes = items.map(|(i, item)| self.inside(Step::Index(i), item).map_err(|e| e.in_element(i)));
                Kind::List(nodes.collect::<Result<_, _>>()?)
            }
            serde_json::Value::Object(map) => {
                let entries = map.iter().map(|(key, value)| {
                    let node = self.inside(Step::Key(key.clone()), value).map_err(|e| e.in_member(key))?;
                    Ok((Arc::from(key.as_str()), node))
                });
                Kind::Object(entries.collect::<Result<_, ExprError>>()?)
            }
            other => Kind::Literal(Value::from_serde(other)),
        };
        Ok(Node { kind, span: Span::default() })
    }

    fn inside(&mut self, step: Step, value: &serde_json::Value) -> Result<Node, ExprError> {
        self.path.push(step);
        let node = self.node(value);
        self.path.pop();
        node
    }

    fn template(&self, written: &str) -> Result<Node, ExprError> {
        let start = locate(self.text, &self.path, false);
        // without escapes the template stands in the text as it is
        let verbatim = self.text.get(start + 1..).is_some_and(|rest| rest.starts_with(written));
        let template = Template::parse(written).map_err(|e| match verbatim {
            true => e.shifted(start + 1),
            false => e.within(written),
        })?;
        let span = Span { start: start as u32, end: (start + 1) as u32 };
        Ok(join(template, span, verbatim.then_some(start + 1)))
    }
}

/// Replaces the literal texts of a tree that hold `{{ }}`. Only values are replaced, in the lists and objects that
/// make up the payload, and in the operands of an expression.
fn interpolated(node: Node, text: &str) -> Result<Node, ExprError> {
    let span = node.span;
    let kind = match node.kind {
        Kind::Literal(Value::Text(literal)) if literal.contains("{{") => {
            // without escapes the template stands in the text as it is
            let written = &text[span.range()];
            let verbatim = written.get(1..written.len() - 1) == Some(&*literal);
            let base = span.start as usize + 1;
            let template = Template::parse(&literal).map_err(|e| match verbatim {
                true => e.shifted(base),
                false => {
                    let mut e = e;
                    e.span = span.range();
                    e
                }
            })?;
            return Ok(join(template, span, verbatim.then_some(base)));
        }
        Kind::List(items) => Kind::List(items.into_iter().map(|n| interpolated(n, text)).collect::<Result<_, _>>()?),
        Kind::Object(entries) => Kind::Object(
            entries.into_iter().map(|(key, n)| Ok((key, interpolated(n, text)?))).collect::<Result<_, ExprError>>()?,
        ),
        Kind::Ternary(three) => {
            let (condition, yes, no) = *three;
            Kind::Ternary(Box::new((condition, interpolated(yes, text)?, interpolated(no, text)?)))
        }
        Kind::Arithmetic(first, rest) => {
            let rest =
                rest.into_iter().map(|(op, n)| Ok((op, interpolated(n, text)?))).collect::<Result<_, ExprError>>()?;
            Kind::Arithmetic(Box::new(interpolated(*first, text)?), rest)
        }
        Kind::Call(function, args) => {
            Kind::Call(function, args.into_iter().map(|n| interpolated(n, text)).collect::<Result<_, _>>()?)
        }
        other => other,
    };
    Ok(Node { kind, span })
}

/// A template as a node; a lone expression keeps its type. Spans move to `base` if the text stands there as it is.
fn join(template: Template, span: Span, base: Option<usize>) -> Node {
    let place = |expr: &Expr, start: usize| {
        let mut node = expr.node().clone();
        replace_spans(&mut node, &|inner: Span| match base {
            Some(base) => {
                let by = (base + start) as u32;
                Span { start: inner.start + by, end: inner.end + by }
            }
            None => span,
        });
        node
    };
    let mut nodes: Vec<Node> = template
        .into_parts()
        .into_iter()
        .map(|part| match part {
            Part::Text(text) => Node { kind: Kind::Literal(Value::text(text)), span },
            Part::Expr(expr, start) => place(&expr, start),
        })
        .collect();
    match (nodes.len(), nodes.pop()) {
        (1, Some(only)) => only,
        (_, Some(last)) => {
            nodes.push(last);
            Node { kind: Kind::Join(nodes), span }
        }
        (_, None) => Node { kind: Kind::Literal(Value::text("")), span },
    }
}

fn replace_spans(node: &mut Node, map: &dyn Fn(Span) -> Span) {
    node.span = map(node.span);
    if let Kind::Path(_, steps) = &mut node.kind {
        for step in steps {
            if let Access::Member(_, span) = step {
                *span = map(*span);
            }
        }
    }
    node.each_child_mut(&mut |child| replace_spans(child, map));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::FixedScope;
    use crate::value::Timestamp;

    fn scope() -> FixedScope {
        let roots = r#"{"new": {"id": 7, "total": 12345678901234567890.10, "name": "Ann \"A\""}}"#;
        FixedScope::new(Value::from_json(roots).unwrap(), Timestamp(0))
    }

    fn build(text: &str) -> String {
        match JsonTemplate::parse(text).and_then(|t| t.eval(&scope(), &mut Budget::default())) {
            Ok(value) => value.to_json(),
            Err(e) => format!("{} at {:?}", e.message, e.span),
        }
    }

    #[test]
    fn a_payload_is_built_as_values() {
        assert_eq!(
            build(r#" {"order": new.id, "total": new.total} "#),
            r#"{"order": 7, "total": 12345678901234567890.10}"#
        );
        assert_eq!(build(r#"{"m": "hi {{ new.name }}, {{ new.id }}"}"#), r#"{"m": "hi Ann \"A\", 7"}"#);
        assert_eq!(build(r#"{"id": "{{ new.id }}", "l": [new.id, null]}"#), r#"{"id": 7, "l": [7, null]}"#);
        assert_eq!(build("order {{ new.id }}"), "\"order 7\"");
        assert_eq!(build("new.id"), "7");
    }

    #[test]
    fn a_json_document_may_hold_templates() {
        let document = serde_json::json!({"a": "{{ new.id }}", "b": ["x{{ new.id }}", 1, null], "c": "plain"});
        let value = JsonTemplate::from_json(&document).unwrap().eval(&scope(), &mut Budget::default()).unwrap();
        assert_eq!(value, Value::from_json(r#"{"a": 7, "b": ["x7", 1, null], "c": "plain"}"#).unwrap());
    }

    #[test]
    fn errors_inside_a_string_point_into_it() {
        assert_eq!(build(r#"{"m": "hi {{ new.id + }}"}"#), "syntax error at end of input at 22..22");
        assert_eq!(build(r#"{"m": "hi {{ new.id / 0 }}"}"#), "division by zero at 13..23");
        assert_eq!(build(r#"{"m": new.id"#), "syntax error at end of input at 12..12");
    }
}
