//! The image of a row as it was captured: JSON text of which only the members asked for are read.
//!
//! A filter looks at two or three columns of a row that may have fifty. Reading a single member means walking over the
//! text before it, without making anything of it. After a few members the whole row is read, once.
//!
//! A text that cannot be read is an error for every expression that asks for it. As null, it would meet `is null` and
//! miss every comparison, and a role that finds such a text to write could hide a row from a filter.

use super::Value;
use super::json;
use crate::expr::{ExprError, ExprErrorKind};
use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::ops::Range;

/// After this many single members the row is read as a whole: the walks would cost more.
const PATIENCE: u8 = 4;

/// A captured row, or the payload of an event.
pub struct Image<'a> {
    text: Option<&'a str>,
    asked: Cell<u8>,
    whole: OnceCell<Result<Value, Unreadable>>,
}

/// Why an image cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable(json::JsonError);

impl Unreadable {
    /// The error of the expression that asked for the image.
    pub fn at(self, span: Range<usize>) -> ExprError {
        let message = format!("the recorded row or payload cannot be read: {}", self.0.message);
        ExprError::new(ExprErrorKind::InvalidValue, span, message)
            .with_detail(format!("Its JSON is wrong or goes beyond a limit at byte {}.", self.0.at))
    }
}

impl From<Unreadable> for ExprError {
    fn from(error: Unreadable) -> ExprError {
        error.at(0..0)
    }
}

impl<'a> Image<'a> {
    /// Takes JSON text; none is null.
    pub fn new(text: Option<&'a str>) -> Image<'a> {
        Image { text, asked: Cell::new(0), whole: OnceCell::new() }
    }

    /// The whole image, read as a value.
    pub fn whole(&self) -> Result<&Value, Unreadable> {
        let read = || self.text.map_or(Ok(Value::Null), |text| json::parse(text).map_err(Unreadable));
        self.whole.get_or_init(read).as_ref().map_err(|error| *error)
    }

    /// One member of the object; `None` if it has no such member.
    pub fn member(&self, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        if self.whole.get().is_none() && self.asked.get() < PATIENCE {
            self.asked.set(self.asked.get() + 1);
            let Some(text) = self.text else { return Ok(None) };
            match json::member(text, name) {
                json::Member::Found(value) => return Ok(Some(Cow::Owned(value))),
                json::Member::Missing => return Ok(None),
                json::Member::Unclear => {}
            }
        }
        Ok(match self.whole()? {
            Value::Object(object) => object.get(name).map(Cow::Borrowed),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Condition;
    use crate::expr::{Budget, Scope};
    use crate::value::Timestamp;

    fn read(text: &str, name: &str) -> Option<String> {
        Image::new(Some(text)).member(name).unwrap().map(|value| value.to_json())
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
    fn what_is_no_json_is_an_error_and_never_null() {
        for text in ["{", "{\"a\"", "{\"a\":", "{\"a\": }", "{\"b\": [, \"a\": 1}", "{\"a\": 01}"] {
            assert!(Image::new(Some(text)).member("a").is_err(), "{text}");
            assert!(Image::new(Some(text)).whole().is_err(), "{text}");
        }
        assert!(Image::new(Some("")).whole().is_err());
    }

    #[test]
    fn a_value_beyond_the_limits_is_an_error_however_often_and_whatever_is_asked() {
        let row = format!(r#"{{"a": 1, "deep": {}{}, "b": 2}}"#, "[".repeat(300), "]".repeat(300));
        let image = Image::new(Some(&row));
        // a member on the way to which the value is only walked over can still be had
        assert_eq!(image.member("a").unwrap().map(|value| value.to_json()).as_deref(), Some("1"));
        assert_eq!(image.member("b").unwrap().map(|value| value.to_json()).as_deref(), Some("2"));
        assert!(image.member("deep").is_err());
        for _ in 0..=PATIENCE {
            assert!(image.member("a").is_err());
        }
        let error = image.whole().unwrap_err().at(3..4);
        assert!(error.message.ends_with("cannot be read: nested too deeply"), "{error}");
        assert_eq!(error.span, 3..4);
    }

    struct Row<'a>(Image<'a>);

    impl Scope for Row<'_> {
        fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
            if name == "new" { self.0.whole().map(Some) } else { Ok(None) }
        }

        fn member(&self, root: &str, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
            if root == "new" { Ok(Some(self.0.member(name)?.unwrap_or_default())) } else { Ok(None) }
        }

        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    #[test]
    fn a_condition_that_asks_for_what_cannot_be_read_neither_holds_nor_fails_to_hold() {
        let row = format!(r#"{{"a": 1, "deep": {}{}}}"#, "[".repeat(300), "]".repeat(300));
        let holds = |text: &str| {
            let condition = Condition::parse_text(text).unwrap();
            condition.holds(&Row(Image::new(Some(&row))), &mut Budget::default())
        };
        for text in ["new.deep is null", "new is null", "new.deep = 1 or new.deep <> 1", "not (new.deep is not null)"] {
            assert_eq!(holds(text).unwrap_err().kind, ExprErrorKind::InvalidValue, "{text}");
        }
        assert_eq!(holds("new.a = 1"), Ok(true));
        // the whole row is read for the fifth member
        let many = "new.a = 1 and new.a < 2 and new.a > 0 and new.a <> 5 and new.a is not null";
        assert!(holds(many).is_err());
    }

    #[test]
    fn asking_often_reads_the_whole_once() {
        let image = Image::new(Some(r#"{"a": 1, "b": 2}"#));
        for _ in 0..PATIENCE {
            assert!(matches!(image.member("a"), Ok(Some(Cow::Owned(_)))));
        }
        assert!(matches!(image.member("b"), Ok(Some(Cow::Borrowed(_)))));
        assert!(matches!(Image::new(None).member("a"), Ok(None)));
    }
}
