//! Did a field go from the right value to the right value?
//!
//! Home Assistant's `state` trigger: it fires when the value changes, not when it is what it was; what does not exist is
//! null, so coming into being is a change from null and going a change to null.

use super::{Code, Reason};
use crate::condition::member;
use crate::program::{Matcher, Transition};
use crate::value::{Value, boolean_from_text};

impl Transition {
    /// The value it is about in an image of the entity; the whole image if there is no field.
    pub(super) fn value_in<'a>(&self, image: &'a Value) -> &'a Value {
        self.field.as_ref().map_or(image, |field| member(image, field))
    }

    fn name(&self) -> &str {
        self.field.as_deref().unwrap_or("the entity")
    }

    /// Do the images before and after the change make it fire? An image is null if there is no entity.
    pub fn verdict(&self, old: &Value, new: &Value) -> Result<(), Code> {
        let (old, new) = (self.value_in(old), self.value_in(new));
        if old == new {
            return Err(Code::Unchanged);
        }
        if self.from.as_ref().is_some_and(|from| !from.matches(old)) {
            return Err(Code::OtherFrom);
        }
        if self.to.as_ref().is_some_and(|to| !to.matches(new)) {
            return Err(Code::OtherTo);
        }
        Ok(())
    }

    /// The same, with the clause that said no and what it saw.
    pub fn fires(&self, old: &Value, new: &Value) -> Result<(), Reason> {
        let described = |matcher: &Option<Matcher>| matcher.as_ref().map(Matcher::describe).unwrap_or_default();
        self.verdict(old, new).map_err(|code| {
            let (old, new) = (shown(self.value_in(old)), shown(self.value_in(new)));
            let (clause, found) = match code {
                Code::OtherFrom => (format!("from {}", described(&self.from)), format!("it was {old}")),
                Code::OtherTo => (format!("to {}", described(&self.to)), format!("it is {new}")),
                _ => ("changed".to_owned(), format!("it is still {new}")),
            };
            Reason::new(code, format!("{} {clause}", self.name()), found)
        })
    }

    /// Is what fired it still so? With `to`, or with neither, the value must stay what it became, also if others would
    /// have fired as well; with `from` alone it must not become what it was.
    pub(super) fn holds(&self, old: &Value, new: &Value, now: &Value) -> Result<(), Reason> {
        let (old, new, now) = (self.value_in(old), self.value_in(new), self.value_in(now));
        let only_from = matches!(self.from, Some(Matcher::OneOf(_))) && self.to.is_none();
        let (holds, clause) = match only_from {
            true => (now != old, format!("{} is no longer {}", self.name(), shown(old))),
            false => (now == new, format!("{} stays {}", self.name(), shown(new))),
        };
        if holds { Ok(()) } else { Err(Reason::new(Code::HoldBroken, clause, format!("it is {}", shown(now)))) }
    }
}

impl Matcher {
    fn matches(&self, value: &Value) -> bool {
        let among = |values: &[Value]| values.iter().any(|wanted| is_value(value, wanted));
        match self {
            Matcher::OneOf(values) => among(values),
            Matcher::NoneOf(values) => !among(values),
        }
    }

    fn describe(&self) -> String {
        let listed = |values: &[Value]| values.iter().map(shown).collect::<Vec<_>>().join(" or ");
        match self {
            Matcher::OneOf(values) => listed(values),
            Matcher::NoneOf(values) => format!("anything but {}", listed(values)),
        }
    }
}

/// Is the entity's value the wanted one? The builder of the trigger takes texts, so a wanted text is read as a boolean where
/// the entity's value is one.
fn is_value(value: &Value, wanted: &Value) -> bool {
    match (value, wanted.as_str()) {
        (Value::Bool(value), Some(text)) => boolean_from_text(text) == Some(*value),
        _ => crate::expr::equal(value, wanted),
    }
}

/// A value for people, not longer than a line.
pub(super) fn shown(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_json();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
