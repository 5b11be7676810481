//! Which names exist and which types go together.

use super::{ColumnType, Names, TableShape};
use crate::condition::StateIs;
use crate::expr::{
    Access, ArithmeticOp, CompareOp, ExprError, ExprErrorKind, Function, Kind, Node, Span, Type, type_of,
};
use crate::program::{Matcher, Transition};
use crate::suggest::nearest;
use crate::value::{Value, boolean_from_text};
use std::ops::Range;

/// The members of `event` that are always there.
const EVENT_FIELDS: [&str; 10] =
    ["topic", "payload", "kind", "id", "prev", "next", "delta", "changed", "actor", "occurred_at"];

/// The trigger of a run that was started by hand.
const MANUAL: &str = "manual";

/// A side of a comparison or sum: its type, and its value if it is written out.
pub struct Operand<'a> {
    pub kind: Type,
    pub literal: Option<&'a Value>,
}

/// Whether a root exists here.
pub fn check_root(name: &str, node: &Node, names: &Names) -> Result<(), ExprError> {
    if names.roots.contains(&name) {
        return Ok(());
    }
    let error = |message: String| ExprError::new(ExprErrorKind::UnknownName, node.span.range(), message);
    if crate::expr::ROOTS.contains(&name) {
        let unavailable = error(format!("\"{name}\" is not available"));
        return Err(match names.place {
            "filter" => unavailable.with_hint("A filter is asked before there is a run; put it into the condition."),
            _ => unavailable,
        });
    }
    let unknown = error(format!("\"{name}\" does not exist"));
    if let Some(row) = &names.row
        && let Some(column) = find_column(row, name)
    {
        return Err(unknown.with_hint(format!("Did you mean \"new.{column}\"?")));
    }
    match nearest(name, names.roots.iter().copied()) {
        Some(root) => Err(unknown.with_suggestion(Some(root))),
        None => Err(unknown.with_hint(format!("Quote it if it is a text: '{name}'."))),
    }
}

/// The column a bare name stands for, also misspelt.
fn find_column<'a>(row: &'a TableShape, name: &str) -> Option<&'a str> {
    let columns = || row.columns.iter().map(|(column, _)| column.as_str());
    columns().find(|column| *column == name).or_else(|| nearest(name, columns()))
}

/// Whether a kind exists.
pub fn check_kind(kind: &str, span: Range<usize>, names: &Names) -> Result<(), ExprError> {
    match &names.kinds {
        Some(kinds) if !kinds.iter().any(|known| known.name == kind) => {
            let near = nearest(kind, kinds.iter().map(|known| known.name.as_str()));
            let unknown =
                ExprError::new(ExprErrorKind::UnknownName, span, format!("entity kind \"{kind}\" does not exist"));
            Err(match near {
                Some(near) => unknown.with_suggestion(Some(near)),
                None => unknown.with_hint(format!("Watch the table first: SELECT automation.watch_table('{kind}').")),
            })
        }
        _ => Ok(()),
    }
}

/// Checks the comparisons of a `state` condition against the columns of its kind.
pub fn check_state(state: &StateIs, names: &Names) -> Vec<ExprError> {
    let kinds = names.kinds.iter().flatten();
    let Some(shape) = kinds.clone().find(|known| known.name == state.kind).and_then(|known| known.shape.as_ref())
    else {
        return Vec::new();
    };
    // a column may have a dot in its name; else the dot leads into a document
    let first = state.field.split('.').next().unwrap_or_default();
    if !shape.columns.iter().any(|(column, _)| *column == state.field || column == first) {
        return vec![shape.no_column(first, 0..0)];
    }
    state.values.iter().filter_map(|value| check_value(shape, &state.field, value).err()).collect()
}

/// Whether a column can ever have a value. A field that is no column leads into a document, which may hold any value.
fn check_value(shape: &TableShape, field: &str, value: &Value) -> Result<(), ExprError> {
    let Some((_, kind)) = shape.columns.iter().find(|(column, _)| column == field) else { return Ok(()) };
    let column = Operand { kind: kind.value_type(), literal: None };
    comparable(CompareOp::Equal, &column, &Operand { kind: type_of(value), literal: Some(value) }).map_err(
        |(message, _)| {
            let detail = format!("Column \"{field}\" is never {}.", value.to_json());
            ExprError::new(ExprErrorKind::TypeMismatch, 0..0, message).with_detail(detail)
        },
    )
}

/// The values of a `state` trigger that its column can never have.
pub fn check_transition(transition: &Transition, shape: &TableShape) -> Vec<ExprError> {
    let Some(field) = &transition.field else { return Vec::new() };
    let is_boolean = shape.columns.iter().any(|(column, kind)| column == field && *kind == ColumnType::Bool);
    let sides = [&transition.from, &transition.to].into_iter().flatten();
    sides
        .flat_map(Matcher::values)
        .filter_map(|value| match value.as_str().and_then(boolean_from_text) {
            Some(_) if is_boolean => None,
            _ => check_value(shape, field, value).err(),
        })
        .map(|error| if is_boolean { error.with_hint("Use true or false.") } else { error })
        .collect()
}

/// The ids of a `trigger` condition.
pub fn check_triggers(ids: &[String], names: &Names) -> Vec<ExprError> {
    let Some(known) = &names.triggers else { return Vec::new() };
    let unknown = ids.iter().filter(|id| !known.contains(id) && *id != MANUAL);
    unknown
        .map(|id| {
            let near = nearest(id, known.iter().map(String::as_str));
            let error = ExprError::new(ExprErrorKind::UnknownName, 0..0, format!("trigger \"{id}\" does not exist"));
            match near {
                Some(near) => error.with_suggestion(Some(near)),
                None => error.with_hint(format!("There are {}.", known.join(", "))),
            }
        })
        .collect()
}

/// The column a path leads to and the accesses after it; `None` if it leads to no known row.
pub fn column<'a>(base: &Node, steps: &'a [Access], names: &Names) -> Result<Option<(Type, &'a [Access])>, ExprError> {
    let (shape, steps) = match (&base.kind, steps) {
        (Kind::Root(root), steps) if matches!(&**root, "new" | "old") => (names.row.as_ref(), steps),
        (Kind::Root(root), [Access::Member(name, span), rest @ ..]) if &**root == "event" => match &**name {
            "prev" | "next" => (names.row.as_ref(), rest),
            name => {
                if !EVENT_FIELDS.contains(&name)
                    && let Some(near) = nearest(name, EVENT_FIELDS)
                {
                    let message = format!("\"event\" has no member \"{name}\"");
                    let error = ExprError::new(ExprErrorKind::UnknownName, past_dot(*span), message);
                    return Err(error.with_suggestion(Some(near)));
                }
                return Ok(None);
            }
        },
        (Kind::Root(root), [Access::Member(name, span), ..]) if &**root == "run" => {
            if !names.run.contains(&&**name) {
                let message = format!("\"run\" has no member \"{name}\"");
                let error = ExprError::new(ExprErrorKind::UnknownName, past_dot(*span), message);
                return Err(match nearest(name, names.run.iter().copied()) {
                    Some(near) => error.with_suggestion(Some(near)),
                    None => error.with_hint(format!("Known are {}.", names.run.join(", "))),
                });
            }
            return Ok(None);
        }
        (Kind::State(read), steps) => match (&read.kind.kind, &names.kinds) {
            (Kind::Literal(Value::Text(kind)), Some(kinds)) => {
                (kinds.iter().find(|known| *known.name == **kind).and_then(|known| known.shape.as_ref()), steps)
            }
            _ => (None, steps),
        },
        _ => (None, steps),
    };
    let (Some(shape), [Access::Member(name, span), rest @ ..]) = (shape, steps) else { return Ok(None) };
    match shape.columns.iter().find(|(column, _)| **column == **name) {
        Some((_, kind)) => Ok(Some((kind.value_type(), rest))),
        None => Err(shape.no_column(name, past_dot(*span))),
    }
}

/// The caret belongs under the name, not under its dot.
fn past_dot(span: Span) -> Range<usize> {
    span.start as usize + 1..span.end as usize
}

/// Whether a parameter takes a type.
pub fn accepts(param: Type, found: Type) -> bool {
    match (param, found) {
        (_, Type::Any | Type::Null) | (Type::Any, _) => true,
        (a, b) if a == b => true,
        (Type::Text, found) => !matches!(found, Type::List | Type::Object),
        (Type::Number | Type::Duration, Type::Text) => true,
        (Type::Time | Type::Date, Type::Text | Type::Date | Type::Time) => true,
        _ => false,
    }
}

/// The type that a call returns, where that depends on its arguments.
pub fn returned(function: &Function, args: &[Type]) -> Type {
    if !matches!(function.name, "coalesce" | "default" | "min" | "max" | "nullif") {
        return function.returns;
    }
    let mut known = args.iter().copied().filter(|t| *t != Type::Null);
    match known.next() {
        Some(Type::List) | None => Type::Any,
        Some(first) if known.all(|t| t == first) => first,
        Some(_) => Type::Any,
    }
}

/// Whether two sides can sensibly be compared; else a message and perhaps a hint.
pub fn comparable(op: CompareOp, a: &Operand<'_>, b: &Operand<'_>) -> Result<(), (String, Option<String>)> {
    let refuse = |hint: Option<&str>| {
        let verb = if op.is_equality() { "compare" } else { "order" };
        Err((format!("cannot {verb} {} and {}", a.kind.phrase(), b.kind.phrase()), hint.map(str::to_owned)))
    };
    let orderable = |kind: Type| !matches!(kind, Type::List | Type::Object);
    match (a.kind, b.kind) {
        (x, y) if !(op.is_equality() || orderable(x) && orderable(y)) => refuse(None),
        (Type::Any | Type::Null, _) | (_, Type::Any | Type::Null) => Ok(()),
        (x, y) if x == y => Ok(()),
        (Type::Time | Type::Date, Type::Time | Type::Date) => Ok(()),
        (Type::Text, other) | (other, Type::Text) => {
            let text = if a.kind == Type::Text { a } else { b };
            match (text.literal, other) {
                (Some(literal), Type::Number) if literal.as_number().is_some() => Ok(()),
                (Some(literal), Type::Time | Type::Date) if literal.as_time().is_some() => Ok(()),
                (Some(literal), Type::Duration) if literal.as_duration().is_some() => Ok(()),
                (Some(_), Type::Time | Type::Date) => refuse(Some("Write a time as '2026-01-05T10:00:00Z'.")),
                (Some(_), Type::Duration) => refuse(Some("Write a duration as 15 minutes or 'PT15M'.")),
                (None, Type::Number) => refuse(Some("Write number(x) or text(x) to convert one of them.")),
                (None, Type::Time | Type::Date | Type::Duration) => Ok(()),
                _ => refuse(None),
            }
        }
        _ => refuse(None),
    }
}

/// The type of a sum, difference or product; `None` if there is none.
pub fn combined(op: ArithmeticOp, a: &Operand<'_>, b: &Operand<'_>) -> Option<Type> {
    use ArithmeticOp::{Add, Divide, Multiply, Subtract};
    Some(match (op, a.kind, b.kind) {
        (_, Type::Null, _) | (_, _, Type::Null) => Type::Any,
        (Add, Type::Text, _) => Type::Text,
        (_, Type::Any, _) | (_, _, Type::Any) => Type::Any,
        (_, Type::Number, Type::Number) => Type::Number,
        (Add, Type::Number | Type::Bool, Type::Text) => Type::Text,
        (Add | Subtract, Type::Time, Type::Duration) | (Add, Type::Duration, Type::Time) => Type::Time,
        (Add | Subtract, Type::Date, Type::Duration) | (Add, Type::Duration, Type::Date) => Type::Any,
        (Add | Subtract, Type::Date, Type::Number) => Type::Date,
        (Subtract, Type::Date, Type::Date) => Type::Number,
        (Subtract, Type::Time | Type::Date | Type::Text, Type::Time | Type::Date) => Type::Duration,
        (Add | Subtract, Type::Time | Type::Duration, Type::Text) => Type::Any,
        (Subtract, Type::Text, Type::Duration) => Type::Time,
        (Add | Subtract, Type::Duration, Type::Duration) => Type::Duration,
        (Multiply | Divide, Type::Duration, Type::Number) | (Multiply, Type::Number, Type::Duration) => Type::Duration,
        (Add, Type::List, Type::List) => Type::List,
        (Add, _, _) => return None,
        (_, Type::Text | Type::Number, Type::Text | Type::Number) => {
            let spells_number = |side: &Operand<'_>| {
                side.kind == Type::Number || side.literal.is_none_or(|literal| literal.as_number().is_some())
            };
            return (spells_number(a) && spells_number(b)).then_some(Type::Number);
        }
        _ => return None,
    })
}
