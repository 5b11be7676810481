//! The reads of an expression: which entities, which roots, whether the clock.
//!
//! The wake-index is built from these references, so they must never miss a read. A computed id becomes the whole kind;
//! a computed kind cannot be indexed at all and is reported.

use super::ast::{Kind, Node};
use super::functions::Purity;
use super::names::EVENT_ROOTS;
use super::{Budget, Scope, eval};
use crate::value::Value;
use std::collections::BTreeSet;
use std::fmt;

/// An entity, or all entities of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The kind.
    pub kind: String,
    /// The id; `None` if it is computed, which means any.
    pub id: Option<String>,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id.as_deref().unwrap_or("*"))
    }
}

/// Everything an expression or condition reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The entities.
    pub entities: BTreeSet<Reference>,
    /// Reads whose kind is not even visible, as written; a change of them cannot be noticed.
    pub indeterminate: Vec<String>,
    /// Whether the value can change with time alone.
    pub clock: bool,
}

impl References {
    /// Whether some read cannot be indexed.
    pub fn is_indeterminate(&self) -> bool {
        !self.indeterminate.is_empty()
    }

    /// Adds the references of another expression.
    pub fn extend(&mut self, other: References) {
        self.entities.extend(other.entities);
        self.indeterminate.extend(other.indeterminate);
        self.clock |= other.clock;
    }
}

/// The entities a tree reads, those inside computed ids included.
pub fn of(node: &Node) -> References {
    let mut found = References::default();
    collect(node, &mut found, &mut literal_text);
    found
}

/// The same with computed kinds and ids worked out, if neither state nor the clock takes part in them.
pub fn resolved(node: &Node, scope: &dyn Scope, budget: &mut Budget) -> References {
    let mut found = References::default();
    collect(node, &mut found, &mut |key| {
        literal_text(key).or_else(|| {
            let fixed = of(key);
            if fixed.clock || !fixed.entities.is_empty() || fixed.is_indeterminate() {
                return None;
            }
            eval::eval(key, scope, budget).ok()?.to_text()
        })
    });
    found
}

fn collect(node: &Node, found: &mut References, key: &mut dyn FnMut(&Node) -> Option<String>) {
    match &node.kind {
        Kind::State(read) => match key(&read.kind) {
            Some(kind) => {
                found.entities.insert(Reference { kind, id: key(&read.id) });
            }
            None => found.indeterminate.push(super::print::print(node)),
        },
        Kind::Call(function, _) if function.purity == Purity::Clock => found.clock = true,
        _ => {}
    }
    node.each_child(&mut |child| collect(child, found, key));
}

fn literal_text(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Literal(value @ (Value::Text(_) | Value::Number(_) | Value::Bool(_))) => value.to_text(),
        _ => None,
    }
}

/// The roots a tree uses.
pub fn roots(node: &Node) -> BTreeSet<String> {
    fn collect(node: &Node, found: &mut BTreeSet<String>) {
        match &node.kind {
            Kind::Root(name) => {
                found.insert(name.to_string());
            }
            Kind::State(_) => {
                found.insert("state".to_owned());
            }
            _ => {}
        }
        node.each_child(&mut |child| collect(child, found));
    }
    let mut found = BTreeSet::new();
    collect(node, &mut found);
    found
}

/// Whether nothing but the event decides the value.
pub fn is_pure_event(node: &Node) -> bool {
    let pure = match &node.kind {
        Kind::Root(name) => EVENT_ROOTS.contains(&&**name),
        Kind::State(_) => false,
        Kind::Call(function, _) => function.purity == Purity::Pure,
        _ => true,
    };
    let mut all = pure;
    node.each_child(&mut |child| all = all && is_pure_event(child));
    all
}

/// Whether the tree has a path, a known root, a state read or a call; `{{1}}` and `{{a}}` have none.
pub fn reads_something(node: &Node) -> bool {
    let mut found = match &node.kind {
        Kind::Root(name) => super::names::is_root(name),
        Kind::State(_) | Kind::Path(..) | Kind::Call(..) => true,
        _ => false,
    };
    node.each_child(&mut |child| found = found || reads_something(child));
    found
}

/// Whether the tree reads neither the scope nor state nor the clock.
pub fn is_constant(node: &Node) -> bool {
    let mut constant = match &node.kind {
        Kind::Root(_) | Kind::State(_) => false,
        Kind::Call(function, _) => function.purity == Purity::Pure,
        _ => true,
    };
    node.each_child(&mut |child| constant = constant && is_constant(child));
    constant
}
