//! The image of a row as it was captured: JSON text of which only what is asked for is read.
//!
//! A filter looks at two or three columns of a row that may have fifty. Reading a single member means walking over the
//! text before it, without making anything of it. Whoever asks often gets the whole row, read once.

use super::Value;
use super::json;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell};

/// After this many single members the row is read as a whole: the walks would cost more.
const PATIENCE: u8 = 4;

/// A captured row, or the payload of an event.
pub struct Image<'a> {
    text: Option<&'a str>,
    asked: Cell<u8>,
    whole: OnceCell<Value>,
}

impl<'a> Image<'a> {
    /// Takes JSON text; none is null.
    pub fn new(text: Option<&'a str>) -> Image<'a> {
        Image { text, asked: Cell::new(0), whole: OnceCell::new() }
    }

    /// All of it; null if it is no JSON.
    pub fn whole(&self) -> &Value {
        self.whole.get_or_init(|| self.text.map(|text| Value::from_json(text).unwrap_or_default()).unwrap_or_default())
    }

    /// One member of the object; `None` if it has no such member.
    pub fn member(&self, name: &str) -> Option<Cow<'_, Value>> {
        if self.whole.get().is_none() && self.asked.get() < PATIENCE {
            self.asked.set(self.asked.get() + 1);
            match json::member(self.text?, name) {
                json::Member::Found(value) => return Some(Cow::Owned(value)),
                json::Member::Missing => return None,
                json::Member::Unclear => {}
            }
        }
        match self.whole() {
            Value::Object(object) => object.get(name).map(Cow::Borrowed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, name: &str) -> Option<String> {
        Image::new(Some(text)).member(name).map(|value| value.to_json())
    }

    #[test]
    fn a_member_is_read_without_the_rest() {
        let row =
            r#"{"id": 1, "a\"b": "x, \"}", "list": [1, {"id": 2}], "deep": {"total": 7}, "total": 250.00, "e": {}}"#;
        assert_eq!(read(row, "id").as_deref(), Some("1"));
        assert_eq!(read(row, "total").as_deref(), Some("250.00"));
        assert_eq!(read(row, "a\"b").as_deref(), Some(r#""x, \"}""#));
        assert_eq!(read(row, "deep").as_deref(), Some(r#"{"total": 7}"#));
        assert_eq!(read(row, "e").as_deref(), Some("{}"));
        assert_eq!(read(row, "missing"), None);
        assert_eq!(read("{}", "id"), None);
        assert_eq!(read("[1]", "0"), None);
        assert_eq!(read("null", "id"), None);
    }

    #[test]
    fn what_is_no_json_has_no_members() {
        for text in ["", "{", "{\"a\"", "{\"a\":", "{\"a\": }", "{\"b\": [, \"a\": 1}", "{\"a\": 01}"] {
            assert_eq!(read(text, "a"), None, "{text}");
        }
    }

    #[test]
    fn asking_often_reads_the_whole_once() {
        let image = Image::new(Some(r#"{"a": 1, "b": 2}"#));
        for _ in 0..PATIENCE {
            assert!(matches!(image.member("a"), Some(Cow::Owned(_))));
        }
        assert!(matches!(image.member("b"), Some(Cow::Borrowed(_))));
        assert!(Image::new(None).member("a").is_none());
    }
}
