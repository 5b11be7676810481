//! A warning when automations are defined: does what one writes start another, and so on back to the first?
//!
//! Filters may well end such a loop, so it is only a warning. At run time the depth of a chain is limited.

use crate::program::{Action, Program};
use crate::topic::overlap;
use std::collections::VecDeque;

/// An automation as others see it.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Patterns of the topics that start it.
    pub starts_on: Vec<String>,
    /// Topics, or patterns of topics, that its steps can make: `orders.updated` for an UPDATE of the table, the topics
    /// it publishes.
    pub makes: Vec<String>,
}

impl Node {
    /// What can be told from the program alone. The tables that its SQL writes are for the caller to add.
    pub fn of(name: &str, program: &Program) -> Node {
        let patterns = program.triggers.iter().flat_map(|trigger| trigger.patterns.iter().cloned());
        let starts_on = patterns.chain([invocation(name)]).collect();
        let mut makes = Vec::new();
        for step in program.steps.iter().filter(|step| step.enabled) {
            match &step.action {
                Action::Publish { topic, .. } if topic.is_constant() => makes.push(topic.text().to_owned()),
                Action::Run { automation, .. } => makes.push(invocation(automation)),
                Action::StoreState { kind, .. } if kind.is_constant() => makes.push(format!("{}.*", kind.text())),
                _ => {}
            }
        }
        Node { name: name.to_owned(), starts_on, makes }
    }

    /// Can it start the other?
    fn starts(&self, other: &Node) -> bool {
        self.makes.iter().any(|made| other.starts_on.iter().any(|pattern| overlap(made, pattern)))
    }
}

/// The topic on which one automation starts another by name (R001-53).
fn invocation(name: &str) -> String {
    format!("automation.invocation.{name}")
}

/// The shortest way on which an automation can start itself: its own name, those in between, its own name again.
pub fn loop_through<'a>(name: &str, nodes: &'a [Node]) -> Option<Vec<&'a str>> {
    let start = nodes.iter().position(|node| node.name == name)?;
    let mut came_from: Vec<Option<usize>> = vec![None; nodes.len()];
    let mut reached = VecDeque::from([start]);
    let mut seen = vec![false; nodes.len()];
    while let Some(at) = reached.pop_front() {
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

/// The warning.
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
    use super::{Node, loop_through, warning};

    fn node(name: &str, starts_on: &[&str], makes: &[&str]) -> Node {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Node { name: name.to_owned(), starts_on: owned(starts_on), makes: owned(makes) }
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
