//! Which fields of an entity must have changed for a condition to hold: those that it asks about with `becomes` or
//! `changed`, without an alternative under which it holds as well.

use super::Expr;
use super::ast::{Access, Kind, Node};

impl Expr {
    /// The fields of the entity without whose change the expression is never true.
    pub fn must_change(&self) -> Vec<String> {
        let mut fields = Vec::new();
        collect(self.node(), &mut fields);
        fields
    }
}

fn collect(node: &Node, fields: &mut Vec<String>) {
    match &node.kind {
        Kind::And(parts) => parts.iter().for_each(|part| collect(part, fields)),
        Kind::Becomes(three) => fields.extend(field(&three.0)),
        Kind::Changed(pair) => fields.extend(field(&pair.0)),
        _ => {}
    }
}

/// `x` of `new.x` and of `new.x.y`.
fn field(node: &Node) -> Option<String> {
    let Kind::Path(root, accesses) = &node.kind else { return None };
    match (&root.kind, accesses.first()) {
        (Kind::Root(root), Some(Access::Member(name, _))) if matches!(root.as_ref(), "new" | "next") => {
            Some(name.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Expr;

    #[test]
    fn what_must_change_is_what_nothing_else_makes_up_for() {
        let fields = |text: &str| Expr::parse(text).expect("an expression").must_change();
        assert_eq!(fields("new.status becomes 'paid' and new.total > 100"), ["status"]);
        assert_eq!(fields("new.a changed and (new.b.c becomes 1 and new.d > 1)"), ["a", "b"]);
        for free in ["new.status becomes 'paid' or new.total > 1", "not (new.a changed)", "new.a = 1", "true"] {
            assert!(fields(free).is_empty(), "{free}");
        }
    }
}
