//! Why an expression said no, for people: the first clause of an `and` that is false, and the values it compared.

use super::ast::{Kind, Node};
use super::{Budget, Expr, ExprError, Scope, eval};
use crate::condition::Refusal;

/// The longest value shown.
const SHOWN: usize = 80;

/// The clause of a false expression that made it false.
pub fn refusal(expr: &Expr, scope: &dyn Scope, budget: &mut Budget) -> Result<Refusal, ExprError> {
    first_false(expr.node(), expr.text(), scope, budget)
}

fn first_false(node: &Node, text: &str, scope: &dyn Scope, budget: &mut Budget) -> Result<Refusal, ExprError> {
    if let Kind::And(parts) = &node.kind {
        for part in parts {
            if !eval::holds(part, scope, budget).map_err(|e| *e)? {
                return first_false(part, text, scope, budget);
            }
        }
    }
    let mut found = Vec::new();
    for side in sides(node) {
        if !matches!(side.kind, Kind::Literal(_)) {
            let value = eval::eval(side, scope, budget).map_err(|e| *e)?.to_json();
            found.push(format!("{} is {}", written(side, text), shortened(&value)));
        }
    }
    Ok(Refusal { clause: written(node, text), found: found.join(", ") })
}

/// The operands worth showing.
fn sides(node: &Node) -> Vec<&Node> {
    match &node.kind {
        Kind::Compare(_, pair) | Kind::In(pair, _) | Kind::Like(pair, _) => vec![&pair.0, &pair.1],
        Kind::Between(three, _) => vec![&three.0, &three.1, &three.2],
        Kind::Is(inner, ..) => vec![&**inner],
        Kind::Becomes(three) => vec![&three.0, &three.1],
        Kind::Changed(pair) => vec![&pair.0],
        Kind::Root(_) | Kind::Path(..) | Kind::State(_) | Kind::Call(..) => vec![node],
        Kind::Not(inner) => sides(inner),
        _ => Vec::new(),
    }
}

fn written(node: &Node, text: &str) -> String {
    // the old side of a change stands nowhere in the text
    let is_old =
        matches!(&node.kind, Kind::Path(base, _) if matches!(&base.kind, Kind::Root(name) if &**name == "old"));
    match text.get(node.span.range()).map(str::trim) {
        Some(written) if is_old && written.starts_with("new") => written.replacen("new", "old", 1),
        Some(written) if is_old && written.starts_with("next") => written.replacen("next", "prev", 1),
        Some(written) if !written.is_empty() => written.to_owned(),
        _ => super::print::print(node),
    }
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}
