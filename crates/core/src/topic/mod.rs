//! Topics and the patterns that select them.
//!
//! A topic is words joined by dots. In a pattern `*` stands for exactly one word, or inside a word for any run of
//! characters; `#` stands for any number of words, also none. An empty pattern selects everything.

mod ears;
pub mod engine;
pub mod grants;
mod index;
mod older;
mod overlap;

pub use ears::Ears;
pub use index::TopicIndex;
pub use overlap::overlap;

use crate::expr::{ExprError, ExprErrorKind, is_invisible};

/// Longest pattern or topic, in bytes.
const MAX_LENGTH: usize = 1024;

/// Whether a pattern selects a topic, as it stands or by its older spelling, `graph.node.created.<kind>`.
pub fn matches(pattern: &str, topic: &str) -> bool {
    let pattern = pattern.trim();
    if pattern.is_empty() || pattern == "#" || pattern == topic {
        return true;
    }
    selects(pattern, topic) || older::present_patterns(pattern).iter().any(|present| selects(present, topic))
}

fn selects(pattern: &str, topic: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('.').collect();
    let topic: Vec<&str> = topic.split('.').collect();
    words_match(&pattern, &topic)
}

/// Matches words with one retry point, as `#` needs no more: a later `#` subsumes an earlier one's choices.
fn words_match(pattern: &[&str], topic: &[&str]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < topic.len() {
        if pattern.get(p) == Some(&"#") {
            retry = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p).is_some_and(|word| word_matches(word, topic[t])) {
            p += 1;
            t += 1;
        } else if let Some((after, from)) = retry {
            retry = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|word| *word == "#")
}

/// Whether one word of a pattern selects one word of a topic.
fn word_matches(pattern: &str, word: &str) -> bool {
    if pattern == "*" {
        return !word.is_empty();
    }
    if !pattern.contains('*') {
        return pattern == word;
    }
    let (pattern, word) = (pattern.as_bytes(), word.as_bytes());
    let (mut p, mut w) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while w < word.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, w));
            p += 1;
        } else if pattern.get(p) == Some(&word[w]) {
            p += 1;
            w += 1;
        } else if let Some((after, from)) = retry {
            retry = Some((after, from + 1));
            (p, w) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// Refuses patterns that can select nothing, or other topics than they seem to.
pub fn validate(pattern: &str) -> Result<(), ExprError> {
    let fail = |at: usize, length: usize, message: String| {
        Err(ExprError::new(ExprErrorKind::Syntax, at..at + length, message))
    };
    if pattern.len() > MAX_LENGTH {
        return fail(0, 0, format!("topic pattern is longer than {MAX_LENGTH} bytes"));
    }
    if pattern.is_empty() {
        return Ok(());
    }
    let mut at = 0;
    for word in pattern.split('.') {
        if word.is_empty() {
            return fail(at, 0, "topic pattern has an empty word".to_owned());
        }
        if let Some(i) = word.find(|c: char| c.is_whitespace() || is_invisible(c)) {
            return fail(at + i, 1, "topic pattern has a space or an invisible character".to_owned());
        }
        if word.len() > 1
            && let Some(i) = word.find('#')
        {
            return fail(at + i, 1, "\"#\" must be a word of its own".to_owned())
                .map_err(|e: ExprError| e.with_hint("Inside a word use *."));
        }
        at += word.len() + 1;
    }
    Ok(())
}

/// Whether it can match more than one topic.
pub fn is_pattern(pattern: &str) -> bool {
    pattern.contains(['*', '#'])
}

/// The pattern in the present spelling, if a single one says it: `graph.node.created.orders` is `orders.created`. Any
/// other pattern stays as it is; `graph.#` for example, which selects changes of every verb.
pub fn canonical(pattern: &str) -> String {
    match &mut older::present_patterns(pattern)[..] {
        [present] => std::mem::take(present),
        _ => pattern.to_owned(),
    }
}

/// The pattern itself and the patterns of present topics that its older spelling stands for.
fn spellings(pattern: &str) -> Vec<String> {
    std::iter::once(pattern.to_owned()).chain(older::present_patterns(pattern)).collect()
}
