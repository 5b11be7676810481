//! The tree an expression parses to. Chains (`a and b and c`, `a.b.c`, `a + b + c`) are flat, so a long text is not
//! a deep tree.

use super::functions::Function;
use crate::value::Value;
use std::ops::Range;
use std::sync::Arc;

/// Byte offsets into the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// As a range of byte offsets.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A part of an expression with its place in the text. Two nodes are equal if they mean the same, wherever they stand.
#[derive(Clone, Debug)]
pub struct Node {
    /// The kind of the node, with its parts.
    pub kind: Kind,
    /// Its place in the text.
    pub span: Span,
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.kind == other.kind
    }
}

/// The kind of a node, with its parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A constant.
    Literal(Value),
    /// A name of the scope: `new`, `event`, `vars`.
    Root(Arc<str>),
    /// `state.<kind>[id]`: the current state of an entity.
    State(Box<StateRead>),
    /// A value and the members and indexes that follow it.
    Path(Box<Node>, Vec<Access>),
    /// `[a, b]`.
    List(Vec<Node>),
    /// `{"a": b}`.
    Object(Vec<(Arc<str>, Node)>),
    /// `not a`, `!a`.
    Not(Box<Node>),
    /// `-a`.
    Negate(Box<Node>),
    /// `a and b and c`.
    And(Vec<Node>),
    /// `a or b or c`.
    Or(Vec<Node>),
    /// A first term and the operations on it, left to right.
    Arithmetic(Box<Node>, Vec<(ArithmeticOp, Node)>),
    /// `a < b`.
    Compare(CompareOp, Box<(Node, Node)>),
    /// `a in b`; true to negate.
    In(Box<(Node, Node)>, bool),
    /// `a like b`.
    Like(Box<(Node, Node)>, LikeFlags),
    /// `a between b and c`; true to negate.
    Between(Box<(Node, Node, Node)>, bool),
    /// `a is null`, `a is true`; the last tells whether it is negated.
    Is(Box<Node>, Value, bool),
    /// `new.x becomes v`: the new value, the old value, the wanted value.
    Becomes(Box<(Node, Node, Node)>),
    /// `new.x changed`: the new value and the old value.
    Changed(Box<(Node, Node)>),
    /// `a ? b : c`.
    Ternary(Box<(Node, Node, Node)>),
    /// `lower(x)`, `x | lower`.
    Call(&'static Function, Vec<Node>),
    /// `"text {{ a }} text"` inside a payload: the parts joined as text.
    Join(Vec<Node>),
}

/// `state.<kind>[id]`.
#[derive(Clone, Debug, PartialEq)]
pub struct StateRead {
    /// The kind; a literal text unless it is computed.
    pub kind: Node,
    /// The id.
    pub id: Node,
}

/// One step of a path.
#[derive(Clone, Debug)]
pub enum Access {
    /// `.name`
    Member(Arc<str>, Span),
    /// `[expr]`
    Index(Node),
}

/// `a.name` and `a["name"]` are the same access.
impl PartialEq for Access {
    fn eq(&self, other: &Access) -> bool {
        match (self, other) {
            (Access::Member(a, _), Access::Member(b, _)) => a == b,
            (Access::Index(a), Access::Index(b)) => a == b,
            _ => false,
        }
    }
}

/// How a pattern is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikeFlags {
    /// `not like`
    pub negated: bool,
    /// `ilike`
    pub any_case: bool,
}

/// `+ - * / %`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
}

impl ArithmeticOp {
    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            ArithmeticOp::Add => "+",
            ArithmeticOp::Subtract => "-",
            ArithmeticOp::Multiply => "*",
            ArithmeticOp::Divide => "/",
            ArithmeticOp::Remainder => "%",
        }
    }
}

/// `= <> < <= > >=`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl CompareOp {
    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            CompareOp::Equal => "=",
            CompareOp::NotEqual => "<>",
            CompareOp::Less => "<",
            CompareOp::LessOrEqual => "<=",
            CompareOp::Greater => ">",
            CompareOp::GreaterOrEqual => ">=",
        }
    }

    /// Whether it asks only for equality.
    pub fn is_equality(self) -> bool {
        matches!(self, CompareOp::Equal | CompareOp::NotEqual)
    }
}

impl Node {
    /// Calls `visit` on the direct parts of this node.
    pub fn each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Node)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Root(_) => {}
            Kind::State(read) => {
                visit(&read.kind);
                visit(&read.id);
            }
            Kind::Path(base, steps) => {
                visit(base);
                for step in steps {
                    if let Access::Index(node) = step {
                        visit(node);
                    }
                }
            }
            Kind::List(nodes) | Kind::And(nodes) | Kind::Or(nodes) | Kind::Call(_, nodes) | Kind::Join(nodes) => {
                nodes.iter().for_each(visit);
            }
            Kind::Object(entries) => entries.iter().for_each(|(_, node)| visit(node)),
            Kind::Not(node) | Kind::Negate(node) | Kind::Is(node, ..) => visit(node),
            Kind::Arithmetic(first, rest) => {
                visit(first);
                rest.iter().for_each(|(_, node)| visit(node));
            }
            Kind::Compare(_, pair) | Kind::In(pair, _) | Kind::Like(pair, _) | Kind::Changed(pair) => {
                visit(&pair.0);
                visit(&pair.1);
            }
            Kind::Between(three, _) | Kind::Becomes(three) | Kind::Ternary(three) => {
                visit(&three.0);
                visit(&three.1);
                visit(&three.2);
            }
        }
    }

    /// Calls `visit` on the direct parts of this node, to change them.
    pub fn each_child_mut(&mut self, visit: &mut dyn FnMut(&mut Node)) {
        match &mut self.kind {
            Kind::Literal(_) | Kind::Root(_) => {}
            Kind::State(read) => {
                visit(&mut read.kind);
                visit(&mut read.id);
            }
            Kind::Path(base, steps) => {
                visit(base);
                for step in steps {
                    if let Access::Index(node) = step {
                        visit(node);
                    }
                }
            }
            Kind::List(nodes) | Kind::And(nodes) | Kind::Or(nodes) | Kind::Call(_, nodes) | Kind::Join(nodes) => {
                nodes.iter_mut().for_each(visit);
            }
            Kind::Object(entries) => entries.iter_mut().for_each(|(_, node)| visit(node)),
            Kind::Not(node) | Kind::Negate(node) | Kind::Is(node, ..) => visit(node),
            Kind::Arithmetic(first, rest) => {
                visit(first);
                rest.iter_mut().for_each(|(_, node)| visit(node));
            }
            Kind::Compare(_, pair) | Kind::In(pair, _) | Kind::Like(pair, _) | Kind::Changed(pair) => {
                visit(&mut pair.0);
                visit(&mut pair.1);
            }
            Kind::Between(three, _) | Kind::Becomes(three) | Kind::Ternary(three) => {
                visit(&mut three.0);
                visit(&mut three.1);
                visit(&mut three.2);
            }
        }
    }
}
