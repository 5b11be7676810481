//! The kinds of triggers, one file each: its form in the document, the topics it listens to, the change or the schedule
//! that fires it, and the expressions in it.
//!
//! Nothing outside of this folder lists the kinds. The list below makes [`On`] of them; the rest of the engine asks
//! [`Form`] and [`Change`]. The fields of all kinds are in [`TriggerDef`]. CONTRIBUTING.md says how to add a kind.

mod call;
mod changed;
mod created;
mod cron;
mod deleted;
mod event;
mod interval;
mod numeric;
#[macro_use]
mod registry;
mod state;
mod updated;

pub use numeric::{Measure, Range, Side};
pub use state::{Matcher, Transition};

use crate::check::TableShape;
use crate::definition::{Problem, TriggerDef};
use crate::expr::{Budget, Expr, ExprError, Scope};
use crate::gate::{Code, Reason};
use crate::program::Parts;
use crate::schedule::{Missed, Overlap, Schedule, Timetable};
use crate::value::Value;
use serde_json::{Map, Value as Json};

// The order is the order in which error messages list the kinds.
trigger_kinds! {
    /// An entity came into being.
    Created(created::Created);
    /// An entity changed.
    Updated(updated::Updated);
    /// An entity is gone.
    Deleted(deleted::Deleted);
    /// An entity was created, updated or deleted.
    Changed(changed::Changed);
    /// A field went from one value to another.
    State(state::State);
    /// A number came into a range.
    Numeric(numeric::Numeric);
    /// An event on a topic.
    Event(event::Event);
    /// The clock, by a schedule.
    Cron(cron::Cron);
    /// The clock, at equal distances.
    Interval(interval::Interval);
    /// Fires only by hand or by another automation.
    Call(call::Call);
}

/// The change that a trigger requires of the event's entity.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Any change on the trigger's topics.
    Any,
    /// A transition of a field.
    State(Transition),
    /// A number came into a range.
    Numeric(Range),
}

impl Change {
    /// The checks of the change. The only place where kinds of changes are told apart.
    pub fn meant(&self) -> &dyn Meant {
        match self {
            Change::Any => &Any,
            Change::State(transition) => transition,
            Change::Numeric(range) => range,
        }
    }
}

/// The form of a kind of trigger, and the facts about it.
pub struct Form {
    /// The word in `on`; the name of its builder in SQL is `on_` and this.
    pub name: &'static str,
    /// Fields that a trigger of this kind must have.
    pub required: &'static [&'static str],
    /// Fields that it may have, beside those of all triggers.
    pub optional: &'static [&'static str],
    /// How the trigger treats the rows of a backfill.
    pub backfill: Backfill,
}

/// How a trigger treats the rows of a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfill {
    /// Not at all: the trigger is not about rows.
    None,
    /// As entities that came into being.
    Created,
    /// As entities that changed.
    Updated,
    /// As payloads of events on its topic.
    Event,
}

/// Interface of a trigger kind. Each kind must implement the methods that have no body here.
pub(crate) trait TriggerKind {
    /// Its form in the document, and the facts about it.
    const FORM: Form;

    /// Fills in fields that the document leaves out. Called for triggers of this kind before their fields are checked.
    fn tidy(_trigger: &mut Map<String, Json>) {}

    /// Do the fields of a trigger of this kind go together?
    fn check(_trigger: Checking<'_>) {}

    /// The patterns of the topics it listens to. A problem has been reported if there is no answer.
    fn patterns(def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Vec<String>>;

    /// The change that the trigger requires of the event's entity. A problem has been reported if there is no answer.
    fn change(_def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Change> {
        Some(Change::Any)
    }

    /// When the clock fires it.
    fn schedule(_def: &TriggerDef, _parts: &mut Parts<'_>) -> Option<Schedule> {
        None
    }
}

/// One trigger of a document while its fields are checked.
pub(crate) struct Checking<'a> {
    /// The trigger.
    pub trigger: &'a Map<String, Json>,
    /// Where it stands, e.g. `triggers[0]`.
    pub path: &'a str,
    /// The same in words, e.g. `trigger "paid"`.
    pub place: &'a str,
    /// Problems found so far.
    pub problems: &'a mut Vec<Problem>,
}

impl Checking<'_> {
    fn has(&self, field: &str) -> bool {
        self.trigger.contains_key(field)
    }

    fn wrong(&mut self, field: &str, message: String, hint: &str) {
        self.problems.push(Problem::shape(format!("{}.{field}", self.path), self.place, message).hint(hint));
    }
}

/// A change that a trigger means. `armed` is the last result of [`Meant::armed_after`] for the entity.
pub trait Meant {
    /// Is the change of the event the one that is meant? Routing asks this of every event and trigger, so it writes no
    /// text.
    fn verdict(&self, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Result<(), Code>;

    /// As [`Meant::verdict`], with the clause that said no and the value it saw. `code` is the code of that verdict.
    fn fires(&self, code: Code, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Result<(), Reason>;

    /// Is the state that fired the trigger still so?
    fn holds(&self, since: &HeldSince<'_>, budget: &mut Budget) -> Result<(), Reason>;

    /// The value of `armed` to remember for an entity whose value could not be worked out.
    fn armed_after(&self, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Option<bool>;

    /// Does the verdict on the change depend on the remembered `armed`?
    fn asks_memory(&self, scope: &dyn Scope, budget: &mut Budget) -> bool;

    /// Its expressions, each with the field of the document that holds it.
    fn expressions(&self) -> Vec<(&'static str, &Expr)>;

    /// The field of the entity that it names, for the columns of a watched table.
    fn field(&self) -> Option<&str>;

    /// Problems of its values with a table of this shape.
    fn problems(&self, shape: &TableShape) -> Vec<ExprError>;
}

/// The time since a `hold_for` was armed.
pub struct HeldSince<'a> {
    /// The entity before the event that armed it.
    pub old: &'a Value,
    /// The entity after that event.
    pub new: &'a Value,
    /// The entity now.
    pub now: &'a Value,
    /// The whole change since before that event, as expressions see it.
    pub scope: &'a dyn Scope,
}

/// Any change on the trigger's topics.
struct Any;

impl Meant for Any {
    fn verdict(&self, _: &dyn Scope, _: &mut Budget, _: Option<bool>) -> Result<(), Code> {
        Ok(())
    }

    fn fires(&self, _: Code, _: &dyn Scope, _: &mut Budget, _: Option<bool>) -> Result<(), Reason> {
        Ok(())
    }

    fn holds(&self, _: &HeldSince<'_>, _: &mut Budget) -> Result<(), Reason> {
        Ok(())
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
        None
    }

    fn problems(&self, _: &TableShape) -> Vec<ExprError> {
        Vec::new()
    }
}

impl On {
    /// The kind of this name.
    pub fn named(name: &str) -> Option<On> {
        On::ALL.into_iter().find(|on| on.name() == name)
    }

    /// The name under which documents know it.
    pub fn name(self) -> &'static str {
        self.form().name
    }
}

/// Topics of the changes of a kind of entity.
pub(crate) fn verbs(kind: &str, verbs: &[&str]) -> Vec<String> {
    verbs.iter().map(|verb| format!("{kind}.{verb}")).collect()
}

/// The topics of the changes of the kind of entity that a trigger names.
fn changes(def: &TriggerDef, of: &[&str]) -> Option<Vec<String>> {
    Some(verbs(def.kind.as_deref().unwrap_or_default(), of))
}

/// A schedule with its rules for missed ticks and for overlapping runs.
fn schedule(def: &TriggerDef, timetable: Timetable, text: String) -> Schedule {
    let missed = match &def.missed {
        None => Missed::Once,
        Some(Json::Object(fields)) => Missed::All(fields.get("all").and_then(Json::as_u64).unwrap_or(1) as usize),
        Some(_) => Missed::Skip,
    };
    let overlap = match def.overlap.as_deref() {
        Some("allow") => Overlap::Allow,
        Some("queue") => Overlap::Queue,
        _ => Overlap::Skip,
    };
    Schedule { timetable, missed, overlap, text }
}

#[cfg(test)]
mod tests {
    use super::On;

    #[test]
    fn every_kind_has_one_name_and_it_is_its_serde_name() {
        for on in On::ALL {
            let word: On = serde_json::from_value(on.name().into()).expect("a kind of this name");
            assert_eq!(word, on);
            assert_eq!(On::named(on.name()), Some(on));
        }
    }
}
