//! Which of very many patterns select a topic, without looking at each.
//!
//! A tree of words. A topic walks it as a set of nodes, one word at a time; equal words are found by hash, words with
//! `*` inside by the hash of the characters before the `*`. The cost depends on the topic and on the number of matches,
//! not on how many patterns there are.

use super::{spellings, word_matches};
use std::collections::{BTreeSet, HashMap};

type NodeId = u32;

/// Values by topic pattern.
#[derive(Clone, Debug)]
pub struct TopicIndex<T> {
    nodes: Vec<Node>,
    values: Vec<T>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// A word as it is.
    exact: HashMap<Box<str>, NodeId>,
    /// `*`
    one: Option<NodeId>,
    /// `#`; that node stays in the set while words pass by.
    many: Option<NodeId>,
    /// Words with `*` inside, by the characters before the first one.
    partial: HashMap<Box<str>, Vec<(Box<str>, NodeId)>>,
    /// The lengths of the keys of `partial`.
    prefix_lengths: BTreeSet<usize>,
    /// Whether this node stands for `#`.
    is_many: bool,
    /// The values that are selected if the topic ends here.
    values: Vec<u32>,
}

impl<T> Default for TopicIndex<T> {
    fn default() -> TopicIndex<T> {
        TopicIndex { nodes: vec![Node::default()], values: Vec::new() }
    }
}

impl<T> TopicIndex<T> {
    /// An empty index.
    pub fn new() -> TopicIndex<T> {
        TopicIndex::default()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds a value under a pattern.
    pub fn insert(&mut self, pattern: &str, value: T) {
        let pattern = pattern.trim();
        let id = self.values.len() as u32;
        self.values.push(value);
        for spelling in spellings(if pattern.is_empty() { "#" } else { pattern }) {
            self.add(&spelling, id);
        }
    }

    fn add(&mut self, pattern: &str, id: u32) {
        let mut at = 0;
        for word in pattern.split('.') {
            // several # in a row select the same as one
            if word == "#" && self.nodes[at as usize].is_many {
                continue;
            }
            at = self.child(at, word);
        }
        self.nodes[at as usize].values.push(id);
    }

    fn child(&mut self, at: NodeId, word: &str) -> NodeId {
        let next = self.nodes.len() as NodeId;
        let node = &mut self.nodes[at as usize];
        let found = if word == "#" {
            *node.many.get_or_insert(next)
        } else if word == "*" {
            *node.one.get_or_insert(next)
        } else if let Some((prefix, _)) = word.split_once('*') {
            let group = match node.partial.get_mut(prefix) {
                Some(group) => group,
                None => {
                    node.prefix_lengths.insert(prefix.len());
                    node.partial.entry(prefix.into()).or_default()
                }
            };
            match group.iter().find(|(known, _)| **known == *word) {
                Some((_, id)) => *id,
                None => {
                    group.push((word.into(), next));
                    next
                }
            }
        } else {
            match node.exact.get(word) {
                Some(id) => *id,
                None => {
                    node.exact.insert(word.into(), next);
                    next
                }
            }
        };
        if found == next {
            self.nodes.push(Node { is_many: word == "#", ..Node::default() });
        }
        found
    }

    /// The values whose pattern selects a topic, in the order in which they were added.
    pub fn matches(&self, topic: &str) -> Vec<&T> {
        let mut found = Vec::new();
        self.each_match(topic, |value| found.push(value));
        found
    }

    /// Calls `visit` with each value whose pattern selects a topic.
    pub fn each_match<'a>(&'a self, topic: &str, mut visit: impl FnMut(&'a T)) {
        let mut now: Vec<NodeId> = Vec::with_capacity(8);
        let mut next: Vec<NodeId> = Vec::with_capacity(8);
        self.enter(0, &mut now);
        for word in topic.split('.') {
            for at in now.drain(..) {
                self.step(at, word, &mut next);
            }
            std::mem::swap(&mut now, &mut next);
            // a node can be reached by two ways through #
            if now.len() > 1 {
                now.sort_unstable();
                now.dedup();
            }
        }
        let mut ids: Vec<u32> = now.iter().flat_map(|at| self.nodes[*at as usize].values.iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().filter_map(|id| self.values.get(id as usize)).for_each(&mut visit);
    }

    /// Puts a node into the set, and the `#` after it, which may stand for nothing.
    fn enter(&self, at: NodeId, set: &mut Vec<NodeId>) {
        set.push(at);
        if let Some(many) = self.nodes[at as usize].many {
            self.enter(many, set);
        }
    }

    fn step(&self, at: NodeId, word: &str, next: &mut Vec<NodeId>) {
        let node = &self.nodes[at as usize];
        if node.is_many {
            next.push(at);
        }
        if let Some(id) = node.exact.get(word) {
            self.enter(*id, next);
        }
        if let Some(id) = node.one
            && !word.is_empty()
        {
            self.enter(id, next);
        }
        for length in &node.prefix_lengths {
            let Some(prefix) = word.get(..*length) else { continue };
            for (pattern, id) in node.partial.get(prefix).into_iter().flatten() {
                if word_matches(pattern, word) {
                    self.enter(*id, next);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_finds_every_pattern_that_selects_it_once() {
        let patterns =
            ["orders.created", "orders.*", "*.created", "#", "#.#", "orders.#", "ord*.created", "users.created", ""];
        let mut index = TopicIndex::new();
        patterns.iter().for_each(|pattern| index.insert(pattern, *pattern));
        let found: Vec<&str> = index.matches("orders.created").into_iter().copied().collect();
        let expected = ["orders.created", "orders.*", "*.created", "#", "#.#", "orders.#", "ord*.created", ""];
        assert_eq!(found, expected);
        assert_eq!(index.matches("nothing.at.all").len(), 3);
    }

    #[test]
    fn the_older_spelling_selects_the_same_entities() {
        let mut index = TopicIndex::new();
        index.insert("graph.node.created.orders", 1);
        assert_eq!(index.matches("orders.created"), [&1]);
        assert!(super::super::matches("graph.node.created.orders", "orders.created"));
        assert!(!super::super::matches("graph.node.created.orders", "orders.updated"));
        assert!(super::super::matches("graph.node.*.orders", "orders.deleted"));
    }

    #[test]
    fn many_hashes_stay_quick() {
        let mut index = TopicIndex::new();
        let pattern = ["#", "a"].repeat(30).join(".");
        index.insert(&pattern, ());
        let topic = ["a"; 29].join(".") + ".b";
        assert!(index.matches(&topic).is_empty());
        assert!(!super::super::matches(&pattern, &topic));
    }
}
