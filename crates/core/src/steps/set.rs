//! The `set` step: gives variables their values, in an order in which each finds those that it reads.
//!
//! A document does not keep the order of an object's keys, so the order in which they were written cannot count.

use super::form::any;
use super::{Checked, Form, StepAction, Taken, TimeLimit, Touch, Tries};
use crate::definition::StepDef;
use crate::expr::{Access, Budget, Kind, Node, Scope};
use crate::machine::{Machine, Record, fault};
use crate::program::{Parts, shown};
use crate::template::JsonTemplate;
use crate::value::Value;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Variables and their values.
#[derive(Clone, Debug)]
pub struct Set {
    /// In the order in which they are set.
    pub variables: Vec<(String, JsonTemplate)>,
}

impl StepAction for Set {
    const FORM: Form = Form {
        name: "set",
        required: &[any("variables")],
        optional: &[],
        retries: true,
        time_limit: TimeLimit::OfWork,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Set> {
        Some(Set { variables: variables(def, parts)? })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        let variables = self.variables.iter();
        variables.map(|(name, value)| (format!("variables.{name}"), Checked::Json(value))).collect()
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Taken for Set {
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope) {
        let before = machine.state.threads[place].vars.clone();
        // The expression of each variable sees the variables set before it.
        for (name, template) in &self.variables {
            let value = template.eval(&machine.scope_at(place, world), &mut Budget::default());
            match value {
                Ok(value) => {
                    let vars = &mut machine.state.threads[place].vars.0;
                    let mut entries: Vec<_> = match &*vars {
                        Value::Object(object) => object.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
                        _ => Vec::new(),
                    };
                    entries.retain(|(known, _)| &**known != name);
                    entries.push((name.as_str().into(), value));
                    *vars = Value::object(entries);
                }
                Err(error) => {
                    machine.state.threads[place].vars = before;
                    let error = fault(&error, template.text());
                    return machine.try_again_or_fail(place, None, Vec::new(), error, world.now().0);
                }
            }
        }
        let attempt = machine.state.threads[place].failed + 1;
        machine.push(Record { step: number, status: "completed", attempt, since: None, result: None, error: None });
        machine.step_on(place);
    }
}

/// Reads the variables of a step.
fn variables(def: &StepDef, parts: &mut Parts<'_>) -> Option<Vec<(String, JsonTemplate)>> {
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
        // a variable that reads itself reads its value from before the step
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
    Some(ordered)
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
