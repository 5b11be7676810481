//! The kinds of entities whose changes are listened to, so that the changes of other kinds need not be read.
use std::collections::HashSet;

use super::{is_pattern, spellings};

/// The kinds of entities that are listened to; or all of them, as long as nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ears(Option<HashSet<Box<[u8]>>>);

impl Ears {
    /// Hear everything.
    pub fn open() -> Self {
        Ears(None)
    }

    /// Hear nothing yet.
    pub fn closed() -> Self {
        Ears(Some(HashSet::new()))
    }

    /// Listen to all changes of a kind.
    pub fn listen_to_kind(&mut self, kind: &str) {
        if let Some(kinds) = &mut self.0 {
            kinds.insert(kind.as_bytes().into());
        }
    }

    /// Listen to all changes of a topic's kind, with any last word, or to a pattern, which may mean any kind.
    pub fn listen_to(&mut self, pattern: &str) {
        let pattern = pattern.trim();
        for spelling in spellings(pattern) {
            match spelling.rsplit_once('.') {
                Some((kind, _)) if !is_pattern(&spelling) => self.listen_to_kind(kind),
                _ => self.0 = None,
            }
        }
    }

    /// May the changes of this kind be listened to? Never no by mistake.
    pub fn hear(&self, kind: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    /// Are the changes of all kinds listened to?
    pub fn are_open(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::Ears;
    use crate::topic::matches;
    use proptest::prelude::*;

    fn listening_to(pattern: &str) -> Ears {
        let mut ears = Ears::closed();
        ears.listen_to(pattern);
        ears
    }

    #[test]
    fn a_topic_is_heard_for_its_kind_alone() {
        let ears = listening_to("sales.orders.updated");
        assert!(ears.hear(b"sales.orders"));
        assert!(!ears.hear(b"orders") && !ears.hear(b"sales") && !ears.hear(b"sales.orders.updated"));
        assert!(!Ears::closed().hear(b"orders") && Ears::open().hear(b"orders"));
    }

    #[test]
    fn a_pattern_may_mean_any_kind() {
        for pattern in ["", "#", "orders.*", "*.updated", "ord*.updated", "orders", " # "] {
            assert!(listening_to(pattern).are_open(), "{pattern:?}");
        }
    }

    #[test]
    fn the_older_spelling_is_heard() {
        assert!(listening_to("graph.node.updated.sales.orders").hear(b"sales.orders"));
    }

    proptest! {
        #[test]
        fn what_a_pattern_selects_is_heard(
            pattern in "(graph\\.node\\.)?[ab*#]{1,2}(\\.[ab*#]{1,2}){0,3}",
            kind in "(graph\\.node\\.)?[ab]{1,2}(\\.[ab]{1,2}){0,2}",
            verb in "[ab]{1,2}",
        ) {
            if matches(&pattern, &format!("{kind}.{verb}")) {
                prop_assert!(listening_to(&pattern).hear(kind.as_bytes()));
            }
        }
    }
}
