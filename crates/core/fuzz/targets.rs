//! What the fuzzer tries, and what `tests/corpus.rs` replays on a stable compiler.
//!
//! Run with `cargo +nightly fuzz run parse` in `crates/core`; keep what it finds in `fuzz/corpus`.
#![allow(dead_code, reason = "each target uses one of them")]

use automation_core::condition::{Condition, PointerFilter};
use automation_core::cron::{Cron, parse_zone};
use automation_core::expr::{Budget, Expr, ExprErrorKind, FixedScope, Scope};
use automation_core::template::{JsonTemplate, SqlTemplate, Template};
use automation_core::value::{Timestamp, Value};

/// Small, so that no text can stall the fuzzer.
fn budget() -> Budget {
    Budget::of(5_000, 64, 64 * 1024)
}

fn scope(roots: &str) -> FixedScope {
    FixedScope::new(Value::from_json(roots).unwrap_or_default(), Timestamp(1_767_607_200_000_000))
}

/// The input before and after the first empty line.
fn halves(text: &str) -> (&str, &str) {
    text.split_once("\n\n").unwrap_or((text, ""))
}

/// Any text parses or is refused with a place inside it; what parses prints and parses again to the same.
pub fn parse(text: &str) {
    match Expr::parse(text) {
        Ok(expr) => {
            let printed = expr.canonical();
            match Expr::parse(&printed) {
                // 1e9999 prints all its digits, and every part gets parentheses
                Err(error) if error.kind == ExprErrorKind::TooComplex => {}
                again => assert_eq!(again.as_ref(), Ok(&expr), "{printed}"),
            }
        }
        Err(error) => {
            assert!(error.span.start <= error.span.end && error.span.end <= text.len(), "{error:?}");
            error.caret(text);
        }
    }
}

/// An expression, an empty line, a scope.
pub fn eval(text: &str) {
    let (expr, roots) = halves(text);
    let Ok(expr) = Expr::parse(expr) else { return };
    let scope = scope(roots);
    let mut spent = budget();
    let _ = expr.eval(&scope, &mut spent);
    assert!(spent.steps <= budget().steps && spent.depth == budget().depth);
    let references = expr.references();
    if !references.clock && references.entities.is_empty() && !references.is_indeterminate() {
        let later = Later(scope);
        let (a, b) = (expr.eval(&later.0, &mut budget()), expr.eval(&later, &mut budget()));
        assert_eq!(a.map_err(|e| e.kind), b.map_err(|e| e.kind));
    }
}

/// The same roots at another time, with other entities.
struct Later(FixedScope);

impl Scope for Later {
    fn root(&self, name: &str) -> Result<Option<&Value>, automation_core::value::Unreadable> {
        self.0.root(name)
    }

    fn state(&self, _: &str, _: &str) -> Result<Value, automation_core::expr::ExprError> {
        Ok(Value::int(1))
    }

    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

/// A condition, an empty line, a scope or payload.
pub fn filter(text: &str) {
    let (condition, roots) = halves(text);
    if let Ok(condition) = Condition::parse_text(condition) {
        let scope = scope(roots);
        let holds = condition.holds(&scope, &mut budget());
        let refusal = condition.explain(&scope, &mut budget());
        if let (Ok(holds), Ok(refusal)) = (holds, refusal) {
            assert_eq!(holds, refusal.is_none());
        }
        condition.references();
        let _ = condition.time_dependence(&scope, &mut budget());
    }
    if let Ok(document) = serde_json::from_str(condition)
        && let Ok(filter) = PointerFilter::parse(&document)
    {
        filter.matches(&Value::from_json(roots).unwrap_or_default());
    }
}

/// A schedule, an empty line, a time zone.
pub fn cron(text: &str) {
    let (schedule, zone) = halves(text);
    let Ok(cron) = Cron::parse(schedule) else { return };
    let zone = parse_zone(zone).unwrap_or(chrono_tz::Tz::Europe__Berlin);
    let now = Timestamp(1_767_607_200_000_000);
    let fires = cron.upcoming(now, zone, 3);
    assert!(!fires.is_empty(), "{schedule}");
    assert!(fires[0] > now && fires.is_sorted_by(|a, b| a < b), "{schedule}");
}

/// Texts, statements and payloads.
pub fn template(text: &str) {
    let (text, roots) = halves(text);
    let scope = scope(roots);
    let _ = Template::parse(text).and_then(|t| t.render(&scope, &mut budget()));
    let _ = JsonTemplate::parse(text).and_then(|t| t.eval(&scope, &mut budget()));
    if let Ok(sql) = SqlTemplate::parse(text) {
        let _ = sql.bind(&scope, &mut budget());
        for position in 0..=sql.sql().chars().count() + 1 {
            assert!(sql.map_position(position) <= text.chars().count() + 2, "{text}");
        }
    }
}
