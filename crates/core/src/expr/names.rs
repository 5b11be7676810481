//! The names an expression can start from, and the shapes that stand for something else.

use super::ast::{Access, Kind, Node, Span, StateRead};
use super::error::{ExprError, ExprErrorKind};
use crate::value::Value;
use std::sync::Arc;

/// Every root an automation can see. `prev`, `next` and `ctx.input` are other spellings of `old`, `new` and `event`.
pub const ROOTS: [&str; 18] = [
    "event", "old", "prev", "new", "next", "payload", "trigger", "state", "vars", "steps", "run", "wait", "repeat",
    "item", "window", "error", "health", "ctx",
];

/// Roots that are known once the event is.
pub const EVENT_ROOTS: [&str; 5] = ["event", "old", "new", "payload", "trigger"];

/// Whether a name is a root.
pub fn is_root(name: &str) -> bool {
    ROOTS.contains(&name)
}

/// `prev` and `next` are `old` and `new`.
pub fn canonical_root(name: &str) -> Arc<str> {
    Arc::from(match name {
        "prev" => "old",
        "next" => "new",
        other => other,
    })
}

/// Puts a base and its steps together, resolving `state.*`, `health.*` and `ctx.input`.
pub fn resolve(base: Node, steps: Vec<Access>, span: Span) -> Result<Node, ExprError> {
    if let Kind::Root(name) = &base.kind {
        match &**name {
            "state" => return state(steps, span),
            "health" => return health(steps, span),
            "ctx" if matches!(steps.first(), Some(Access::Member(name, _)) if &**name == "input") => {
                let event = Node { kind: Kind::Root(Arc::from("event")), span: base.span };
                return Ok(path(event, steps.into_iter().skip(1).collect(), span));
            }
            _ => {}
        }
    }
    Ok(path(base, steps, span))
}

fn path(base: Node, steps: Vec<Access>, span: Span) -> Node {
    if steps.is_empty() {
        return base;
    }
    match base.kind {
        // (a.b).c is a.b.c
        Kind::Path(inner, mut before) => {
            before.extend(steps);
            Node { kind: Kind::Path(inner, before), span }
        }
        _ => Node { kind: Kind::Path(Box::new(base), steps), span },
    }
}

fn state(steps: Vec<Access>, span: Span) -> Result<Node, ExprError> {
    let mut steps = steps.into_iter();
    let (Some(kind), Some(id)) = (steps.next(), steps.next()) else {
        return Err(ExprError::new(ExprErrorKind::Syntax, span.range(), "\"state\" needs a kind and an id")
            .with_hint("Write state.orders[new.id].status, or state.orders.42.status."));
    };
    let read = StateRead { kind: as_node(kind), id: as_node(id) };
    Ok(path(Node { kind: Kind::State(Box::new(read)), span }, steps.collect(), span))
}

fn health(steps: Vec<Access>, span: Span) -> Result<Node, ExprError> {
    let kind = Node { kind: Kind::Literal(Value::text("health")), span };
    let mut rest = steps.into_iter();
    let id = match rest.next() {
        Some(Access::Member(name, _)) if &*name == "systems" => rest.next().map(as_node),
        // the system the event is about
        Some(Access::Member(name, _)) if &*name == "system" => {
            let event = Node { kind: Kind::Root(Arc::from("event")), span };
            Some(path(event, vec![Access::Member(Arc::from("id"), span)], span))
        }
        _ => None,
    };
    let Some(id) = id else {
        return Err(ExprError::new(ExprErrorKind::Syntax, span.range(), "\"health\" needs a system")
            .with_hint("Write health.systems['db-1'].status, or health.system.status."));
    };
    let read = StateRead { kind, id };
    Ok(path(Node { kind: Kind::State(Box::new(read)), span }, rest.collect(), span))
}

fn as_node(access: Access) -> Node {
    match access {
        // past the dot or bracket
        Access::Member(name, span) => {
            Node { kind: Kind::Literal(Value::Text(name)), span: Span { start: span.start + 1, end: span.end } }
        }
        Access::Index(node) => node,
    }
}

/// The same field before the change, for `becomes` and `changed`.
pub fn old_side(node: &Node) -> Result<Node, ExprError> {
    let member = |name: &str| Access::Member(Arc::from(name), node.span);
    let old = match &node.kind {
        Kind::Root(name) if &**name == "new" => Some(Kind::Root(Arc::from("old"))),
        Kind::Path(base, steps) => match (&base.kind, steps.first()) {
            (Kind::Root(name), _) if &**name == "new" => {
                let root = Node { kind: Kind::Root(Arc::from("old")), span: base.span };
                Some(Kind::Path(Box::new(root), steps.clone()))
            }
            (Kind::Root(name), Some(Access::Member(first, _))) if &**name == "event" && &**first == "next" => {
                let steps = std::iter::once(member("prev")).chain(steps.iter().skip(1).cloned()).collect();
                Some(Kind::Path(base.clone(), steps))
            }
            _ => None,
        },
        _ => None,
    };
    match old {
        Some(kind) => Ok(Node { kind, span: node.span }),
        None => Err(ExprError::new(
            ExprErrorKind::TypeMismatch,
            node.span.range(),
            "\"becomes\" and \"changed\" need a field of the changed row",
        )
        .with_hint("Start with new, as in new.status becomes 'paid'.")),
    }
}
