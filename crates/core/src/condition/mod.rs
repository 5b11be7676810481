//! Conditions: one type for every way to write one, so that there is one analyser.
//!
//! A condition is an expression, a JSON-Pointer filter on the payload, or a structured object (`and`, `or`, `not`,
//! `state`, `numeric_state`, `time`, `trigger`). A list is an `and`. All are evaluated on the state now.

mod explain;
mod fields;
mod pointer;
mod structured;
mod time_window;

pub use explain::Refusal;
pub use pointer::{Operator, PointerFilter};
pub(crate) use structured::member;
pub use structured::{NumericState, StateIs};
pub use time_window::TimeWindow;

use crate::expr::{Budget, Expr, ExprError, ExprErrorKind, MAX_TEXT, References, Scope, TimeDependence};
use crate::value::Value;
use fields::Fields;
use std::collections::BTreeSet;

/// Deepest nesting of structured conditions.
const MAX_DEPTH: usize = 32;

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Always the same.
    Constant(bool),
    /// An expression.
    Expr(Expr),
    /// A JSON-Pointer filter on the payload.
    Pointer(PointerFilter),
    /// All hold; none is true.
    And(Vec<Condition>),
    /// At least one holds.
    Or(Vec<Condition>),
    /// None holds.
    Not(Vec<Condition>),
    /// Entities are in a state.
    State(StateIs),
    /// A number lies inside bounds.
    Numeric(NumericState),
    /// The time of day and the weekday.
    Time(TimeWindow),
    /// The run was started by one of these triggers.
    Trigger(Vec<String>),
}

impl Condition {
    /// Parses an expression; one wrapped in `{{ }}` is accepted too, and so is the text of a JSON condition.
    pub fn parse_text(text: &str) -> Result<Condition, ExprError> {
        let trimmed = text.trim();
        let lead = text.len() - text.trim_start().len();
        if trimmed.starts_with("{{") {
            let (expr, start, after) = crate::template::placeholder(trimmed, 0).map_err(|e| e.shifted(lead))?;
            if after == trimmed.len() {
                return Ok(Condition::Expr(expr));
            }
            return Err(ExprError::new(
                ExprErrorKind::Syntax,
                lead + after..text.len(),
                "text after \"}}\" in a condition",
            )
            .with_hint("Write the condition as one expression.")
            .with_detail(format!("The expression is \"{}\".", trimmed[start..after - 2].trim())));
        }
        if trimmed.starts_with(['{', '['])
            && trimmed.len() <= MAX_TEXT
            && let Ok(document) = serde_json::from_str(trimmed)
        {
            return Condition::from_json(&document);
        }
        Expr::parse(text).map(Condition::Expr)
    }

    /// Takes a string (an expression), an object (a filter or structured), a list (all of them) or a boolean.
    pub fn from_json(document: &serde_json::Value) -> Result<Condition, ExprError> {
        Condition::at_depth(document, 0)
    }

    fn at_depth(document: &serde_json::Value, depth: usize) -> Result<Condition, ExprError> {
        use serde_json::Value as Json;
        if depth > MAX_DEPTH {
            return Err(ExprError::new(ExprErrorKind::TooComplex, 0..0, "condition is too complex")
                .with_detail(format!("It nests more than {MAX_DEPTH} levels.")));
        }
        match document {
            Json::Bool(b) => Ok(Condition::Constant(*b)),
            Json::String(text) => Condition::parse_text(text).map_err(|e| e.within(text)),
            Json::Array(items) => Ok(Condition::And(each(items, depth)?)),
            Json::Object(map) if map.get("enabled") == Some(&Json::Bool(false)) => Ok(Condition::Constant(true)),
            Json::Object(map) if map.keys().all(|key| key.is_empty() || key.starts_with('/')) => {
                Ok(Condition::Pointer(PointerFilter::parse(document)?))
            }
            Json::Object(_) => Condition::structured(document, depth),
            other => Err(invalid(format!("a condition cannot be {}", fields::name(other)))
                .with_hint("Write an expression as a string, an object, or a list of conditions.")),
        }
    }

    fn structured(document: &serde_json::Value, depth: usize) -> Result<Condition, ExprError> {
        const FORMS: [&str; 10] =
            ["and", "or", "not", "state", "numeric_state", "time", "trigger", "match", "changed", "expression"];
        if let Some(error) = pointer::without_slash(document, &FORMS) {
            return Err(error);
        }
        let mut outer = Fields::new("condition", document)?;
        outer.ignore("enabled");
        outer.ignore("alias");
        let Some((form, body)) = outer.only_one(&FORMS)? else { return Ok(Condition::Constant(true)) };
        Condition::of_form(form, body, depth).map_err(|e| e.in_member(form))
    }

    fn of_form(form: &str, body: &serde_json::Value, depth: usize) -> Result<Condition, ExprError> {
        Ok(match form {
            "and" => Condition::And(several(body, depth)?),
            "or" => Condition::Or(several(body, depth)?),
            "not" => Condition::Not(several(body, depth)?),
            "state" => Condition::State(StateIs::parse(body)?),
            "numeric_state" => Condition::Numeric(NumericState::parse(body)?),
            "time" => Condition::Time(TimeWindow::parse(body)?),
            "trigger" => Condition::Trigger(structured::trigger_ids(body)?),
            "match" => Condition::Pointer(PointerFilter::parse(body)?),
            "changed" => structured::changed(body)?,
            _ => {
                let text = body.as_str().ok_or_else(|| invalid("field \"expression\" is not a string"))?;
                Condition::parse_text(text).map_err(|e| e.within(text))?
            }
        })
    }

    /// Whether it holds. A result that is not a boolean is a type mismatch; null counts as false.
    pub fn holds(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<bool, ExprError> {
        match self {
            Condition::Constant(b) => Ok(*b),
            Condition::Expr(expr) => expr.holds(scope, budget),
            Condition::Pointer(filter) => {
                budget.charge_steps(filter.clauses().len(), &(0..0)).map_err(|e| *e)?;
                Ok(filter.matches(crate::expr::root_of(scope, "payload")?))
            }
            Condition::And(all) => {
                for condition in all {
                    if !condition.holds(scope, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Condition::Or(any) => Condition::any_holds(any, scope, budget),
            Condition::Not(none) => Ok(!Condition::any_holds(none, scope, budget)?),
            Condition::State(state) => state.holds(scope, budget),
            Condition::Numeric(numeric) => numeric.holds(scope, budget),
            Condition::Time(window) => Ok(window.contains(scope.now())),
            Condition::Trigger(ids) => {
                let id = scope.root("trigger")?.and_then(|t| t.get("id")).and_then(Value::to_text);
                Ok(id.is_some_and(|id| ids.contains(&id)))
            }
        }
    }

    fn any_holds(any: &[Condition], scope: &dyn Scope, budget: &mut Budget) -> Result<bool, ExprError> {
        for condition in any {
            if condition.holds(scope, budget)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The entities it reads.
    pub fn references(&self) -> References {
        let mut all = References::default();
        self.each_expr(&mut |expr| all.extend(expr.references()));
        self.each(&mut |condition| match condition {
            Condition::State(state) => state.add_references(&mut all),
            Condition::Time(_) => all.clock = true,
            _ => {}
        });
        all
    }

    /// The entities it reads, with computed ids worked out; see [`Expr::resolved_references`].
    pub fn resolved_references(&self, scope: &dyn Scope, budget: &mut Budget) -> References {
        let mut all = References::default();
        self.each(&mut |condition| match condition {
            Condition::State(state) => state.add_resolved(scope, budget, &mut all),
            Condition::Time(_) => all.clock = true,
            Condition::Expr(expr) => all.extend(expr.resolved_references(scope, budget)),
            Condition::Numeric(numeric) => {
                numeric.each_expr(&mut |expr| all.extend(expr.resolved_references(scope, budget)));
            }
            _ => {}
        });
        all
    }

    /// When time alone can change the answer.
    pub fn time_dependence(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<TimeDependence, ExprError> {
        let mut all = TimeDependence::default();
        let mut result = Ok(());
        self.each_expr(&mut |expr| {
            if result.is_ok() {
                result = expr.time_dependence(scope, budget).map(|found| all.merge(found));
            }
        });
        result?;
        let mut result = Ok(());
        self.each(&mut |condition| match condition {
            Condition::Time(window) => window.next_change(scope.now()).into_iter().for_each(|at| all.at(at)),
            Condition::State(state) if result.is_ok() => {
                // strictly longer than "for", so it holds a microsecond after
                result = state.due_times(scope, budget).map(|due| {
                    let due = due.into_iter().map(|at| crate::value::Timestamp(at.0.saturating_add(1)));
                    due.filter(|at| *at > scope.now()).for_each(|at| all.at(at));
                });
            }
            _ => {}
        });
        result?;
        Ok(all)
    }

    /// The kinds and fields whose time of change it asks for, with `for`.
    pub fn held_fields(&self) -> BTreeSet<(String, String)> {
        let mut all = BTreeSet::new();
        self.each(&mut |condition| {
            if let Condition::State(state) = condition
                && state.held_for.is_some()
            {
                all.insert((state.kind.clone(), state.field.clone()));
            }
        });
        all
    }

    /// The roots it uses.
    pub fn roots(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        self.each_expr(&mut |expr| all.extend(expr.roots()));
        self.each(&mut |condition| {
            let root = match condition {
                Condition::Pointer(_) => "payload",
                Condition::State(_) => "state",
                Condition::Trigger(_) => "trigger",
                _ => return,
            };
            all.insert(root.to_owned());
        });
        all
    }

    /// Whether nothing but the event decides it: no state, no clock, no variables.
    pub fn is_pure_event(&self) -> bool {
        let mut pure = true;
        self.each_expr(&mut |expr| pure = pure && expr.is_pure_event());
        self.each(&mut |condition| {
            pure = pure && !matches!(condition, Condition::State(_) | Condition::Time(_));
        });
        pure
    }

    /// The fields of the entity without whose change it never holds.
    pub fn must_change(&self) -> Vec<String> {
        match self {
            Condition::Expr(expr) => expr.must_change(),
            Condition::And(parts) => parts.iter().flat_map(Condition::must_change).collect(),
            _ => Vec::new(),
        }
    }

    /// Visits this condition and all inside it.
    pub fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a Condition)) {
        visit(self);
        if let Condition::And(parts) | Condition::Or(parts) | Condition::Not(parts) = self {
            parts.iter().for_each(|part| part.each(visit));
        }
    }

    /// Visits every expression inside.
    pub fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        self.each(&mut |condition| match condition {
            Condition::Expr(expr) => visit(expr),
            Condition::State(state) => state.each_expr(visit),
            Condition::Numeric(numeric) => numeric.each_expr(visit),
            _ => {}
        });
    }
}

fn each(items: &[serde_json::Value], depth: usize) -> Result<Vec<Condition>, ExprError> {
    let read = |(i, item)| Condition::at_depth(item, depth + 1).map_err(|e| e.in_element(i));
    items.iter().enumerate().map(read).collect()
}

/// The body of `and`, `or` and `not`: a list, or a single condition.
fn several(body: &serde_json::Value, depth: usize) -> Result<Vec<Condition>, ExprError> {
    match body {
        serde_json::Value::Array(items) => each(items, depth),
        other => Ok(vec![Condition::at_depth(other, depth + 1)?]),
    }
}

/// A malformed field.
pub(crate) fn invalid(message: impl Into<String>) -> ExprError {
    ExprError::new(ExprErrorKind::InvalidField, 0..0, message)
}
