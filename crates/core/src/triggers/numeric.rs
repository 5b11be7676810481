//! The `numeric` trigger: a number came into a range.
//!
//! As Home Assistant's `numeric_state` trigger, it fires on coming in, not on being in. A value that is no number
//! counts as outside. A value that cannot be worked out is neither in nor out: it does not fire, and whether the number
//! was outside before (the trigger is *armed*) is kept. An entity that comes into being inside has not crossed
//! anything.

use super::{Backfill, Change, Checking, Form, HeldSince, Meant, TriggerKind, changes};
use crate::check::TableShape;
use crate::condition::member;
use crate::definition::TriggerDef;
use crate::expr::{Budget, Expr, ExprError, Scope};
use crate::gate::{Code, Reason, shown};
use crate::program::Parts;
use crate::value::{Number, Timestamp, Unreadable, Value};
use serde_json::Value as Json;

/// A number came into a range.
pub(super) struct Numeric;

impl TriggerKind for Numeric {
    const FORM: Form = Form {
        name: "numeric",
        required: &["kind"],
        optional: &["entity", "field", "value", "above", "below", "level", "hold_for"],
        backfill: Backfill::Updated,
    };

    fn check(mut trigger: Checking<'_>) {
        let place = trigger.place;
        if trigger.has("field") == trigger.has("value") {
            let message = format!("{place} needs either \"field\" or \"value\"");
            trigger.wrong("value", message, "Name a field, or give an expression such as new.total - new.paid.");
        }
        if !trigger.has("above") && !trigger.has("below") {
            let message = format!("{place} needs \"above\" or \"below\"");
            trigger.wrong("above", message, "Give one of them, or both.");
        }
        let number = |field: &str| match trigger.trigger.get(field) {
            Some(Json::Number(number)) => Number::parse(&number.to_string()),
            _ => None,
        };
        if let (Some(above), Some(below)) = (number("above"), number("below"))
            && above >= below
        {
            let message = format!("{place} can never fire: no number is above {above} and below {below}");
            trigger.wrong("above", message, "\"above\" must be less than \"below\".");
        }
    }

    fn patterns(def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Vec<String>> {
        changes(def, if def.level { &["created", "updated"] } else { &["updated"] })
    }

    fn change(def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Change> {
        let value = match (&def.field, &def.value) {
            (Some(field), _) => Some(Measure::Field(field.clone())),
            (None, value) => parts.expression(value.as_ref(), "value").map(Measure::Expr),
        };
        if let Some(Measure::Expr(expr)) = &value
            && expr.roots().contains("event")
        {
            // the value is worked out for the entity before the change, too, and `event` is only about this change
            let message = format!("\"value\" of {} reads the event", parts.place);
            parts.wrong("value", &message, "Read the entity through new, as in new.total - new.paid.");
        }
        let above = parts.expression(def.above.as_ref(), "above");
        let below = parts.expression(def.below.as_ref(), "below");
        Some(Change::Numeric(Range { value: value?, above, below, level: def.level }))
    }
}

/// A range that a number comes into.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The number.
    pub value: Measure,
    /// The range begins above this.
    pub above: Option<Expr>,
    /// The range ends below this.
    pub below: Option<Expr>,
    /// Fire on every change inside, not only on coming in.
    pub level: bool,
}

/// Where the number is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// In a field of the entity.
    Field(String),
    /// By an expression over `new`.
    Expr(Expr),
}

/// Where a number lies.
#[derive(Clone, Debug, PartialEq)]
pub enum Side {
    /// Inside the range.
    Inside(Value),
    /// Outside, or no number at all.
    Outside(Value),
    /// The number could not be worked out.
    Unknown(String),
}

impl Meant for Range {
    fn verdict(&self, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Result<(), Code> {
        self.crossed(scope, budget, armed).map_err(|(code, _)| code)
    }

    fn fires(&self, _: Code, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Result<(), Reason> {
        self.crossed(scope, budget, armed).map_err(|(code, side)| match (code, side) {
            (Code::NotCrossed, side) => {
                let found = match side {
                    Side::Inside(Value::Null) => "it came into being there".to_owned(),
                    Side::Inside(value) | Side::Outside(value) => format!("it was {}", shown(&value)),
                    Side::Unknown(error) => format!("what it was is not known: {error}"),
                };
                Reason::new(code, format!("comes to {}", self.describe()), found)
            }
            (_, Side::Inside(value) | Side::Outside(value)) => {
                Reason::new(code, self.describe(), format!("it is {}", shown(&value)))
            }
            (_, Side::Unknown(error)) => Reason::new(code, self.describe(), error),
        })
    }

    /// The number must stay inside. A number that cannot be worked out is not inside.
    fn holds(&self, since: &HeldSince<'_>, budget: &mut Budget) -> Result<(), Reason> {
        let clause = || format!("{} stays so", self.describe());
        match self.side(since.scope, budget) {
            Side::Inside(_) => Ok(()),
            Side::Outside(value) => Err(Reason::new(Code::HoldBroken, clause(), format!("it is {}", shown(&value)))),
            Side::Unknown(error) => Err(Reason::new(Code::HoldBroken, clause(), error)),
        }
    }

    /// The value of `armed` to remember for the entity after this change, if its value could not be worked out; `None`
    /// if there is nothing to remember, because the next change tells by itself.
    fn armed_after(&self, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Option<bool> {
        if self.level || !matches!(self.side(scope, budget), Side::Unknown(_)) {
            return None;
        }
        Some(match self.side(&Before(scope), budget) {
            _ if matches!(before(scope), Ok(Value::Null)) => false,
            Side::Outside(_) => true,
            Side::Inside(_) => false,
            Side::Unknown(_) => armed.unwrap_or(false),
        })
    }

    /// Could the number of the entity before the change not be worked out? Then only `armed` tells whether it was
    /// outside.
    fn asks_memory(&self, scope: &dyn Scope, budget: &mut Budget) -> bool {
        !self.level
            && !matches!(before(scope), Ok(Value::Null))
            && matches!(self.side(&Before(scope), budget), Side::Unknown(_))
    }

    fn expressions(&self) -> Vec<(&'static str, &Expr)> {
        let value = match &self.value {
            Measure::Expr(expr) => Some(("value", expr)),
            Measure::Field(_) => None,
        };
        let above = self.above.iter().map(|expr| ("above", expr));
        let below = self.below.iter().map(|expr| ("below", expr));
        value.into_iter().chain(above).chain(below).collect()
    }

    fn field(&self) -> Option<&str> {
        match &self.value {
            Measure::Field(field) => Some(field),
            Measure::Expr(_) => None,
        }
    }

    fn problems(&self, _: &TableShape) -> Vec<ExprError> {
        Vec::new()
    }
}

impl Range {
    /// Does the change make the trigger fire? The scope is that of the event. `armed` is the result of
    /// [`Meant::armed_after`] when the entity's value could last not be worked out. A no comes with the side that told,
    /// before or after the change.
    fn crossed(&self, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Result<(), (Code, Side)> {
        match self.side(scope, budget) {
            unknown @ Side::Unknown(_) => return Err((Code::ValueError, unknown)),
            outside @ Side::Outside(_) => return Err((Code::Outside, outside)),
            Side::Inside(_) if self.level => return Ok(()),
            Side::Inside(_) => {}
        }
        match before(scope) {
            // null is never inside a range: this side says that there was no entity before
            Ok(Value::Null) => return Err((Code::NotCrossed, Side::Inside(Value::Null))),
            Ok(_) => {}
            Err(error) => return Err((Code::ValueError, Side::Unknown(ExprError::from(error).message))),
        }
        match self.side(&Before(scope), budget) {
            Side::Outside(_) => Ok(()),
            Side::Unknown(_) if armed == Some(true) => Ok(()),
            side => Err((Code::NotCrossed, side)),
        }
    }

    /// Where the number of `new` lies. Bounds are strict.
    pub fn side(&self, scope: &dyn Scope, budget: &mut Budget) -> Side {
        self.try_side(scope, budget).unwrap_or_else(|error| Side::Unknown(error.message))
    }

    fn try_side(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<Side, ExprError> {
        let value = match &self.value {
            Measure::Field(field) => member(crate::expr::root_of(scope, "new")?, field).clone(),
            Measure::Expr(expr) => expr.eval(scope, budget)?,
        };
        let Some(number) = value.as_number() else { return Ok(Side::Outside(value)) };
        for (bound, inside) in [(&self.above, std::cmp::Ordering::Greater), (&self.below, std::cmp::Ordering::Less)] {
            let Some(expr) = bound else { continue };
            let Some(limit) = limit(expr, scope, budget)? else {
                return Ok(Side::Unknown(format!("{} is not a number", expr.text().trim())));
            };
            if number.cmp(&limit) != inside {
                return Ok(Side::Outside(value));
            }
        }
        Ok(Side::Inside(value))
    }

    fn describe(&self) -> String {
        let value = match &self.value {
            Measure::Field(field) => field.as_str(),
            Measure::Expr(expr) => expr.text().trim(),
        };
        let above = self.above.iter().map(|expr| format!("> {}", expr.text().trim()));
        let below = self.below.iter().map(|expr| format!("< {}", expr.text().trim()));
        format!("{value} {}", above.chain(below).collect::<Vec<_>>().join(" and "))
    }
}

fn limit(expr: &Expr, scope: &dyn Scope, budget: &mut Budget) -> Result<Option<Number>, ExprError> {
    Ok(expr.eval(scope, budget)?.as_number())
}

fn before(scope: &dyn Scope) -> Result<&Value, Unreadable> {
    crate::expr::root_of(scope, "old")
}

/// The scope before the change: `new` has the value of `old`. Bounds that read other entities are compared with the
/// present state of these, as bounds are only looked at when the entity itself changes.
struct Before<'a>(&'a dyn Scope);

impl Scope for Before<'_> {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        match name {
            "new" | "next" | "payload" => self.0.root("old"),
            _ => self.0.root(name),
        }
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        self.0.state(kind, id)
    }

    fn changed_at(&self, kind: &str, id: &str, field: &str) -> Result<Option<Timestamp>, ExprError> {
        self.0.changed_at(kind, id, field)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}
