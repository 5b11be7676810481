//! Text to tree. The only file that names the grammar's rules.

use super::ast::{Access, ArithmeticOp, CompareOp, Kind, LikeFlags, Node, Span};
use super::error::{ExprError, ExprErrorKind};
use super::{functions, limits, names, syntax};
use crate::value::{Duration, Number, Value, unit_of};
use pest::Parser;
use pest::iterators::{Pair, Pairs};
use pest_derive::Parser;
use std::sync::Arc;

#[derive(Parser)]
#[grammar = "expr/grammar.pest"]
struct Grammar;

/// How many prefixes, pipes and chained equalities one expression may have; each makes the tree one level deeper.
const MAX_WRAPS: usize = 256;

type Parsed<T = Node> = Result<T, ExprError>;

/// Parses a whole text.
pub fn parse(text: &str) -> Parsed {
    limits::check(text)?;
    let mut pairs = Grammar::parse(Rule::input, text).map_err(|e| {
        let at = match e.location {
            pest::error::InputLocation::Pos(at) => at,
            pest::error::InputLocation::Span((at, _)) => at,
        };
        match e.variant {
            pest::error::ErrorVariant::ParsingError { .. } => syntax::unexpected(text, at),
            // the parser stops before it would overflow the stack
            pest::error::ErrorVariant::CustomError { message } => {
                ExprError::new(ExprErrorKind::TooComplex, at..at, "expression is too complex").with_detail(message)
            }
        }
    })?;
    let expr = pairs.next().ok_or_else(|| syntax::unexpected(text, 0))?;
    Builder { text, wraps: 0 }.expr(expr)
}

struct Builder<'a> {
    text: &'a str,
    wraps: usize,
}

impl<'a> Builder<'a> {
    fn node(&self, kind: Kind, span: Span) -> Node {
        Node { kind, span }
    }

    fn wrap(&mut self, span: Span) -> Parsed<()> {
        self.wraps += 1;
        if self.wraps > MAX_WRAPS {
            return Err(ExprError::new(ExprErrorKind::TooComplex, span.range(), "expression is too complex")
                .with_detail(format!("It has more than {MAX_WRAPS} prefixes, pipes and chained comparisons.")));
        }
        Ok(())
    }

    /// A pair that the grammar promises; its absence is a bug of ours, reported as such.
    fn next(&self, pairs: &mut Pairs<'a, Rule>) -> Parsed<Pair<'a, Rule>> {
        pairs.next().ok_or_else(|| self.bug(0))
    }

    fn bug(&self, at: usize) -> ExprError {
        ExprError::new(ExprErrorKind::Syntax, at..at, "automation_engine bug: the grammar and its reader disagree")
    }

    fn expr(&mut self, pair: Pair<'a, Rule>) -> Parsed {
        let span = span_of(&pair);
        let mut inner = pair.into_inner();
        let first = self.next(&mut inner)?;
        let condition = self.pipe(first)?;
        match (inner.next(), inner.next()) {
            (Some(yes), Some(no)) => {
                let three = (condition, self.expr(yes)?, self.expr(no)?);
                Ok(self.node(Kind::Ternary(Box::new(three)), span))
            }
            _ => Ok(condition),
        }
    }

    fn pipe(&mut self, pair: Pair<'a, Rule>) -> Parsed {
        let start = span_of(&pair).start;
        let mut inner = pair.into_inner();
        let first = self.next(&mut inner)?;
        let mut node = self.any(first)?;
        for filter in inner.filter(|p| p.as_rule() == Rule::filter) {
            let span = Span { start, end: span_of(&filter).end };
            self.wrap(span)?;
            let mut parts = filter.into_inner();
            let name = self.next(&mut parts)?;
            let mut args = vec![node];
            if let Some(rest) = parts.next() {
                args.extend(self.all(rest)?);
            }
            node = self.call(&name, args, span)?;
        }
        Ok(node)
    }

    fn all(&mut self, pair: Pair<'a, Rule>) -> Parsed<Vec<Node>> {
        pair.into_inner().map(|p| self.expr(p)).collect()
    }

    /// The binary layers share one shape: a lone operand passes through unchanged.
    fn any(&mut self, pair: Pair<'a, Rule>) -> Parsed {
        let pair = lone_operand(pair);
        let span = span_of(&pair);
        let rule = pair.as_rule();
        let mut inner = pair.into_inner();
        match rule {
            Rule::or | Rule::and => {
                let operands = inner.filter(|p| !matches!(p.as_rule(), Rule::or_op | Rule::and_op));
                let mut nodes = operands.map(|p| self.any(p)).collect::<Parsed<Vec<Node>>>()?;
                if nodes.len() == 1 {
                    return nodes.pop().ok_or_else(|| self.bug(0));
                }
                Ok(self.node(if rule == Rule::or { Kind::Or(nodes) } else { Kind::And(nodes) }, span))
            }
            Rule::not => self.prefixed(inner),
            Rule::equality => self.equality(inner),
            Rule::relation => {
                let first = self.next(&mut inner)?;
                let left = self.any(first)?;
                match inner.next() {
                    Some(tail) => self.tail(left, tail, span),
                    None => Ok(left),
                }
            }
            Rule::sum | Rule::product => self.arithmetic(inner, span),
            Rule::signed => self.prefixed(inner),
            Rule::postfix => self.postfix(inner, span),
            _ => Err(self.bug(span.start as usize)),
        }
    }

    fn prefixed(&mut self, inner: Pairs<'a, Rule>) -> Parsed {
        let mut parts: Vec<Pair<'a, Rule>> = inner.collect();
        let operand = parts.pop().ok_or_else(|| self.bug(0))?;
        let mut node = self.any(operand)?;
        for prefix in parts.iter().rev() {
            let span = Span { start: span_of(prefix).start, end: node.span.end };
            self.wrap(span)?;
            node = match prefix.as_str() {
                "-" => match node.kind {
                    Kind::Literal(Value::Number(n)) => self.node(Kind::Literal(Value::Number(n.neg())), span),
                    _ => self.node(Kind::Negate(Box::new(node)), span),
                },
                "+" => node,
                _ => self.node(Kind::Not(Box::new(node)), span),
            };
        }
        Ok(node)
    }

    fn equality(&mut self, mut inner: Pairs<'a, Rule>) -> Parsed {
        let first = self.next(&mut inner)?;
        let mut node = self.any(first)?;
        while let Some(op) = inner.next() {
            let right = self.next(&mut inner)?;
            let right = self.any(right)?;
            let span = Span { start: node.span.start, end: right.span.end };
            self.wrap(span)?;
            let op = if matches!(op.as_str(), "=" | "==") { CompareOp::Equal } else { CompareOp::NotEqual };
            node = self.node(Kind::Compare(op, Box::new((node, right))), span);
        }
        Ok(node)
    }

    fn arithmetic(&mut self, mut inner: Pairs<'a, Rule>, span: Span) -> Parsed {
        let first = self.next(&mut inner)?;
        let first = self.any(first)?;
        let mut rest = Vec::new();
        while let Some(op) = inner.next() {
            let op = match op.as_str() {
                "+" => ArithmeticOp::Add,
                "-" => ArithmeticOp::Subtract,
                "*" => ArithmeticOp::Multiply,
                "/" => ArithmeticOp::Divide,
                _ => ArithmeticOp::Remainder,
            };
            let operand = self.next(&mut inner)?;
            rest.push((op, self.any(operand)?));
        }
        if rest.is_empty() { Ok(first) } else { Ok(self.node(Kind::Arithmetic(Box::new(first), rest), span)) }
    }

    fn tail(&mut self, left: Node, tail: Pair<'a, Rule>, span: Span) -> Parsed {
        let rule = tail.as_rule();
        let tail_span = span_of(&tail);
        let mut parts: Vec<Pair<'a, Rule>> = tail.into_inner().filter(|p| p.as_rule() != Rule::between_and).collect();
        let negated = parts.first().is_some_and(|p| p.as_rule() == Rule::not_op)
            || (rule == Rule::is_null && parts.get(1).is_some_and(|p| p.as_rule() == Rule::not_op));
        let last = parts.pop();
        let operand = |this: &mut Self, pair: Option<Pair<'a, Rule>>| match pair {
            Some(pair) => this.any(pair),
            None => Err(this.bug(tail_span.start as usize)),
        };
        let kind = match rule {
            Rule::order => {
                let op = match parts.first().map(|p| p.as_str()) {
                    Some("<") => CompareOp::Less,
                    Some("<=") => CompareOp::LessOrEqual,
                    Some(">") => CompareOp::Greater,
                    _ => CompareOp::GreaterOrEqual,
                };
                Kind::Compare(op, Box::new((left, operand(self, last)?)))
            }
            Rule::becomes => {
                let old = names::old_side(&left)?;
                Kind::Becomes(Box::new((left, old, operand(self, last)?)))
            }
            Rule::changed => {
                let old = names::old_side(&left)?;
                Kind::Changed(Box::new((left, old)))
            }
            Rule::is_null => {
                let wanted = match last {
                    Some(word) if word.as_rule() == Rule::boolean => Value::Bool(is_true(word.as_str())),
                    _ => Value::Null,
                };
                Kind::Is(Box::new(left), wanted, negated)
            }
            Rule::between => {
                let high = operand(self, last)?;
                let low = operand(self, parts.pop())?;
                Kind::Between(Box::new((left, low, high)), negated)
            }
            Rule::in_list => {
                let pair = last.ok_or_else(|| self.bug(0))?;
                let right = match sole_group(pair.clone()) {
                    Some(group) => self.group_as_list(group)?,
                    None => self.any(pair)?,
                };
                Kind::In(Box::new((left, right)), negated)
            }
            Rule::like => {
                let any_case = parts.iter().any(|p| p.as_str().eq_ignore_ascii_case("ilike"));
                Kind::Like(Box::new((left, operand(self, last)?)), LikeFlags { negated, any_case })
            }
            _ => return Err(self.bug(tail_span.start as usize)),
        };
        Ok(self.node(kind, span))
    }

    /// `x in ('a', 'b')` as in SQL. A lone constant is a list of one; a lone expression may be a list itself.
    fn group_as_list(&mut self, group: Pair<'a, Rule>) -> Parsed {
        let span = span_of(&group);
        let mut items = self.all(group)?;
        match items.pop() {
            Some(only) if items.is_empty() && !matches!(only.kind, Kind::Literal(_)) => Ok(only),
            last => {
                items.extend(last);
                Ok(self.node(Kind::List(items), span))
            }
        }
    }

    fn postfix(&mut self, mut inner: Pairs<'a, Rule>, span: Span) -> Parsed {
        let first = self.next(&mut inner)?;
        let base = self.primary(first)?;
        let mut steps = Vec::new();
        for access in inner {
            let step_span = span_of(&access);
            let is_member = access.as_rule() == Rule::member;
            let mut parts = access.into_inner();
            let name = self.next(&mut parts)?;
            steps.push(if is_member {
                let text =
                    if name.as_rule() == Rule::double { unquote_double(&name)? } else { name.as_str().to_owned() };
                Access::Member(Arc::from(text), step_span)
            } else {
                match self.expr(name)? {
                    Node { kind: Kind::Literal(Value::Text(key)), .. } => Access::Member(key, step_span),
                    node => Access::Index(node),
                }
            });
        }
        names::resolve(base, steps, span)
    }

    fn primary(&mut self, pair: Pair<'a, Rule>) -> Parsed {
        let span = span_of(&pair);
        let kind = match pair.as_rule() {
            Rule::number => Kind::Literal(Value::Number(number(&pair)?)),
            Rule::duration => Kind::Literal(Value::Duration(duration(pair)?)),
            Rule::single => Kind::Literal(Value::Text(unquote_single(&pair)?)),
            Rule::double => Kind::Literal(Value::text(unquote_double(&pair)?)),
            Rule::boolean => Kind::Literal(Value::Bool(is_true(pair.as_str()))),
            Rule::null => Kind::Literal(Value::Null),
            Rule::ident => Kind::Root(names::canonical_root(pair.as_str())),
            Rule::list => Kind::List(self.all(pair)?),
            Rule::object => Kind::Object(pair.into_inner().map(|p| self.entry(p)).collect::<Parsed<_>>()?),
            Rule::group => {
                let mut inner = pair.into_inner();
                let first = self.next(&mut inner)?;
                let node = self.expr(first)?;
                if let Some(second) = inner.next() {
                    let at = self.text[node.span.end as usize..second.as_span().start()].find(',').unwrap_or(0);
                    return Err(syntax::unexpected(self.text, node.span.end as usize + at)
                        .with_hint("Write a list in square brackets: [a, b]."));
                }
                // the parentheses belong to the operand, so that errors and clauses show them
                return Ok(Node { kind: node.kind, span });
            }
            Rule::call => {
                let mut inner = pair.into_inner();
                let name = self.next(&mut inner)?;
                let args = match inner.next() {
                    Some(args) => self.all(args)?,
                    None => Vec::new(),
                };
                return self.call(&name, args, span);
            }
            _ => return Err(self.bug(span.start as usize)),
        };
        Ok(self.node(kind, span))
    }

    fn entry(&mut self, pair: Pair<'a, Rule>) -> Parsed<(Arc<str>, Node)> {
        let mut inner = pair.into_inner();
        let key = self.next(&mut inner)?;
        let name = match key.as_rule() {
            Rule::single => unquote_single(&key)?,
            Rule::double => Arc::from(unquote_double(&key)?),
            _ => Arc::from(key.as_str()),
        };
        let _colon = self.next(&mut inner)?;
        let value = self.next(&mut inner)?;
        Ok((name, self.expr(value)?))
    }

    fn call(&mut self, name: &Pair<'a, Rule>, args: Vec<Node>, span: Span) -> Parsed {
        let function = functions::resolve(name.as_str(), args.len(), span_of(name).range())?;
        Ok(self.node(Kind::Call(function, args), span))
    }
}

/// Skips the layers that hold a single operand, so that the recursion is as deep as the text and no deeper.
fn lone_operand(mut pair: Pair<'_, Rule>) -> Pair<'_, Rule> {
    while !matches!(pair.as_rule(), Rule::postfix) {
        let mut inner = pair.clone().into_inner();
        match (inner.next(), inner.next()) {
            (Some(only), None) => pair = only,
            _ => break,
        }
    }
    pair
}

fn span_of(pair: &Pair<'_, Rule>) -> Span {
    // pest ends a rule after trailing space it skipped while looking for more
    let text = pair.as_str();
    let start = pair.as_span().start();
    Span { start: start as u32, end: (start + text.trim_end().len()) as u32 }
}

fn is_true(word: &str) -> bool {
    word.eq_ignore_ascii_case("true")
}

/// The group that is all there is of an operand, as in `x in ('a', 'b')`.
fn sole_group(mut pair: Pair<'_, Rule>) -> Option<Pair<'_, Rule>> {
    loop {
        if pair.as_rule() == Rule::group {
            return Some(pair);
        }
        if !matches!(pair.as_rule(), Rule::sum | Rule::product | Rule::signed | Rule::postfix) {
            return None;
        }
        let mut inner = pair.into_inner();
        pair = inner.next()?;
        if inner.next().is_some() {
            return None;
        }
    }
}

fn number(pair: &Pair<'_, Rule>) -> Parsed<Number> {
    Number::parse(pair.as_str())
        .ok_or_else(|| ExprError::new(ExprErrorKind::OutOfRange, span_of(pair).range(), "number out of range"))
}

fn duration(pair: Pair<'_, Rule>) -> Parsed<Duration> {
    let span = span_of(&pair);
    let out_of_range = || ExprError::new(ExprErrorKind::OutOfRange, span.range(), "duration out of range");
    let parts: Vec<Pair<'_, Rule>> = pair.into_inner().collect();
    let mut total = Duration::default();
    for part in parts.chunks(2) {
        if let [amount, unit] = part {
            let unit = unit_of(unit.as_str()).ok_or_else(out_of_range)?;
            let length = Duration::of(&number(amount)?, unit).ok_or_else(out_of_range)?;
            total = total.plus(length).ok_or_else(out_of_range)?;
        }
    }
    Ok(total)
}

fn unquote_single(pair: &Pair<'_, Rule>) -> Parsed<Arc<str>> {
    let text = pair.as_str();
    let inner = &text[1..text.len() - 1];
    syntax::refuse_nul(inner, span_of(pair).range())?;
    Ok(if inner.contains("''") { Arc::from(inner.replace("''", "'")) } else { Arc::from(inner) })
}

fn unquote_double(pair: &Pair<'_, Rule>) -> Parsed<String> {
    syntax::unquote_json(pair.as_str(), pair.as_span().start())
}
