//! The expression language from SQL.
use automation_core::condition::Condition;
use automation_core::expr::{Budget, Expr, FixedScope};
use automation_core::value::Value;
use pgrx::JsonB;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::clock;
use crate::scope::instant;

/// Evaluates an expression over given values.
#[pg_extern(stable)]
fn evaluate(expr: &str, scope: default!(JsonB, "'{}'")) -> Result<Option<JsonB>, ErrorReport> {
    evaluate_expression(expr, &scope.0).or_report()
}

fn evaluate_expression(text: &str, scope: &serde_json::Value) -> EngineResult<Option<JsonB>> {
    let report = |error| EngineError::expression("expression", text, &error);
    let expr = Expr::parse(text).map_err(report)?;
    let scope = FixedScope::new(Value::from_serde(scope), instant(clock::now()));
    let value = expr.eval(&scope, &mut Budget::default()).map_err(report)?;
    if value.is_null() {
        return Ok(None);
    }
    let json = serde_json::from_str(&value.to_json()).map_err(|error| EngineError::bug(error.to_string()))?;
    Ok(Some(JsonB(json)))
}

/// Which entities a condition reads: what a wait on it would be woken by.
#[pg_extern(immutable)]
#[allow(clippy::type_complexity)]
fn extract_refs(
    condition: &str,
) -> Result<
    TableIterator<'static, (name!(ref_, String), name!(kind, String), name!(entity_id, Option<String>))>,
    ErrorReport,
> {
    let parsed = Condition::parse_text(condition)
        .map_err(|error| EngineError::expression("condition", condition, &error))
        .or_report()?;
    let rows: Vec<_> = parsed
        .references()
        .entities
        .into_iter()
        .map(|entity| (entity.to_string(), entity.kind.clone(), entity.id.clone()))
        .collect();
    Ok(TableIterator::new(rows))
}

/// Does a topic match a pattern? `*` is one segment or part of one, `#` any number of segments.
#[pg_extern(immutable, parallel_safe)]
fn match_topic(pattern: &str, topic: &str) -> Result<bool, ErrorReport> {
    automation_core::topic::validate(pattern)
        .map_err(|error| EngineError::expression("topic pattern", pattern, &error))
        .or_report()?;
    Ok(automation_core::topic::matches(&automation_core::topic::canonical(pattern), topic))
}

/// Does a payload match a JSON-Pointer filter such as {"/total": {"gt": 100}}?
#[pg_extern(immutable)]
fn match_filter(filter: JsonB, payload: JsonB) -> Result<bool, ErrorReport> {
    let text = filter.0.to_string();
    let report = |error| EngineError::expression("filter", &text, &error);
    let condition = Condition::from_json(&filter.0).map_err(report).or_report()?;
    let scope =
        FixedScope::new(Value::object(vec![("payload".into(), Value::from_serde(&payload.0))]), instant(clock::now()));
    condition.holds(&scope, &mut Budget::default()).map_err(report).or_report()
}
