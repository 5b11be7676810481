//! A filter that asks again for the kind that its trigger names (R001-32): it either says nothing or rules out
//! everything. Both are worth a warning when the automation is defined.

use crate::condition::Condition;
use crate::expr::{Access, CompareOp, Kind, Node};
use crate::program::Trigger;
use crate::value::Value;

/// The warnings for a trigger's filter.
pub fn kind_in_filter(trigger: &Trigger) -> Vec<String> {
    let (Some(kind), Some(filter)) = (&trigger.kind, &trigger.filter) else { return Vec::new() };
    let mut asked = Vec::new();
    collect(filter, &mut asked);
    asked.sort();
    asked.dedup();
    let told = |asked: &String| match asked == kind {
        true => format!("filter of trigger \"{}\" need not ask for kind \"{asked}\": it gets no other", trigger.id),
        false => format!(
            "trigger \"{}\" never fires: its filter asks for kind \"{asked}\", and it gets only \"{kind}\"",
            trigger.id
        ),
    };
    asked.iter().map(told).collect()
}

/// The kinds that the condition requires. A kind inside an `or` or a `not` is not required.
fn collect(condition: &Condition, asked: &mut Vec<String>) {
    match condition {
        Condition::And(all) => all.iter().for_each(|part| collect(part, asked)),
        Condition::Expr(expr) => clauses(expr.node(), asked),
        _ => {}
    }
}

fn clauses(node: &Node, asked: &mut Vec<String>) {
    match &node.kind {
        Kind::And(parts) => parts.iter().for_each(|part| clauses(part, asked)),
        Kind::Compare(CompareOp::Equal, pair) => {
            for (path, value) in [(&pair.0, &pair.1), (&pair.1, &pair.0)] {
                if let (true, Kind::Literal(Value::Text(text))) = (is_event_kind(path), &value.kind) {
                    asked.push(text.to_string());
                }
            }
        }
        _ => {}
    }
}

fn is_event_kind(node: &Node) -> bool {
    let Kind::Path(base, steps) = &node.kind else { return false };
    matches!(&base.kind, Kind::Root(name) if &**name == "event")
        && matches!(steps.as_slice(), [Access::Member(name, _)] if &**name == "kind")
}
