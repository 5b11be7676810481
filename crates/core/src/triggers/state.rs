//! The `state` trigger: a field went from one value to another.
//!
//! As Home Assistant's `state` trigger, it fires when the value changes, not when the value stays the same. The value
//! of an entity that does not exist is null, so coming into being is a change from null and going a change to null.

use super::{Backfill, Change, Form, HeldSince, Meant, TriggerKind, changes};
use crate::check::{TableShape, check_transition};
use crate::condition::member;
use crate::definition::TriggerDef;
use crate::expr::{Budget, Expr, ExprError, Scope, root_of};
use crate::gate::{Code, Reason, shown};
use crate::program::Parts;
use crate::value::{Value, boolean_from_text};
use serde_json::{Map, Value as Json};

/// The field of a trigger that only gives values for `from` and `to`, as in a `state` condition.
const STATE_FIELD: &str = "status";

/// A field went from one value to another.
pub(super) struct State;

impl TriggerKind for State {
    const FORM: Form = Form {
        name: "state",
        required: &["kind"],
        optional: &["entity", "field", "from", "to", "not_from", "not_to", "hold_for"],
        backfill: Backfill::Updated,
    };

    /// `to: null` means any value, but of the state only and not of the other fields: so a trigger with values gets a
    /// field.
    fn tidy(trigger: &mut Map<String, Json>) {
        if ["from", "to", "not_from", "not_to"].iter().any(|field| trigger.contains_key(*field)) {
            let field = trigger.entry("field").or_insert(Json::Null);
            if field.is_null() {
                *field = STATE_FIELD.into();
            }
        }
    }

    fn patterns(def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        changes(def, &["created", "updated", "deleted"])
    }

    fn change(def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Change> {
        let values = |given: &Json| match given {
            Json::Array(items) => items.iter().map(Value::from_serde).collect(),
            one => vec![Value::from_serde(one)],
        };
        let side = |only: &Option<Json>, not: &Option<Json>| match (only, not) {
            (Some(only), _) => Some(Matcher::OneOf(values(only))),
            (None, Some(not)) => Some(Matcher::NoneOf(values(not))),
            (None, None) => None,
        };
        let (from, to) = (side(&def.from, &def.not_from), side(&def.to, &def.not_to));
        Some(Change::State(Transition { field: def.field.clone(), from, to }))
    }
}

/// The change of a field from one value to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transition {
    /// The field; the whole entity if none is given.
    pub field: Option<String>,
    /// The values before the change.
    pub from: Option<Matcher>,
    /// The values after the change.
    pub to: Option<Matcher>,
}

/// A set of values. Null is the value of an entity or field that does not exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Matcher {
    /// One of these.
    OneOf(Vec<Value>),
    /// None of these.
    NoneOf(Vec<Value>),
}

impl Meant for Transition {
    fn verdict(&self, scope: &dyn Scope, _: &mut Budget, _: Option<bool>) -> Result<(), Code> {
        match (root_of(scope, "old"), root_of(scope, "new")) {
            (Ok(old), Ok(new)) => self.between(old, new),
            (Err(_), _) | (_, Err(_)) => Err(Code::ValueError),
        }
    }

    fn fires(&self, code: Code, scope: &dyn Scope, _: &mut Budget, _: Option<bool>) -> Result<(), Reason> {
        match (root_of(scope, "old"), root_of(scope, "new")) {
            (Ok(old), Ok(new)) => self.explain(old, new),
            (Err(error), _) | (_, Err(error)) => {
                Err(Reason::new(code, "the change can be read", ExprError::from(error).message))
            }
        }
    }

    /// With `to`, or with neither, the value must stay the one it became, also if other values would have fired as
    /// well; with `from` alone the value must not become the old one again.
    fn holds(&self, since: &HeldSince<'_>, _: &mut Budget) -> Result<(), Reason> {
        let (old, new, now) = (self.value_in(since.old), self.value_in(since.new), self.value_in(since.now));
        let only_from = matches!(self.from, Some(Matcher::OneOf(_))) && self.to.is_none();
        let (holds, clause) = match only_from {
            true => (now != old, format!("{} is no longer {}", self.name(), shown(old))),
            false => (now == new, format!("{} stays {}", self.name(), shown(new))),
        };
        if holds { Ok(()) } else { Err(Reason::new(Code::HoldBroken, clause, format!("it is {}", shown(now)))) }
    }

    fn armed_after(&self, _: &dyn Scope, _: &mut Budget, _: Option<bool>) -> Option<bool> {
        None
    }

    fn asks_memory(&self, _: &dyn Scope, _: &mut Budget) -> bool {
        false
    }

    fn expressions(&self) -> Vec<(&'static str, &Expr)> {
        Vec::new()
    }

    fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    fn problems(&self, shape: &TableShape) -> Vec<ExprError> {
        check_transition(self, shape)
    }
}

impl Transition {
    /// The value of the field in an image of the entity; the whole image if there is no field.
    fn value_in<'a>(&self, image: &'a Value) -> &'a Value {
        self.field.as_ref().map_or(image, |field| member(image, field))
    }

    fn name(&self) -> &str {
        self.field.as_deref().unwrap_or("the entity")
    }

    /// Do the images before and after the change make the trigger fire? An image is null if there is no entity.
    fn between(&self, old: &Value, new: &Value) -> Result<(), Code> {
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

    /// As `between`, with the clause that said no and the value it saw.
    fn explain(&self, old: &Value, new: &Value) -> Result<(), Reason> {
        let described = |matcher: &Option<Matcher>| matcher.as_ref().map(Matcher::describe).unwrap_or_default();
        self.between(old, new).map_err(|code| {
            let (old, new) = (shown(self.value_in(old)), shown(self.value_in(new)));
            let (clause, found) = match code {
                Code::OtherFrom => (format!("from {}", described(&self.from)), format!("it was {old}")),
                Code::OtherTo => (format!("to {}", described(&self.to)), format!("it is {new}")),
                _ => ("changed".to_owned(), format!("it is still {new}")),
            };
            Reason::new(code, format!("{} {clause}", self.name()), found)
        })
    }
}

impl Matcher {
    /// The values that it names.
    pub fn values(&self) -> &[Value] {
        match self {
            Matcher::OneOf(values) | Matcher::NoneOf(values) => values,
        }
    }

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

/// Is the entity's value the wanted one? The builder of the trigger takes texts, so a wanted text is read as a boolean
/// where the entity's value is one.
fn is_value(value: &Value, wanted: &Value) -> bool {
    match (value, wanted.as_str()) {
        (Value::Bool(value), Some(text)) => boolean_from_text(text) == Some(*value),
        _ => crate::expr::equal(value, wanted),
    }
}
