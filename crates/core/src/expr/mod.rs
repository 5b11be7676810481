//! The expression language: parse, check, evaluate, and list the reads of an expression.
//!
//! One language serves filters, conditions, keys and templates. It is pure: the only thing it can do is compute, and
//! the only thing it can read is its [`Scope`]. It never panics and stops when its [`Budget`] is used up.

mod ast;
mod error;
mod eval;
mod functions;
mod limits;
mod locate;
mod must_change;
mod names;
mod ops;
mod parse;
mod print;
mod references;
mod scope;
mod syntax;
mod timing;
mod types;
mod why;

pub use error::{ExprError, ExprErrorKind};
pub use functions::{Function, Purity, all as all_functions};
pub use limits::{MAX_NESTING, MAX_TEXT};
pub use names::ROOTS;
pub use references::{Reference, References};
pub use scope::{Budget, FixedScope, Scope, Watch, watch_evaluations};
pub use timing::TimeDependence;
pub use types::{Type, type_of};

pub(crate) use ast::{Access, ArithmeticOp, CompareOp, Kind, Node, Span};
pub(crate) use eval::root as root_of;
pub(crate) use locate::{Step, locate};
pub(crate) use ops::equal;
pub(crate) use syntax::{is_invisible, visible};
pub(crate) use why::refusal;

use crate::value::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed expression. Two are equal if they mean the same, however they are written.
#[derive(Clone, Debug)]
pub struct Expr {
    text: Arc<str>,
    root: Arc<Node>,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        self.root == other.root
    }
}

impl Expr {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Expr, ExprError> {
        Ok(Expr { text: Arc::from(text), root: Arc::new(parse::parse(text)?) })
    }

    /// An expression made of parts, with the text it stands for.
    pub(crate) fn from_node(text: &str, root: Node) -> Expr {
        Expr { text: Arc::from(text), root: Arc::new(root) }
    }

    /// The text as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn node(&self) -> &Node {
        &self.root
    }

    /// Computes the value.
    pub fn eval(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<Value, ExprError> {
        eval::eval(&self.root, scope, budget).map(std::borrow::Cow::into_owned).map_err(|e| *e)
    }

    /// Computes a condition: null counts as false, and anything but a boolean is a type mismatch.
    pub fn holds(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<bool, ExprError> {
        eval::holds(&self.root, scope, budget).map_err(|e| *e)
    }

    /// The entities the expression reads.
    pub fn references(&self) -> References {
        references::of(&self.root)
    }

    /// The entities the expression reads, with computed ids worked out where nothing but state and time could still
    /// change them. Only valid as long as the roots of the scope stay as they are.
    pub fn resolved_references(&self, scope: &dyn Scope, budget: &mut Budget) -> References {
        references::resolved(&self.root, scope, budget)
    }

    /// When time alone can change the value.
    pub fn time_dependence(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<TimeDependence, ExprError> {
        timing::of(&self.root, scope, budget)
    }

    /// The expression in canonical form; parsing it gives an equal expression.
    pub fn canonical(&self) -> String {
        print::print(&self.root)
    }

    /// The roots the expression uses: `new`, `vars`, `state`, ... in their canonical spelling.
    pub fn roots(&self) -> BTreeSet<String> {
        references::roots(&self.root)
    }

    /// Whether it reads anything at all, rather than being a constant.
    pub fn reads_something(&self) -> bool {
        references::reads_something(&self.root)
    }

    /// Whether it reads nothing, neither the scope nor state nor the clock.
    pub fn is_constant(&self) -> bool {
        references::is_constant(&self.root)
    }

    /// Whether the value depends on nothing but the event: no state, no clock, no variables.
    pub fn is_pure_event(&self) -> bool {
        references::is_pure_event(&self.root)
    }
}
