//! `hold_for`: fire only if the state that fired the trigger lasts for a time.
//!
//! One armed row per automation, trigger and context key ([`super::key::context`]). The row keeps its deadline however
//! often the trigger fires again, is cancelled by the first change that makes the trigger's state false, survives
//! restarts, and is looked at once more when its time has come. It remembers the entity before and after the change
//! that armed it, and later changes are compared with those: a filter such as `new.status becomes 'paid'` asks whether
//! the status went from its value *then* to `paid`.

use super::clause;
use super::{Code, Reason};
use crate::condition::Condition;
use crate::definition::{MAX_HOLD, in_words, micros};
use crate::expr::{Budget, ExprError, Scope, root_of};
use crate::program::{Hold, Trigger};
use crate::triggers::HeldSince;
use crate::value::{Timestamp, Unreadable, Value};

/// The stored row of a hold while its time runs.
#[derive(Clone, Debug)]
pub struct Armed {
    /// When the hold fires.
    pub deadline: Timestamp,
    /// [`Trigger::fingerprint`] when the hold was armed.
    pub fingerprint: i64,
    /// The entity before the change that armed the hold, null if there was none.
    pub old: Value,
    /// The entity after that change.
    pub new: Value,
}

/// The effect of an event on a hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// Nothing is held, and nothing fired.
    Idle,
    /// The time begins to run: store an armed row and a timer.
    Arm {
        /// When the hold fires.
        deadline: Timestamp,
    },
    /// The hold goes on with its deadline.
    Keep,
    /// The time of the hold was up before this event: let it expire first, with the entity as it was before the event,
    /// then hear the event again.
    Due,
    /// The hold is cancelled.
    Cancel(Reason),
    /// The hold is cancelled, and the same change begins a new one.
    Rearm {
        /// Why the old hold is cancelled.
        reason: Reason,
        /// When the new hold fires.
        deadline: Timestamp,
    },
    /// A hold would begin, but its `hold_for` is no duration.
    Refuse(Reason),
}

/// The decision when the time of a hold is over.
#[derive(Clone, Debug, PartialEq)]
pub enum Expired {
    /// Not yet: the timer came early.
    NotYet,
    /// The event goes on to the next gate.
    Fire,
    /// The hold does not fire.
    Drop(Reason),
}

/// The deadline of a hold that begins now.
pub fn deadline(hold: &Hold, scope: &dyn Scope, budget: &mut Budget) -> Result<Timestamp, Reason> {
    let length = match hold {
        Hold::For(micros) => Ok(*micros),
        Hold::Computed(template) => match template.render(scope, budget) {
            Ok(text) => match micros(&serde_json::Value::String(text.clone())) {
                Some(length @ 1..=MAX_HOLD) => Ok(length),
                _ => Err(format!("it is \"{text}\"")),
            },
            Err(error) => Err(error.message),
        },
    };
    let clause = || format!("hold_for is a duration of up to {}", in_words(MAX_HOLD));
    match length.map(|length| scope.now().0.checked_add(length)) {
        Ok(Some(at)) => Ok(Timestamp(at)),
        Ok(None) => Err(Reason::new(Code::HoldInvalid, clause(), "it is beyond the end of time")),
        Err(found) => Err(Reason::new(Code::HoldInvalid, clause(), found)),
    }
}

/// Hears an event of the entity or topic: one of the trigger's own patterns or of [`Trigger::hold_patterns`]. `fired`:
/// did the gates before this one let the event pass? `happened` is the earliest time at which the change can have come
/// about, and the time runs from the scope's now: so it is never too short, and no change within it is overlooked.
pub fn hear(
    trigger: &Trigger,
    armed: Option<&Armed>,
    fired: bool,
    scope: &dyn Scope,
    budget: &mut Budget,
    happened: Timestamp,
) -> Heard {
    let Some(hold) = &trigger.hold_for else { return Heard::Idle };
    let begin = |budget: &mut Budget, over: Option<Reason>| match (deadline(hold, scope, budget), over) {
        (Ok(deadline), None) => Heard::Arm { deadline },
        (Ok(deadline), Some(reason)) => Heard::Rearm { reason, deadline },
        (Err(_), Some(reason)) => Heard::Cancel(reason),
        (Err(refusal), None) => Heard::Refuse(refusal),
    };
    let Some(armed) = armed else {
        return if fired { begin(budget, None) } else { Heard::Idle };
    };
    let over = if armed.fingerprint != trigger.fingerprint {
        changed()
    } else if armed.deadline <= happened {
        return Heard::Due;
    } else {
        match still_holds(trigger, armed, scope, budget) {
            Ok(()) => return Heard::Keep,
            Err(reason) => reason,
        }
    };
    if fired { begin(budget, Some(over)) } else { Heard::Cancel(over) }
}

/// Decides when the time of a hold is up. `trigger` is the one with the same name in the active version, if there is
/// one; the scope's `new` is the entity as it is now. The automation's condition is looked at now, not when the time
/// began.
pub fn expire(
    trigger: Option<&Trigger>,
    armed: &Armed,
    active: bool,
    condition: Option<&Condition>,
    scope: &dyn Scope,
    budget: &mut Budget,
) -> Expired {
    if scope.now() < armed.deadline {
        return Expired::NotYet;
    }
    let drop = |code: Code, clause: &str| Expired::Drop(Reason::new(code, clause, ""));
    let Some(trigger) = trigger.filter(|trigger| trigger.enabled) else {
        return drop(Code::HoldTriggerGone, "the trigger exists and is enabled");
    };
    if !active {
        return drop(Code::HoldInactive, "the automation is active");
    }
    if armed.fingerprint != trigger.fingerprint {
        return Expired::Drop(changed());
    }
    let verdict = still_holds(trigger, armed, scope, budget)
        .and_then(|()| clause::condition(condition, &Since { armed, now: scope }, budget));
    verdict.map_or_else(Expired::Drop, |()| Expired::Fire)
}

fn changed() -> Reason {
    Reason::new(Code::HoldTriggerChanged, "the trigger is the one that was armed", "it was redefined")
}

/// Is the state that armed the hold still so?
fn still_holds(trigger: &Trigger, armed: &Armed, scope: &dyn Scope, budget: &mut Budget) -> Result<(), Reason> {
    let now = root_of(scope, "new")
        .map_err(|error| Reason::new(Code::HoldBroken, "the entity can be read", ExprError::from(error).message))?;
    if trigger.is_change() && armed.new.is_null() != now.is_null() {
        let (clause, found) = match now.is_null() {
            true => ("the entity stays", "it is gone"),
            false => ("the entity stays away", "it is there again"),
        };
        return Err(Reason::new(Code::HoldEntityGone, clause, found));
    }
    let since = Since { armed, now: scope };
    let held = HeldSince { old: &armed.old, new: &armed.new, now, scope: &since };
    trigger.change.meant().holds(&held, budget)?;
    clause::filter(trigger.filter.as_ref(), &since, budget)
        .map_err(|reason| Reason { code: Code::HoldBroken, ..reason })
}

/// The whole change since before the hold was armed: `old` is the entity of that time, all other roots are those of
/// now.
struct Since<'a> {
    armed: &'a Armed,
    now: &'a dyn Scope,
}

impl Scope for Since<'_> {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        match name {
            "old" | "prev" => Ok(Some(&self.armed.old)),
            _ => self.now.root(name),
        }
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        self.now.state(kind, id)
    }

    fn changed_at(&self, kind: &str, id: &str, field: &str) -> Result<Option<Timestamp>, ExprError> {
        self.now.changed_at(kind, id, field)
    }

    fn now(&self) -> Timestamp {
        self.now.now()
    }
}

#[cfg(test)]
mod tests {
    use super::{Armed, Expired, Heard, expire, hear};
    use crate::definition::read;
    use crate::expr::{Budget, FixedScope};
    use crate::program::{Trigger, compile};
    use crate::value::{Timestamp, Value};

    fn trigger() -> Trigger {
        let document = serde_json::json!({"name": "x", "steps": [{"do": "sql", "sql": "SELECT 1"}],
            "trigger": {"on": "event", "topic": "t", "hold_for": "1 s"}});
        compile(&read(&document).expect("a document")).expect("a program").triggers.remove(0)
    }

    #[test]
    fn a_timer_that_comes_early_is_not_yet_g8() {
        let trigger = trigger();
        let armed =
            Armed { deadline: Timestamp(1000), fingerprint: trigger.fingerprint, old: Value::Null, new: Value::Null };
        let at = |now| {
            let scope = FixedScope::new(Value::Null, Timestamp(now));
            expire(Some(&trigger), &armed, true, None, &scope, &mut Budget::default())
        };
        assert_eq!(at(999), Expired::NotYet);
        assert_eq!(at(1000), Expired::Fire);
    }

    #[test]
    fn the_time_runs_from_now_and_not_from_when_a_long_transaction_began() {
        let scope = FixedScope::new(Value::Null, Timestamp(5_000_000));
        let heard = hear(&trigger(), None, true, &scope, &mut Budget::default(), Timestamp(0));
        assert_eq!(heard, Heard::Arm { deadline: Timestamp(6_000_000) });
    }
}
