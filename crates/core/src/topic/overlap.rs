//! Is there a topic that two patterns both select?

/// Is some topic selected by both? Each of the two is a topic or a pattern.
pub fn overlap(a: &str, b: &str) -> bool {
    let spellings = |pattern: &str| super::spellings(if pattern.trim().is_empty() { "#" } else { pattern.trim() });
    let (a, b) = (spellings(a), spellings(b));
    a.iter().any(|a| b.iter().any(|b| patterns_meet(a, b)))
}

fn patterns_meet(a: &str, b: &str) -> bool {
    let words = |pattern: &'_ str| -> Vec<String> { pattern.split('.').map(str::to_owned).collect() };
    meet(&words(a), &words(b), |word| word == "#", |a, b| words_meet(a, b))
}

fn words_meet(a: &str, b: &str) -> bool {
    let spread = |word: &str| -> Vec<char> { word.chars().collect() };
    meet(&spread(a), &spread(b), |c| *c == '*', |a, b| a == b)
}

/// Two sequences, in each of which some items stand for any number of items: can they be the same? One row of a table
/// at a time, so the cost is the product of the lengths.
fn meet<T>(a: &[T], b: &[T], any: impl Fn(&T) -> bool, same: impl Fn(&T, &T) -> bool) -> bool {
    // row[j]: a[i..] and b[j..] can be the same
    let mut below: Vec<bool> = vec![false; b.len() + 1];
    for i in (0..=a.len()).rev() {
        let mut row = vec![false; b.len() + 1];
        for j in (0..=b.len()).rev() {
            row[j] = match (a.get(i), b.get(j)) {
                (None, None) => true,
                (Some(item), _) if any(item) => below[j] || (j < b.len() && row[j + 1]),
                (_, Some(item)) if any(item) => row[j + 1] || (i < a.len() && below[j]),
                (Some(x), Some(y)) => same(x, y) && below[j + 1],
                _ => false,
            };
        }
        below = row;
    }
    below[0]
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn patterns_overlap_if_a_topic_is_selected_by_both() {
        for (a, b, expected) in [
            ("orders.updated", "orders.updated", true),
            ("orders.updated", "orders.created", false),
            ("orders.*", "*.updated", true),
            ("orders.*", "orders", false),
            ("orders.#", "orders", true),
            ("#.created", "orders.#", true),
            ("a.#.z", "a.b.*.z", true),
            ("a.#.z", "a.b.*.y", false),
            ("ord*.created", "*ers.created", true),
            ("ord*.created", "inv*.created", false),
            ("", "anything.at.all", true),
            ("graph.node.created.orders", "orders.created", true),
            ("graph.#", "orders.created", true),
            ("graph.node.*.orders", "orders.updated", true),
            ("graph.node.*.orders", "users.updated", false),
        ] {
            assert_eq!(overlap(a, b), expected, "{a} and {b}");
            assert_eq!(overlap(b, a), expected, "{b} and {a}");
        }
    }
}
