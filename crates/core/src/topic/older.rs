//! The older spelling of entity topics: `graph.node.created.orders` is the change `orders.created`.

use super::word_matches;

/// The first word of every topic in the older spelling.
const FIRST: &str = "graph";
/// The last words of the topics of changes.
const VERBS: [&str; 4] = ["created", "updated", "deleted", "truncated"];

/// The patterns of present topics that a pattern in the older spelling also selects, at least one for each verb that it
/// can meet: `graph.#` selects `#.created`, `#.updated` and so on. Empty for every other pattern.
pub(super) fn present_patterns(pattern: &str) -> Vec<String> {
    let Some((FIRST, rest)) = pattern.split_once('.') else { return Vec::new() };
    let words: Vec<&str> = rest.split('.').collect();
    VERBS
        .iter()
        .flat_map(|verb| {
            let kinds = remainders(&remainders(&[&words[..]], "node"), verb);
            kinds.into_iter().filter(|kind| !kind.is_empty()).map(move |kind| format!("{}.{verb}", kind.join(".")))
        })
        .collect()
}

/// The parts of these patterns that are left after they have selected a word; a pattern that begins with `#` may go on
/// in several ways, one that does not select the word in none.
fn remainders<'a>(patterns: &[&'a [&'a str]], word: &str) -> Vec<&'a [&'a str]> {
    let mut left = Vec::new();
    for pattern in patterns {
        let mut rest: &[&str] = pattern;
        while let [first, after @ ..] = rest {
            if *first == "#" {
                left.push(rest);
                rest = after;
                continue;
            }
            if word_matches(first, word) {
                left.push(after);
            }
            break;
        }
    }
    // Parts of one pattern are told apart by their length.
    left.sort_by_key(|rest| rest.len());
    left.dedup_by_key(|rest| rest.len());
    left
}

#[cfg(test)]
mod tests {
    use super::present_patterns;
    use crate::topic::{TopicIndex, matches, selects};
    use proptest::prelude::*;

    #[test]
    fn a_pattern_in_the_older_spelling_stands_for_patterns_of_present_topics() {
        let of = |pattern: &str| present_patterns(pattern).join(" ");
        assert_eq!(of("graph.node.created.orders"), "orders.created");
        assert_eq!(of("graph.node.updated.sales.orders"), "sales.orders.updated");
        assert_eq!(of("graph.node.*.k"), "k.created k.updated k.deleted k.truncated");
        assert_eq!(of("graph.node.*ed.*"), "*.created *.updated *.deleted *.truncated");
        assert_eq!(of("graph.#"), "#.created #.updated #.deleted #.truncated");
        for other in
            ["orders.created", "graph", "graph.node", "graph.node.created", "graph.edge.created.k", "graphs.#", "#"]
        {
            assert_eq!(of(other), "", "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_change_is_selected_by_its_present_or_its_older_topic(
            pattern in "graph(\\.(node|created|c\\*|k|a|\\*|#)){0,5}",
            kind in "(k|a)(\\.(k|a)){0,2}",
            verb in "created|updated",
        ) {
            let topic = format!("{kind}.{verb}");
            let expected = selects(&pattern, &topic) || selects(&pattern, &format!("graph.node.{verb}.{kind}"));
            prop_assert_eq!(matches(&pattern, &topic), expected);
            let mut index = TopicIndex::new();
            index.insert(&pattern, ());
            prop_assert_eq!(index.matches(&topic).len(), usize::from(expected));
        }
    }
}
