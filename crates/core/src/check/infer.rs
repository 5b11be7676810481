//! The type of every part of an expression, as far as it can be known, and the errors found on the way.

use super::Names;
use super::rules::{self, Operand};
use crate::expr::{
    Access, ArithmeticOp, Budget, CompareOp, Expr, ExprError, ExprErrorKind, FixedScope, Kind, Node, Type, type_of,
};
use crate::value::{Timestamp, Value};

/// Walks one expression.
pub struct Checker<'a> {
    names: &'a Names,
    /// The errors found so far.
    pub errors: Vec<ExprError>,
}

impl<'a> Checker<'a> {
    /// Starts with nothing found.
    pub fn new(names: &'a Names) -> Checker<'a> {
        Checker { names, errors: Vec::new() }
    }

    /// The type of a node.
    pub fn infer(&mut self, node: &Node) -> Type {
        match &node.kind {
            Kind::Literal(value) => type_of(value),
            Kind::Root(name) => {
                self.keep(rules::check_root(name, node, self.names));
                Type::Any
            }
            Kind::State(read) => {
                if let Kind::Literal(Value::Text(kind)) = &read.kind.kind {
                    self.keep(rules::check_kind(kind, read.kind.span.range(), self.names));
                } else {
                    self.infer(&read.kind);
                }
                self.infer(&read.id);
                Type::Any
            }
            Kind::Path(base, steps) => self.path(node, base, steps),
            Kind::List(items) => {
                items.iter().for_each(|item| _ = self.infer(item));
                Type::List
            }
            Kind::Object(entries) => {
                entries.iter().for_each(|(_, value)| _ = self.infer(value));
                Type::Object
            }
            Kind::Not(inner) => self.booleans(std::slice::from_ref(inner)),
            Kind::And(parts) | Kind::Or(parts) => self.booleans(parts),
            Kind::Negate(inner) => match self.infer(inner) {
                found @ (Type::Number | Type::Duration | Type::Any | Type::Null) => found,
                found => self.mismatch(inner, format!("operator - does not take {}", found.phrase())),
            },
            Kind::Arithmetic(first, rest) => self.arithmetic(node, first, rest),
            Kind::Compare(op, pair) => self.compare(node, *op, &pair.0, &pair.1),
            Kind::Becomes(three) => self.compare(node, CompareOp::Equal, &three.0, &three.2),
            Kind::Changed(pair) => {
                self.infer(&pair.0);
                Type::Bool
            }
            Kind::In(pair, _) => self.membership(&pair.0, &pair.1),
            Kind::Like(pair, _) => {
                self.infer(&pair.0);
                let pattern = self.infer(&pair.1);
                if !matches!(pattern, Type::Text | Type::Any | Type::Null) {
                    self.mismatch(&pair.1, format!("the pattern of like is {}", pattern.phrase()));
                }
                Type::Bool
            }
            Kind::Between(three, _) => {
                self.compare(node, CompareOp::GreaterOrEqual, &three.0, &three.1);
                self.compare(node, CompareOp::LessOrEqual, &three.0, &three.2);
                self.errors.dedup();
                Type::Bool
            }
            Kind::Is(inner, ..) => {
                self.infer(inner);
                Type::Bool
            }
            Kind::Ternary(three) => {
                self.expect_boolean(&three.0);
                let (yes, no) = (self.infer(&three.1), self.infer(&three.2));
                match (yes, no) {
                    (a, b) if a == b => a,
                    (Type::Null, other) | (other, Type::Null) => other,
                    _ => Type::Any,
                }
            }
            Kind::Call(function, args) => {
                let before = self.errors.len();
                let types: Vec<Type> = args.iter().map(|arg| self.infer(arg)).collect();
                for (i, found) in types.iter().enumerate() {
                    let param = function.params.get(i).or(function.params.last().filter(|_| function.variadic));
                    if let Some(param) = param
                        && !rules::accepts(param.kind, *found)
                    {
                        let message = format!(
                            "function \"{}\" needs {} for \"{}\", not {}",
                            function.name,
                            param.kind.phrase(),
                            param.name,
                            found.phrase()
                        );
                        self.mismatch(&args[i], message);
                    }
                }
                if self.errors.len() == before {
                    self.constant_parts(node, function.name, args);
                }
                rules::returned(function, &types)
            }
            Kind::Join(parts) => {
                parts.iter().for_each(|part| _ = self.infer(part));
                Type::Text
            }
        }
    }

    /// The node must be true or false.
    pub fn expect_boolean(&mut self, node: &Node) -> Type {
        let found = self.infer(node);
        if !matches!(found, Type::Bool | Type::Any | Type::Null) {
            let message = format!("expected true or false, not {}", found.phrase());
            let hint = match found {
                Type::Text => "Compare it, as in x <> ''. To join texts, use +, not ||.",
                _ => "Compare it with something, as in x > 0 or x is not null.",
            };
            self.errors.push(ExprError::new(ExprErrorKind::TypeMismatch, node.span.range(), message).with_hint(hint));
        }
        Type::Bool
    }

    fn booleans<'n>(&mut self, parts: impl IntoIterator<Item = &'n (impl std::borrow::Borrow<Node> + 'n)>) -> Type {
        for part in parts {
            self.expect_boolean(part.borrow());
        }
        Type::Bool
    }

    fn keep<T>(&mut self, result: Result<T, ExprError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    fn mismatch(&mut self, node: &Node, message: String) -> Type {
        self.errors.push(ExprError::new(ExprErrorKind::TypeMismatch, node.span.range(), message));
        Type::Any
    }

    fn path(&mut self, node: &Node, base: &Node, steps: &[Access]) -> Type {
        for step in steps {
            if let Access::Index(index) = step {
                self.infer(index);
            }
        }
        let base_type = self.infer(base);
        match rules::column(base, steps, self.names) {
            Err(error) => {
                self.errors.push(error);
                Type::Any
            }
            Ok(Some((found, []))) => found,
            Ok(Some((found, rest))) => match found {
                Type::Any | Type::List | Type::Null => Type::Any,
                _ => {
                    let last = rest.iter().find_map(|step| match step {
                        Access::Member(name, _) => Some(format!("member \"{name}\"")),
                        Access::Index(_) => None,
                    });
                    let what = last.unwrap_or_else(|| "elements".to_owned());
                    self.mismatch(node, format!("{} has no {what}", found.phrase()))
                }
            },
            Ok(None) => match base_type {
                Type::Number | Type::Bool | Type::Text | Type::Duration | Type::Time | Type::Date => {
                    self.mismatch(node, format!("{} has no members", base_type.phrase()))
                }
                _ => Type::Any,
            },
        }
    }

    fn operand<'n>(&mut self, node: &'n Node) -> Operand<'n> {
        let literal = match &node.kind {
            Kind::Literal(value) => Some(value),
            _ => None,
        };
        Operand { kind: self.infer(node), literal }
    }

    fn compare(&mut self, node: &Node, op: CompareOp, a: &Node, b: &Node) -> Type {
        let (left, right) = (self.operand(a), self.operand(b));
        if let Err((message, hint)) = rules::comparable(op, &left, &right) {
            let error = ExprError::new(ExprErrorKind::TypeMismatch, node.span.range(), message);
            self.errors.push(match hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            });
        }
        Type::Bool
    }

    fn membership(&mut self, item: &Node, list: &Node) -> Type {
        let found = self.infer(list);
        if !matches!(found, Type::List | Type::Object | Type::Text | Type::Any | Type::Null) {
            self.mismatch(list, format!("\"in\" needs a list, not {}", found.phrase()));
        }
        let left = self.operand(item);
        if let Kind::List(items) = &list.kind {
            for element in items {
                let right = self.operand(element);
                if let Err((message, _)) = rules::comparable(CompareOp::Equal, &left, &right) {
                    self.mismatch(element, message);
                }
            }
        }
        self.errors.dedup();
        Type::Bool
    }

    fn arithmetic(&mut self, node: &Node, first: &Node, rest: &[(ArithmeticOp, Node)]) -> Type {
        let before = self.errors.len();
        let mut total = self.operand(first);
        for (op, next) in rest {
            let right = self.operand(next);
            total = match rules::combined(*op, &total, &right) {
                Some(found) => Operand { kind: found, literal: None },
                None => {
                    let message = format!(
                        "operator {} does not take {} and {}",
                        op.symbol(),
                        total.kind.phrase(),
                        right.kind.phrase()
                    );
                    Operand { kind: self.mismatch(node, message), literal: None }
                }
            };
        }
        if self.errors.len() == before {
            self.constant_parts(node, "", &[]);
        }
        total.kind
    }

    /// Evaluates constant parts now, to find their errors: `1 / 0`, a malformed pattern.
    fn constant_parts(&mut self, node: &Node, function: &str, args: &[Node]) {
        let scope = FixedScope::new(Value::Null, Timestamp(0));
        let try_node = |node: Node| {
            let expr = Expr::from_node("", node);
            match expr.is_constant() {
                true => expr.eval(&scope, &mut Budget::default()).err(),
                false => None,
            }
        };
        let mut error = try_node(node.clone());
        if error.is_none() && matches!(function, "matches" | "extract") && args.len() == 2 {
            let mut with_text = node.clone();
            if let Kind::Call(_, args) = &mut with_text.kind {
                args[0] = Node { kind: Kind::Literal(Value::text("")), span: args[0].span };
            }
            error = try_node(with_text);
        }
        self.errors.extend(error);
    }
}
