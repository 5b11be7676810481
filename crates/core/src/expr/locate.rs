//! Places inside a JSON document: the path of a mistake, and where that path stands in the document's text.

use std::fmt::Write;

/// One step into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A member of an object.
    Key(String),
    /// An element of a list.
    Index(usize),
}

/// A path as messages show it: `and[1].state.for`.
pub fn path_text(steps: &[Step]) -> String {
    let mut out = String::new();
    for step in steps {
        // a String never refuses a write
        match step {
            Step::Index(i) => _ = write!(out, "[{i}]"),
            Step::Key(key) if is_plain(key) && out.is_empty() => out.push_str(key),
            Step::Key(key) if is_plain(key) => _ = write!(out, ".{key}"),
            Step::Key(key) => _ = write!(out, "[{}]", crate::value::Value::text(key).to_json()),
        }
    }
    out
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The offset of the value that a path leads to, or of its key if `at_key`. As far as the path can be followed; the
/// text has been read as JSON before, so only its outline is looked at.
pub fn locate(text: &str, steps: &[Step], at_key: bool) -> usize {
    let mut walk = Walk { bytes: text.as_bytes(), at: 0 };
    walk.skip_space();
    for (i, step) in steps.iter().enumerate() {
        let start = walk.at;
        let last = i + 1 == steps.len();
        let found = match step {
            Step::Key(key) => walk.enter_key(key, last && at_key),
            Step::Index(index) => walk.enter_index(*index),
        };
        if found.is_none() {
            return start;
        }
    }
    walk.at
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn skip_space(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// Moves to the value of a member of the object that begins here, or to its key.
    fn enter_key(&mut self, wanted: &str, stop_at_key: bool) -> Option<()> {
        self.open(b'{')?;
        while self.bytes.get(self.at) == Some(&b'"') {
            let key_at = self.at;
            let key = self.string();
            self.skip_space();
            self.at += 1;
            self.skip_space();
            if serde_json::from_slice::<String>(key).is_ok_and(|key| key == wanted) {
                if stop_at_key {
                    self.at = key_at;
                }
                return Some(());
            }
            self.next_element()?;
        }
        None
    }

    /// Moves to an element of the list that begins here.
    fn enter_index(&mut self, index: usize) -> Option<()> {
        self.open(b'[')?;
        (0..index).try_for_each(|_| self.next_element())
    }

    fn open(&mut self, bracket: u8) -> Option<()> {
        if self.bytes.get(self.at) != Some(&bracket) {
            return None;
        }
        self.at += 1;
        self.skip_space();
        Some(())
    }

    /// Passes over the value that begins here and the comma after it.
    fn next_element(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        while let Some(b) = self.bytes.get(self.at) {
            match b {
                b'"' => {
                    self.string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.checked_sub(1)?,
                b',' if depth == 0 => {
                    self.at += 1;
                    self.skip_space();
                    return Some(());
                }
                _ => {}
            }
            self.at += 1;
        }
        None
    }

    /// Passes over a string and returns it with its quotes.
    fn string(&mut self) -> &'a [u8] {
        let start = self.at;
        self.at += 1;
        while let Some(b) = self.bytes.get(self.at) {
            self.at += if *b == b'\\' { 2 } else { 1 };
            if *b == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.bytes.len());
        &self.bytes[start..self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(text: &'a str, steps: &[Step], at_key: bool) -> &'a str {
        text.split_at(locate(text, steps, at_key)).1
    }

    fn key(name: &str) -> Step {
        Step::Key(name.to_owned())
    }

    #[test]
    fn a_path_leads_to_its_value() {
        let text = r#" { "a" : [1, {"b": ",]}\"", "c\n" : {"d": 5}}, 3], "e": null }"#;
        assert!(at(text, &[], false).starts_with("{ \"a\""));
        assert!(at(text, &[key("a"), Step::Index(2)], false).starts_with("3]"));
        assert!(at(text, &[key("a"), Step::Index(1), key("c\n"), key("d")], false).starts_with("5}"));
        assert!(at(text, &[key("a"), Step::Index(1), key("b")], true).starts_with("\"b\""));
        assert!(at(text, &[key("e")], false).starts_with("null"));
    }

    #[test]
    fn a_path_that_does_not_exist_stops_where_it_leaves_the_document() {
        let text = r#"{"a": [1, 2]}"#;
        assert!(at(text, &[key("a"), Step::Index(7)], false).starts_with("[1"));
        assert!(at(text, &[key("x")], false).starts_with("{\"a"));
        assert!(at(text, &[key("a"), key("b")], false).starts_with("[1"));
        for broken in ["", "{", "{\"a", "[", "{\"a\":", "\"\\"] {
            assert!(locate(broken, &[key("a"), Step::Index(0)], false) <= broken.len());
        }
    }

    #[test]
    fn a_path_is_shown_as_it_would_be_written() {
        let steps = [key("and"), Step::Index(1), key("state"), key("/a b")];
        assert_eq!(path_text(&steps), "and[1].state[\"/a b\"]");
    }
}
