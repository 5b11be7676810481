//! The variables of one `set` step, in an order in which each finds those that it reads.
//!
//! A document does not keep the order of an object's keys, so the order in which they were written cannot be what counts.

use super::Action;
use super::parts::{Parts, shown};
use crate::definition::StepDef;
use crate::expr::{Access, Kind, Node};
use crate::template::JsonTemplate;
use crate::value::Value;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Reads the variables of a step.
pub(super) fn set(def: &StepDef, parts: &mut Parts<'_>) -> Option<Action> {
    let Some(Json::Object(variables)) = def.get("variables") else {
        parts.wrong(
            "variables",
            "\"variables\" must be a JSON object",
            "For example {\"total\": \"{{ new.total * 2 }}\"}.",
        );
        return None;
    };
    let mut left = Vec::new();
    for (name, value) in variables {
        let field = format!("variables.{name}");
        let template = parts.parsed(JsonTemplate::from_json(value), &field, &shown(value))?;
        let mut reads = BTreeSet::new();
        names(template.expr().node(), &mut reads);
        // one that reads itself reads what it was before
        reads.retain(|other| other != name && variables.contains_key(other));
        left.push((name.clone(), template, reads));
    }
    let mut ordered: Vec<(String, JsonTemplate)> = Vec::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    while !left.is_empty() {
        let (ready, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, _, reads)| reads.is_subset(&known));
        if ready.is_empty() {
            let names: Vec<String> = rest.iter().map(|(name, ..)| format!("\"{name}\"")).collect();
            let message = format!("variables {} of {} read one another", names.join(", "), parts.place);
            parts.wrong("variables", &message, "Set some of them in a step before.");
            return None;
        }
        known.extend(ready.iter().map(|(name, ..)| name.clone()));
        ordered.extend(ready.into_iter().map(|(name, template, _)| (name, template)));
        left = rest;
    }
    Some(Action::Set(ordered))
}

/// The variables that a tree reads, as far as their names are written out.
fn names(node: &Node, found: &mut BTreeSet<String>) {
    if let Kind::Path(base, steps) = &node.kind
        && matches!(&base.kind, Kind::Root(root) if &**root == "vars")
        && let Some(Access::Member(name, _) | Access::Index(Node { kind: Kind::Literal(Value::Text(name)), .. })) =
            steps.first()
    {
        found.insert(name.to_string());
    }
    node.each_child(&mut |child| names(child, found));
}
