//! The expression language from SQL.
use automation_core::check::{self, Names};
use automation_core::condition::Condition;
use automation_core::cron::{self, Cron};
use automation_core::expr::{Budget, Expr, ExprError, ExprErrorKind, FixedScope};
use automation_core::value::Value;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::definitions::scope::instant;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::clock::{self, Micros, POSTGRES_EPOCH};
use crate::pg::jsonb::Jsonb;
use crate::pg::report;
use crate::pg::text::Text;

/// Evaluates an expression over given values.
#[pg_extern(stable)]
fn evaluate(expr: Text, scope: default!(Jsonb, "'{}'")) -> Result<Option<Jsonb>, ErrorReport> {
    let expr = &*expr;
    evaluate_expression(expr, &scope.0).or_report()
}

fn evaluate_expression(text: &str, scope: &serde_json::Value) -> EngineResult<Option<Jsonb>> {
    let report = |error| EngineError::in_text(text, &error);
    if !scope.is_object() {
        return Err(EngineError::invalid("the scope of an expression must be a JSON object")
            .hint("Write what it sees by name, as in '{\"new\": {\"status\": \"paid\"}}'."));
    }
    let expr = Expr::parse(text).map_err(report)?;
    if let Some(error) = unknown_root(&expr, scope) {
        return Err(report(error));
    }
    let scope = FixedScope::new(Value::from_serde(scope), instant(clock::now()));
    let value = expr.eval(&scope, &mut Budget::default()).map_err(report)?;
    if value.is_null() {
        return Ok(None);
    }
    let json = serde_json::from_str(&value.to_json()).map_err(|_| EngineError::too_deep())?;
    Ok(Some(Jsonb(json)))
}

/// A name that is neither one of the language nor given: most likely a slip, and not a null.
fn unknown_root(expr: &Expr, scope: &serde_json::Value) -> Option<ExprError> {
    let roots = expr.roots();
    let name = |error: &ExprError| expr.text().get(error.span.clone()).unwrap_or_default().to_owned();
    check::check_expr(expr, &Names::default())
        .into_iter()
        .filter(|error| error.kind == ExprErrorKind::UnknownName && roots.contains(&name(error)))
        .find(|error| scope.get(name(error)).is_none())
}

/// The entities that a condition reads, changes of which would wake a wait on it. Created by hand, since a column of
/// it has a name that is a keyword here.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn extract_refs(
    condition: Text,
) -> Result<
    TableIterator<'static, (name!(reference, Text), name!(kind, Text), name!(entity_id, Option<Text>))>,
    ErrorReport,
> {
    let condition = &*condition;
    let parsed =
        Condition::parse_text(condition).map_err(|error| EngineError::in_text(condition, &error)).or_report()?;
    let references = parsed.references();
    for read in &references.indeterminate {
        report::warning(format!("\"{read}\" could read entities of any kind, so no change of them can be noticed"));
    }
    let rows: Vec<_> = references
        .entities
        .into_iter()
        .map(|entity| (entity.to_string().into(), entity.kind.as_str().into(), entity.id.clone().map(Text)))
        .collect();
    Ok(TableIterator::new(rows))
}

/// Does a topic match a pattern? `*` is one segment or part of one, `#` any number of segments.
#[pg_extern(immutable, parallel_safe)]
fn match_topic(pattern: Text, topic: Text) -> Result<bool, ErrorReport> {
    let pattern = &*pattern;
    let topic = &*topic;
    automation_core::topic::validate(pattern).map_err(|error| EngineError::in_text(pattern, &error)).or_report()?;
    Ok(automation_core::topic::matches(pattern, topic))
}

/// Does a payload match a JSON-Pointer filter such as {"/total": {"gt": 100}}?
#[pg_extern(immutable)]
fn match_filter(filter: Jsonb, payload: Jsonb) -> Result<bool, ErrorReport> {
    let text = filter.0.to_string();
    let report = |error| EngineError::in_text(&text, &error);
    let condition = Condition::from_json(&filter.0).map_err(report).or_report()?;
    let scope =
        FixedScope::new(Value::object(vec![("payload".into(), Value::from_serde(&payload.0))]), instant(clock::now()));
    condition.holds(&scope, &mut Budget::default()).map_err(report).or_report()
}

/// The next times at which a cron schedule fires.
#[pg_extern(stable)]
fn next_fire(
    expr: Text,
    timezone: default!(Text, "'UTC'"),
    after: default!(TimestampWithTimeZone, "pg_catalog.now()"),
    n: default!(i32, 5),
) -> Result<SetOfIterator<'static, TimestampWithTimeZone>, ErrorReport> {
    let expr = &*expr;
    let timezone = &*timezone;
    upcoming(expr, timezone, Micros::from(after), n).map(SetOfIterator::new).or_report()
}

/// Most firings that can be asked for at once.
const MOST_FIRINGS: i32 = 1000;

fn upcoming(expr: &str, timezone: &str, after: Micros, n: i32) -> EngineResult<Vec<TimestampWithTimeZone>> {
    if !(1..=MOST_FIRINGS).contains(&n) {
        return Err(EngineError::invalid(format!("n must be between 1 and {MOST_FIRINGS}, not {n}")));
    }
    if after == Micros::MIN || after == Micros::MAX {
        return Err(EngineError::out_of_range("a schedule has no firings before or after infinity"));
    }
    let schedule = Cron::parse(expr).map_err(|error| EngineError::in_text(expr, &error))?;
    let zone = cron::parse_zone(timezone).map_err(|error| EngineError::in_text(timezone, &error))?;
    let mut at = instant(after);
    let mut found = Vec::new();
    for _ in 0..n {
        pgrx::check_for_interrupts!();
        let next = schedule.next_after(at, zone);
        let fires = next.and_then(|next| TimestampWithTimeZone::try_from(next.0 - POSTGRES_EPOCH).ok());
        let (Some(next), Some(fires)) = (next, fires) else {
            return Err(EngineError::out_of_range("the next firing is beyond what a timestamp can hold"));
        };
        at = next;
        found.push(fires);
    }
    Ok(found)
}
