//! A warning when automations are defined: do the writes of one start another, and so on back to the first?
//!
//! Filters may well end such a loop, so it is only a warning. At run time the depth of a chain is limited.

use crate::condition::Condition;
use crate::derive::Deriver;
use crate::program::Program;
use crate::steps::Touch;
use crate::topic::overlap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many pairs are looked at before the search is given up: it is a courtesy, and must not hold up a definition.
const MOST_PAIRS: usize = 1_000_000;

/// An automation with the events that start it and those that it makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The events that start it.
    pub starts_on: Vec<Start>,
    /// The events that its steps can make: `orders.updated` for an UPDATE of the table, the topics it publishes.
    pub makes: Vec<Made>,
}

/// Events that start an automation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The pattern of their topics.
    pub pattern: String,
    /// The fields that all must have changed.
    pub all_of: Vec<String>,
    /// The fields of which one must have changed; empty if it does not matter.
    pub one_of: Vec<String>,
}

/// Events that a step can make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// Their topic, or a pattern of topics.
    pub topic: String,
    /// The only fields that change, if that is known.
    pub fields: Option<Vec<String>>,
}

impl Made {
    /// Events on a topic, about which nothing more is known.
    pub fn on(topic: impl Into<String>) -> Made {
        Made { topic: topic.into(), fields: None }
    }

    /// Can these events change all of these fields at once?
    fn can_change(&self, fields: &[String]) -> bool {
        self.fields.as_ref().is_none_or(|changing| fields.iter().all(|field| changing.contains(field)))
    }

    /// The events that rules derive from these events.
    pub fn derived(&self, rules: &[Deriver]) -> Vec<Made> {
        let possible = rules.iter().filter(|rule| self.can_change(&rule.condition.must_change()));
        possible.map(|rule| Made { topic: rule.topic.clone(), fields: self.fields.clone() }).collect()
    }
}

impl Start {
    fn by(&self, made: &Made) -> bool {
        let one = |changing: &Vec<String>| self.one_of.iter().any(|field| changing.contains(field));
        made.can_change(&self.all_of)
            && (self.one_of.is_empty() || made.fields.as_ref().is_none_or(one))
            && overlap(&made.topic, &self.pattern)
    }
}

impl Node {
    /// The events that can be told from the program alone. The tables that its SQL writes are for the caller to add.
    pub fn of(name: &str, program: &Program) -> Node {
        let mut starts_on = vec![Start { pattern: invocation(name), ..Start::default() }];
        for trigger in &program.triggers {
            let mut all_of = trigger.filter.as_ref().map(Condition::must_change).unwrap_or_default();
            // A field may be a path into a document.
            all_of.extend(trigger.field().and_then(|field| field.split('.').next()).map(str::to_owned));
            let one_of = trigger.columns.clone().unwrap_or_default();
            let patterns = trigger.patterns.iter();
            starts_on.extend(patterns.map(|pattern| Start {
                pattern: pattern.clone(),
                all_of: all_of.clone(),
                one_of: one_of.clone(),
            }));
        }
        let mut makes = Vec::new();
        for step in program.steps.iter().filter(|step| step.enabled) {
            makes.extend(step.action.touches().into_iter().filter_map(made_by));
        }
        Node { name: name.to_owned(), starts_on, makes }
    }

    /// Can the automation start the other one?
    fn starts(&self, other: &Node) -> bool {
        self.makes.iter().any(|made| other.starts_on.iter().any(|start| start.by(made)))
    }
}

/// The events made by the use of an object of the database, as far as the program alone says which.
fn made_by(touch: Touch<'_>) -> Option<Made> {
    match touch {
        Touch::Topic(_, topic) => topic.is_constant().then(|| Made::on(topic.text())),
        Touch::Automation(name) => Some(Made::on(invocation(name))),
        Touch::State(kind) => kind.is_constant().then(|| Made::on(format!("{}.*", kind.text()))),
        Touch::Statement(..) | Touch::Query(..) | Touch::Function(..) | Touch::Message(_) => None,
    }
}

/// The topic on which one automation starts another by name (R001-53).
fn invocation(name: &str) -> String {
    format!("automation.invocation.{name}")
}

/// The shortest way on which an automation can start itself: its own name, those in between, its own name again. `None`
/// also if there is too much to look at.
pub fn loop_through<'a>(name: &str, nodes: &'a [Node]) -> Option<Vec<&'a str>> {
    let start = nodes.iter().position(|node| node.name == name)?;
    let mut came_from: Vec<Option<usize>> = vec![None; nodes.len()];
    let mut reached = VecDeque::from([start]);
    let mut seen = vec![false; nodes.len()];
    let mut pairs = 0;
    while let Some(at) = reached.pop_front() {
        pairs += nodes.len();
        if pairs > MOST_PAIRS {
            return None;
        }
        for (next, node) in nodes.iter().enumerate() {
            if seen[next] || !nodes[at].starts(node) {
                continue;
            }
            seen[next] = true;
            came_from[next] = Some(at);
            if next == start {
                return Some(way_back(start, &came_from, nodes));
            }
            reached.push_back(next);
        }
    }
    None
}

fn way_back<'a>(start: usize, came_from: &[Option<usize>], nodes: &'a [Node]) -> Vec<&'a str> {
    let mut way = vec![nodes[start].name.as_str()];
    let mut at = start;
    while let Some(before) = came_from[at] {
        way.push(&nodes[before].name);
        at = before;
        if at == start {
            break;
        }
    }
    way.reverse();
    way
}

/// The warning about a loop.
pub fn warning(way: &[&str]) -> String {
    match way {
        [name, _] => format!("automation \"{name}\" can start itself"),
        _ => {
            let quoted: Vec<String> = way.iter().map(|name| format!("\"{name}\"")).collect();
            format!("automations can start each other in a circle: {}", quoted.join(" -> "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Made, Node, Start, loop_through, warning};
    use crate::derive::Deriver;

    fn node(name: &str, starts_on: &[&str], makes: &[&str]) -> Node {
        let start = |pattern: &&str| Start { pattern: (*pattern).to_owned(), ..Start::default() };
        let starts_on = starts_on.iter().map(start).collect();
        Node { name: name.to_owned(), starts_on, makes: makes.iter().map(|topic| Made::on(*topic)).collect() }
    }

    #[test]
    fn what_changes_other_fields_than_the_trigger_asks_for_is_no_loop() {
        let fields = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let mut touch = node("touch", &["orders.updated"], &["orders.updated"]);
        touch.makes[0].fields = Some(fields(&["priority", "note"]));
        let loops = |node: &Node| loop_through("touch", std::slice::from_ref(node)).is_some();
        assert!(loops(&touch));
        touch.starts_on[0].one_of = fields(&["status", "note"]);
        assert!(loops(&touch));
        touch.starts_on[0].one_of = fields(&["status"]);
        assert!(!loops(&touch));
        touch.starts_on[0] = Start { all_of: fields(&["note", "status"]), ..touch.starts_on[0].clone() };
        assert!(!loops(&touch));
        touch.starts_on[0] = Start { all_of: fields(&["note"]), one_of: Vec::new(), ..touch.starts_on[0].clone() };
        assert!(loops(&touch));
    }

    #[test]
    fn what_is_derived_from_a_change_is_made_by_it() {
        let rule = |topic: &str, condition: &str| Deriver::parse(topic, topic, &condition.into()).expect("a rule");
        let rules = [rule("order.paid", "new.status becomes 'paid'"), rule("order.dear", "new.total > 100")];
        let mut made = Made::on("orders.updated");
        let topics = |made: &Made| made.derived(&rules).into_iter().map(|made| made.topic).collect::<Vec<_>>();
        assert_eq!(topics(&made), ["order.paid", "order.dear"]);
        made.fields = Some(vec!["priority".to_owned()]);
        assert_eq!(topics(&made), ["order.dear"]);
    }

    #[test]
    fn an_automation_that_writes_what_starts_it_is_a_loop() {
        let nodes = [node("touch", &["orders.updated"], &["orders.updated"])];
        let found = loop_through("touch", &nodes).expect("a loop");
        assert_eq!(warning(&found), "automation \"touch\" can start itself");
    }

    #[test]
    fn a_pair_that_plays_ping_pong_is_a_loop_seen_from_either() {
        let nodes = [
            node("ping", &["orders.updated"], &["invoices.created"]),
            node("pong", &["invoices.*"], &["orders.updated"]),
            node("aside", &["orders.#"], &["notes.created"]),
        ];
        let found = loop_through("ping", &nodes).expect("a loop");
        assert_eq!(found, ["ping", "pong", "ping"]);
        assert_eq!(loop_through("pong", &nodes).expect("a loop"), ["pong", "ping", "pong"]);
        assert_eq!(loop_through("aside", &nodes), None);
    }

    #[test]
    fn the_shortest_loop_is_named() {
        let nodes =
            [node("a", &["t.a"], &["t.b", "t.c"]), node("b", &["t.b"], &["t.c"]), node("c", &["t.c"], &["t.a"])];
        let found = loop_through("a", &nodes).expect("a loop");
        assert_eq!(warning(&found), "automations can start each other in a circle: \"a\" -> \"c\" -> \"a\"");
    }

    #[test]
    fn a_chain_that_ends_is_none() {
        let nodes =
            [node("a", &["orders.created"], &["orders.updated"]), node("b", &["orders.updated"], &["log.created"])];
        assert_eq!(loop_through("a", &nodes), None);
        assert_eq!(loop_through("b", &nodes), None);
    }
}
