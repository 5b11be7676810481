//! The tree walk. Values of the scope are borrowed as long as nothing new is made of them.

use super::ast::{Access, ArithmeticOp, Kind, Node, StateRead};
use super::error::{ExprError, ExprErrorKind};
use super::functions::Context;
use super::ops::{self, Fault};
use super::scope::{Budget, Scope, exceeded};
use crate::value::{Unreadable, Value};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Errors are large and rare; boxed, they do not slow down every step that succeeds.
type Fallible<T> = Result<T, Box<ExprError>>;
type Evaluated<'a> = Fallible<Cow<'a, Value>>;

static NULL: Value = Value::Null;

/// Evaluates one node.
pub fn eval<'a>(node: &'a Node, scope: &'a dyn Scope, budget: &mut Budget) -> Evaluated<'a> {
    if budget.depth == 0 {
        return Err(exceeded("depth", &node.span.range()).into());
    }
    budget.depth -= 1;
    let result = step(node, scope, budget);
    budget.depth += 1;
    result
}

#[inline]
fn charge(steps: usize, budget: &mut Budget, node: &Node) -> Fallible<()> {
    budget.charge_steps(steps, &node.span.range())
}

#[inline]
fn step<'a>(node: &'a Node, scope: &'a dyn Scope, budget: &mut Budget) -> Evaluated<'a> {
    charge(1, budget, node)?;
    Ok(match &node.kind {
        Kind::Literal(value) => Cow::Borrowed(value),
        Kind::Root(name) => Cow::Borrowed(root(scope, name).map_err(|error| unreadable(error, node))?),
        Kind::State(read) => Cow::Owned(state(read, node, scope, budget)?),
        Kind::Path(base, steps) => return path(base, steps, scope, budget),
        Kind::And(nodes) => Cow::Owned(Value::Bool(all_hold(nodes, scope, budget)?)),
        Kind::Or(nodes) => {
            let mut any = false;
            for node in nodes {
                if holds(node, scope, budget)? {
                    any = true;
                    break;
                }
            }
            Cow::Owned(Value::Bool(any))
        }
        Kind::Not(inner) => Cow::Owned(Value::Bool(!holds(inner, scope, budget)?)),
        Kind::Compare(op, pair) => {
            let (a, b) = (eval(&pair.0, scope, budget)?, eval(&pair.1, scope, budget)?);
            charge_comparison(&a, &b, budget, node)?;
            Cow::Owned(Value::Bool(ops::compare(*op, &a, &b).map_err(|f| placed(f, node))?))
        }
        Kind::Becomes(three) => {
            let wanted = eval(&three.2, scope, budget)?;
            let new = eval(&three.0, scope, budget)?;
            charge_comparison(&new, &wanted, budget, node)?;
            let is = ops::equal(&new, &wanted);
            let old = eval(&three.1, scope, budget)?;
            charge_comparison(&old, &wanted, budget, node)?;
            Cow::Owned(Value::Bool(is && !ops::equal(&old, &wanted)))
        }
        Kind::Changed(pair) => {
            let (new, old) = (eval(&pair.0, scope, budget)?, eval(&pair.1, scope, budget)?);
            charge_comparison(&new, &old, budget, node)?;
            Cow::Owned(Value::Bool(*new != *old))
        }
        _ => return rarer(node, scope, budget),
    })
}

/// Evaluates the kinds of nodes that a typical filter does not have, kept out of the hot function.
fn rarer<'a>(node: &'a Node, scope: &'a dyn Scope, budget: &mut Budget) -> Evaluated<'a> {
    let span = node.span.range();
    Ok(match &node.kind {
        Kind::List(nodes) => {
            let items = nodes.iter().map(|n| eval(n, scope, budget).map(Cow::into_owned));
            let items = items.collect::<Fallible<Vec<Value>>>()?;
            budget.charge_output(items.len() * 16, &span)?;
            Cow::Owned(Value::list(items))
        }
        Kind::Object(entries) => {
            let mut members = Vec::with_capacity(entries.len());
            for (key, node) in entries {
                members.push((key.clone(), eval(node, scope, budget)?.into_owned()));
            }
            budget.charge_output(members.len() * 32, &span)?;
            Cow::Owned(Value::object(members))
        }
        Kind::Negate(inner) => {
            let minus_one = Value::int(-1);
            let value = eval(inner, scope, budget)?;
            charge_arithmetic(ArithmeticOp::Multiply, &value, &minus_one, budget, node)?;
            let negated = ops::arithmetic(ArithmeticOp::Multiply, &value, &minus_one);
            Cow::Owned(negated.map_err(|_| negation_fault(&value, node))?)
        }
        Kind::Arithmetic(first, rest) => {
            let mut total = eval(first, scope, budget)?;
            for (op, operand) in rest {
                let operand = eval(operand, scope, budget)?;
                charge_arithmetic(*op, &total, &operand, budget, node)?;
                total = Cow::Owned(ops::arithmetic(*op, &total, &operand).map_err(|f| placed(f, node))?);
            }
            total
        }
        Kind::In(pair, negated) => {
            let (item, list) = (eval(&pair.0, scope, budget)?, eval(&pair.1, scope, budget)?);
            Cow::Owned(Value::Bool(contains(&list, &item, budget, node)? != *negated))
        }
        Kind::Like(pair, flags) => {
            let (text, pattern) = (eval(&pair.0, scope, budget)?, eval(&pair.1, scope, budget)?);
            budget.charge_work(ops::work_to_print(&text), &span)?;
            let matched = match (text.to_text(), pattern.as_str()) {
                (None, _) => false,
                _ if pattern.is_null() => false,
                (Some(text), Some(pattern)) => {
                    budget.charge_steps(text.len().saturating_mul(1 + pattern.len() / 8) / 64, &span)?;
                    ops::like(&text, pattern, flags.any_case)
                }
                (Some(_), None) => {
                    let message = format!("the pattern of like is {}", ops::with_article(&pattern));
                    return Err(ExprError::new(ExprErrorKind::TypeMismatch, pair.1.span.range(), message).into());
                }
            };
            Cow::Owned(Value::Bool(matched != flags.negated))
        }
        Kind::Between(three, negated) => {
            let (value, low) = (eval(&three.0, scope, budget)?, eval(&three.1, scope, budget)?);
            let high = eval(&three.2, scope, budget)?;
            charge_comparison(&value, &low, budget, node)?;
            charge_comparison(&value, &high, budget, node)?;
            let above = ops::order(&value, &low).map_err(|f| placed(f, node))?;
            let below = ops::order(&value, &high).map_err(|f| placed(f, node))?;
            let inside = matches!(above, Some(Ordering::Greater | Ordering::Equal))
                && matches!(below, Some(Ordering::Less | Ordering::Equal));
            Cow::Owned(Value::Bool(inside != *negated))
        }
        Kind::Is(inner, wanted, negated) => {
            let value = eval(inner, scope, budget)?;
            charge_comparison(&value, wanted, budget, node)?;
            Cow::Owned(Value::Bool((*value == *wanted) != *negated))
        }
        Kind::Ternary(three) => {
            let chosen = if holds(&three.0, scope, budget)? { &three.1 } else { &three.2 };
            return eval(chosen, scope, budget);
        }
        Kind::Call(function, args) => {
            let mut values = Vec::with_capacity(args.len());
            for arg in args {
                values.push(eval(arg, scope, budget)?.into_owned());
            }
            let mut context = Context::new(scope.now(), budget, span.clone());
            let result = (function.call)(&values, &mut context);
            Cow::Owned(result.map_err(|f| context.place(f))?)
        }
        Kind::Join(nodes) => {
            let mut out = String::new();
            for part in nodes {
                let value = eval(part, scope, budget)?;
                budget.charge_work(ops::work_to_print(&value), &span)?;
                let text = value.to_text().unwrap_or_default();
                budget.charge_output(text.len(), &span)?;
                out.push_str(&text);
            }
            Cow::Owned(Value::text(out))
        }
        // all other kinds of nodes are evaluated by the caller
        _ => Cow::Borrowed(&NULL),
    })
}

/// A boolean; null counts as false, anything else is an error.
#[inline]
pub fn holds(node: &Node, scope: &dyn Scope, budget: &mut Budget) -> Fallible<bool> {
    let value = eval(node, scope, budget)?;
    match &*value {
        Value::Bool(b) => Ok(*b),
        Value::Null => Ok(false),
        other => Err(not_boolean(other, node)),
    }
}

fn all_hold(nodes: &[Node], scope: &dyn Scope, budget: &mut Budget) -> Fallible<bool> {
    for node in nodes {
        if !holds(node, scope, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn not_boolean(value: &Value, node: &Node) -> Box<ExprError> {
    let message = format!("expected true or false, not {}", ops::with_article(value));
    let error = ExprError::new(ExprErrorKind::TypeMismatch, node.span.range(), message);
    Box::new(error.with_hint(match value {
        Value::Text(_) => "Compare it, as in x <> ''. To join texts, use +, not ||.",
        _ => "Compare it with something, as in x > 0 or x is not null.",
    }))
}

/// A root by its name; where only the event is given, the rows and the payload are read from it.
#[inline]
pub fn root<'a>(scope: &'a dyn Scope, name: &str) -> Result<&'a Value, Unreadable> {
    match scope.root(name)? {
        Some(value) => Ok(value),
        None => Ok(other_spelling(scope, name)?.unwrap_or(&NULL)),
    }
}

#[cold]
fn other_spelling<'a>(scope: &'a dyn Scope, name: &str) -> Result<Option<&'a Value>, Unreadable> {
    let within = |root: &str, name: &str| Ok(scope.root(root)?.and_then(|value| value.get(name)));
    match name {
        "new" => Ok(scope.root("next")?.or(within("event", "next")?)),
        "old" => Ok(scope.root("prev")?.or(within("event", "prev")?)),
        "payload" => within("event", "payload"),
        "event" => within("ctx", "input"),
        _ => Ok(None),
    }
}

#[cold]
fn unreadable(error: Unreadable, node: &Node) -> Box<ExprError> {
    Box::new(error.at(node.span.range()))
}

fn state(read: &StateRead, node: &Node, scope: &dyn Scope, budget: &mut Budget) -> Fallible<Value> {
    budget.charge_steps(10, &node.span.range())?;
    let (kind, id) = (eval(&read.kind, scope, budget)?, eval(&read.id, scope, budget)?);
    budget.charge_work(ops::work_to_print(&kind).saturating_add(ops::work_to_print(&id)), &node.span.range())?;
    match (kind.to_text(), id.to_text()) {
        (Some(kind), Some(id)) => Ok(scope.state(&kind, &id).map_err(|mut e| {
            if e.span.is_empty() {
                e.span = node.span.range();
            }
            e
        })?),
        _ => Ok(Value::Null),
    }
}

fn path<'a>(base: &'a Node, steps: &'a [Access], scope: &'a dyn Scope, budget: &mut Budget) -> Evaluated<'a> {
    charge(steps.len(), budget, base)?;
    let mut rest = steps;
    let mut value = match (&base.kind, steps) {
        (Kind::Root(name), [Access::Member(first, _), after @ ..]) => {
            match scope.member(name, first).map_err(|error| unreadable(error, base))? {
                Some(value) => {
                    rest = after;
                    value
                }
                None => Cow::Borrowed(root(scope, name).map_err(|error| unreadable(error, base))?),
            }
        }
        (Kind::Root(name), _) => Cow::Borrowed(root(scope, name).map_err(|error| unreadable(error, base))?),
        _ => eval(base, scope, budget)?,
    };
    for access in rest {
        value = match access {
            Access::Member(name, _) => match value {
                Cow::Borrowed(value) => Cow::Borrowed(member(value, name)),
                Cow::Owned(value) => Cow::Owned(member(&value, name).clone()),
            },
            Access::Index(node) => {
                let key = eval(node, scope, budget)?;
                budget.charge_work(ops::work_to_print(&key), &node.span.range())?;
                match value {
                    Cow::Borrowed(value) => Cow::Borrowed(element(value, &key)),
                    Cow::Owned(value) => Cow::Owned(element(&value, &key).clone()),
                }
            }
        };
    }
    Ok(value)
}

#[inline]
fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    match value {
        Value::Object(object) => object.get(name).unwrap_or(&NULL),
        Value::List(items) => name.parse::<usize>().ok().and_then(|i| items.get(i)).unwrap_or(&NULL),
        _ => &NULL,
    }
}

/// `list[0]`, `list[-1]` from the end, `object[key]`.
fn element<'a>(value: &'a Value, key: &Value) -> &'a Value {
    match (value, key) {
        (Value::List(items), Value::Number(n)) => match n.to_i64() {
            Some(i) if i >= 0 => items.get(i as usize).unwrap_or(&NULL),
            Some(i) => items.len().checked_sub(i.unsigned_abs() as usize).map_or(&NULL, |i| &items[i]),
            None => &NULL,
        },
        (_, Value::Null) => &NULL,
        (_, key) => key.to_text().map_or(&NULL, |key| member(value, &key)),
    }
}

/// `item in list`, `key in object`, `part in text`.
fn contains(list: &Value, item: &Value, budget: &mut Budget, node: &Node) -> Fallible<bool> {
    match list {
        Value::Null => Ok(false),
        Value::List(items) => {
            budget.charge_steps(items.len(), &node.span.range())?;
            charge_search(items, item, budget, node)?;
            Ok(items.iter().any(|other| ops::equal(item, other)))
        }
        Value::Object(object) => {
            budget.charge_work(ops::work_to_print(item), &node.span.range())?;
            Ok(item.to_text().is_some_and(|key| object.get(&key).is_some()))
        }
        Value::Text(text) => {
            budget.charge_work(ops::work_to_print(item).saturating_add(text.len() / 8), &node.span.range())?;
            Ok(item.to_text().is_some_and(|part| text.contains(&part)))
        }
        other => {
            let message = format!("\"in\" needs a list, not {}", ops::with_article(other));
            Err(ExprError::new(ExprErrorKind::TypeMismatch, node.span.range(), message).into())
        }
    }
}

/// Charges long texts, long numbers and large documents for the work of comparing them.
#[inline]
fn charge_comparison(a: &Value, b: &Value, budget: &mut Budget, node: &Node) -> Fallible<()> {
    match ops::work_to_compare(a, b) {
        0 => Ok(()),
        work => budget.charge_work(work, &node.span.range()),
    }
}

/// Charges for comparing an item with each element of a list.
fn charge_search(items: &[Value], item: &Value, budget: &mut Budget, node: &Node) -> Fallible<()> {
    let work = items.iter().fold(0_usize, |sum, other| sum.saturating_add(ops::work_to_compare(item, other)));
    budget.charge_work(work, &node.span.range())
}

fn charge_arithmetic(op: ArithmeticOp, a: &Value, b: &Value, budget: &mut Budget, node: &Node) -> Fallible<()> {
    let span = node.span.range();
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            let (m, n) = (x.cost(), y.cost());
            if m + n <= 2 {
                return Ok(());
            }
            let divides = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Remainder);
            let squares = if divides { x.work().saturating_add(y.work()).saturating_mul(2) } else { 0 };
            budget.charge_work(squares.saturating_add(x.work_to_align(y)), &span)?;
            let product = !matches!(op, ArithmeticOp::Add | ArithmeticOp::Subtract);
            budget.charge_steps(if product { m.saturating_mul(n) / 16 + 1 } else { (m + n) / 16 }, &span)?;
            budget.charge_output((m + n) * 8, &span)
        }
        (Value::Text(text), other) | (other, Value::Text(text)) if op == ArithmeticOp::Add => {
            let more = match other {
                Value::Text(more) => more.len(),
                Value::List(items) => items.len() * 16,
                Value::Object(object) => object.len() * 32,
                _ => 16,
            };
            budget.charge_work(ops::work_to_print(other), &span)?;
            budget.charge_output(text.len() + more, &span)
        }
        // A text that spells a number counts as one.
        (Value::Text(_), Value::Number(_) | Value::Text(_)) | (Value::Number(_), Value::Text(_)) => {
            let work = ops::work_to_number(a).saturating_add(ops::work_to_number(b));
            // The number read from a text has at most as many limbs as the square root of the work of reading it.
            let limbs = |value: &Value| ops::work_to_number(value).isqrt();
            budget.charge_work(work.saturating_mul(2).saturating_add(limbs(a).saturating_mul(limbs(b))), &span)
        }
        (Value::List(a), Value::List(b)) => budget.charge_output((a.len() + b.len()) * 16, &span),
        // The length of a duration can be multiplied by any number.
        (Value::Duration(_) | Value::Date(_), n @ Value::Number(_))
        | (n @ Value::Number(_), Value::Duration(_) | Value::Date(_)) => {
            budget.charge_work(ops::work_to_number(n), &span)
        }
        _ => Ok(()),
    }
}

fn negation_fault(value: &Value, node: &Node) -> Box<ExprError> {
    let message = format!("operator - does not take {}", ops::with_article(value));
    ExprError::new(ExprErrorKind::TypeMismatch, node.span.range(), message).into()
}

fn placed(fault: Fault, node: &Node) -> Box<ExprError> {
    let error = ExprError::new(fault.kind, node.span.range(), fault.message);
    Box::new(match fault.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}
