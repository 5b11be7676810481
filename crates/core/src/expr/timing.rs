//! When time alone can change the value of an expression, so that a waiting run knows when to look again.
//!
//! A comparison whose two sides move in one direction as time passes flips at most once in each sense, so the instant
//! is found by bisection over hypothetical values of `now()`; no algebra, and no form of writing it is favoured. Parts
//! of the calendar (`hour(now())`) change at quarter hours at the earliest, in every time zone in use. Anything else
//! that reads the clock is reported as untracked, and has to be looked at again from time to time.

use super::ast::{ArithmeticOp, Kind, Node};
use super::functions::Purity;
use super::{Budget, ExprError, ExprErrorKind, Scope, eval, ops, references};
use crate::value::{Timestamp, Value};
use std::cmp::Ordering;

/// How far ahead to look.
const HORIZON_MICROS: i64 = 100 * 366 * 86_400 * 1_000_000;
const MINUTE: i64 = 60_000_000;

/// When time alone can change a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeDependence {
    /// The next instant at which the value may change; it may also turn out unchanged then. Never too late.
    pub next: Option<Timestamp>,
    /// Whether the expression reads the clock in a way that has no such instant.
    pub untracked: bool,
}

impl TimeDependence {
    /// Takes the earlier of both.
    pub fn merge(&mut self, other: TimeDependence) {
        self.untracked |= other.untracked;
        if let Some(at) = other.next {
            self.at(at);
        }
    }

    /// Adds an instant.
    pub fn at(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// A scope whose clock is set ahead.
struct Ahead<'a> {
    scope: &'a dyn Scope,
    now: Timestamp,
}

impl Scope for Ahead<'_> {
    fn root(&self, name: &str) -> Result<Option<&Value>, crate::value::Unreadable> {
        self.scope.root(name)
    }

    fn member(&self, root: &str, name: &str) -> Result<Option<std::borrow::Cow<'_, Value>>, crate::value::Unreadable> {
        self.scope.member(root, name)
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        self.scope.state(kind, id)
    }

    fn changed_at(&self, kind: &str, id: &str, field: &str) -> Result<Option<Timestamp>, ExprError> {
        self.scope.changed_at(kind, id, field)
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

/// The next instants of a tree.
pub fn of(node: &Node, scope: &dyn Scope, budget: &mut Budget) -> Result<TimeDependence, ExprError> {
    let mut found = TimeDependence::default();
    collect(node, scope, budget, &mut found)?;
    Ok(found)
}

fn collect(node: &Node, scope: &dyn Scope, budget: &mut Budget, found: &mut TimeDependence) -> Result<(), ExprError> {
    if !reads_clock(node) {
        return Ok(());
    }
    let now = scope.now();
    match &node.kind {
        Kind::Compare(op, pair) if one_direction(&pair.0, &pair.1) => {
            let flip = if op.is_equality() {
                first_flip(now, |at| sides(&pair.0, &pair.1, scope, at, budget))?
            } else {
                first_flip(now, |at| outcome(node, scope, at, budget))?
            };
            if let Some(at) = flip {
                found.at(at);
            }
            return Ok(());
        }
        Kind::Between(three, _) if one_direction(&three.0, &three.1) && one_direction(&three.0, &three.2) => {
            for bound in [&three.1, &three.2] {
                if let Some(at) = first_flip(now, |at| sides(&three.0, bound, scope, at, budget))? {
                    found.at(at);
                }
            }
            return Ok(());
        }
        Kind::Call(function, args) if matches!(function.name, "older_than" | "newer_than") => {
            if args.iter().any(reads_clock) {
                found.untracked = true;
                return Ok(());
            }
            let flip = first_flip(now, |at| {
                let ahead = Ahead { scope, now: at };
                Ok(Some(eval::holds(node, &ahead, budget).map_err(|e| *e)?.cmp(&false)))
            })?;
            if let Some(at) = flip {
                found.at(at);
            }
            return Ok(());
        }
        Kind::Call(function, args) if calendar_step(function.name).is_some() => {
            if args.iter().any(|arg| direction(arg).is_none()) {
                found.untracked = true;
            } else if let Some(step) = calendar_step(function.name) {
                found.at(Timestamp((now.0.div_euclid(step) + 1) * step));
            }
            return Ok(());
        }
        // the clock itself, outside of anything that could be solved
        Kind::Call(function, _) if function.purity == Purity::Clock => found.untracked = true,
        _ => {}
    }
    let mut result = Ok(());
    node.each_child(&mut |child| {
        if result.is_ok() {
            result = collect(child, scope, budget, found);
        }
    });
    result
}

/// How often a function of the calendar can change at most.
fn calendar_step(name: &str) -> Option<i64> {
    match name {
        "year" | "month" | "day" | "weekday" | "hour" | "today" | "date" => Some(15 * MINUTE),
        "minute" | "trunc_time" => Some(MINUTE),
        _ => None,
    }
}

fn reads_clock(node: &Node) -> bool {
    references::of(node).clock
}

/// Which way a value moves as time passes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Still,
    Up,
    Down,
}

impl Direction {
    fn reversed(self) -> Direction {
        match self {
            Direction::Still => Direction::Still,
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }

    fn plus(self, other: Direction) -> Option<Direction> {
        match (self, other) {
            (Direction::Still, other) => Some(other),
            (this, Direction::Still) => Some(this),
            (a, b) if a == b => Some(a),
            _ => None,
        }
    }
}

/// The direction of a node; `None` if it has none, or none that is known.
fn direction(node: &Node) -> Option<Direction> {
    if !reads_clock(node) {
        return Some(Direction::Still);
    }
    match &node.kind {
        Kind::Call(function, args) => {
            let inner = || args.iter().try_fold(Direction::Still, |all, arg| all.plus(direction(arg)?));
            match function.name {
                "now" | "today" => Some(Direction::Up),
                "since" if inner() == Some(Direction::Still) => Some(Direction::Up),
                "until" if inner() == Some(Direction::Still) => Some(Direction::Down),
                "epoch" | "time" | "date" if args.len() == 1 => inner(),
                _ => None,
            }
        }
        Kind::Arithmetic(first, rest) => rest.iter().try_fold(direction(first)?, |all, (op, operand)| match op {
            ArithmeticOp::Add => all.plus(direction(operand)?),
            ArithmeticOp::Subtract => all.plus(direction(operand)?.reversed()),
            _ => None,
        }),
        _ => None,
    }
}

/// Whether `a` compared with `b` moves one way only.
fn one_direction(a: &Node, b: &Node) -> bool {
    match (direction(a), direction(b)) {
        (Some(a), Some(b)) => a.plus(b.reversed()).is_some(),
        _ => false,
    }
}

/// The answer of a comparison at another time; sides that have no order say no.
fn outcome(node: &Node, scope: &dyn Scope, at: Timestamp, budget: &mut Budget) -> Result<Option<Ordering>, ExprError> {
    match eval::holds(node, &Ahead { scope, now: at }, budget) {
        Ok(holds) => Ok(Some(holds.cmp(&false))),
        Err(e) if matches!(e.kind, ExprErrorKind::TypeMismatch | ExprErrorKind::InvalidValue) => Ok(None),
        Err(e) => Err(*e),
    }
}

fn sides(
    a: &Node,
    b: &Node,
    scope: &dyn Scope,
    at: Timestamp,
    budget: &mut Budget,
) -> Result<Option<Ordering>, ExprError> {
    let ahead = Ahead { scope, now: at };
    let mut value = |node| eval::eval(node, &ahead, budget).map_err(|e| *e);
    let (a, b) = (value(a)?, value(b)?);
    // values that have no order now will have none later
    Ok(ops::order(&a, &b).ok().flatten())
}

/// The first instant after `now` at which the order differs from that of now.
fn first_flip(
    now: Timestamp,
    mut order_at: impl FnMut(Timestamp) -> Result<Option<Ordering>, ExprError>,
) -> Result<Option<Timestamp>, ExprError> {
    let before = order_at(now)?;
    let (mut same, mut other) = (now.0, now.0.saturating_add(HORIZON_MICROS));
    if order_at(Timestamp(other))? == before {
        return Ok(None);
    }
    while other - same > 1 {
        let middle = same + (other - same) / 2;
        if order_at(Timestamp(middle))? == before { same = middle } else { other = middle }
    }
    Ok(Some(Timestamp(other)))
}

#[cfg(test)]
mod tests {
    use super::super::{Expr, FixedScope};
    use super::*;

    fn next(text: &str) -> String {
        let roots = r#"{"new": {"at": "2026-01-05T09:55:00Z", "n": 5}}"#;
        let now = Timestamp::parse("2026-01-05T10:00:00Z").unwrap();
        let scope = FixedScope::new(Value::from_json(roots).unwrap(), now);
        let expr = Expr::parse(text).unwrap();
        match expr.time_dependence(&scope, &mut Budget::default()).unwrap() {
            TimeDependence { untracked: true, .. } => "untracked".to_owned(),
            TimeDependence { next: Some(at), .. } => at.to_string(),
            TimeDependence { next: None, .. } => "never".to_owned(),
        }
    }

    #[test]
    fn every_way_to_ask_for_an_age_gives_the_same_instant() {
        for text in [
            "since(new.at) >= 15 minutes",
            "now() - new.at >= '15 minutes'",
            "now() >= time(new.at) + 15 minutes",
            "new.at <= now() - 15 minutes",
            "until(time(new.at) + 15 minutes) <= 0 seconds",
            "not (since(new.at) < 15 minutes)",
            "new.n = 5 and (false or since(new.at) >= 15 minutes)",
            "since(new.at) between 15 minutes and 20 minutes",
        ] {
            assert_eq!(next(text), "2026-01-05T10:10:00Z", "{text}");
        }
        for text in ["older_than(new.at, 15 minutes)", "since(new.at) > 15 minutes"] {
            assert_eq!(next(text), "2026-01-05T10:10:00.000001Z", "{text}");
        }
    }

    #[test]
    fn what_time_cannot_change_never_needs_a_look() {
        for text in
            ["new.n = 5", "since(new.at) > 1 minute", "older_than(new.at, 1 minute)", "now() > new.at", "now() > new.n"]
        {
            assert_eq!(next(text), "never", "{text}");
        }
    }

    #[test]
    fn the_calendar_is_looked_at_again_at_the_next_quarter() {
        assert_eq!(next("hour(now()) = 9"), "2026-01-05T10:15:00Z");
        assert_eq!(next("minute(now()) = 9"), "2026-01-05T10:01:00Z");
        assert_eq!(next("today() > '2026-01-07'"), "2026-01-08T00:00:00Z");
    }

    #[test]
    fn what_cannot_be_solved_is_said() {
        for text in ["text(now()) like '%7'", "now() * 1 = 3", "new.x[text(now())] = 1"] {
            assert_eq!(next(text), "untracked", "{text}");
        }
    }
}
