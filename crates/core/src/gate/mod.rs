//! Between an event and a run. The gates stand in this order, and each that says no says why:
//!
//! config -> filter -> window -> hold_for -> condition -> dedup -> hot flow -> mode -> limits
//!
//! Every gate is a pure function: the caller brings the event, the time, the counts and the rows, and stores the gate's
//! decision.

pub mod admission;
pub mod apart;
pub mod breaker;
pub mod change;
pub mod clause;
pub mod hold;
pub mod hot;
pub mod key;
pub mod mode;
pub mod slow;
pub mod tenant_view;
pub mod window;

use crate::value::Value;
use std::fmt;

/// Which gate said no. The order is the order of the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Tenant, entity, columns, transition, range.
    Config,
    /// The trigger's filter.
    Filter,
    /// So many occurrences within a time.
    Window,
    /// The state that fired the trigger must last for a time.
    Hold,
    /// The automation's condition.
    Condition,
    /// An equal event was there before. Only events that would have started a run count as having been there.
    Dedup,
    /// Too many executions.
    HotFlow,
    /// A run with the same key is under way.
    Mode,
}

/// Every way in which a gate can say no: the code, its word, its gate. Callers compare and count the words.
const CODES: [(Code, &str, Gate); 29] = [
    (Code::NoRights, "no_rights", Gate::Config),
    (Code::Disabled, "trigger_disabled", Gate::Config),
    (Code::OtherTenant, "other_tenant", Gate::Config),
    (Code::TenantPaused, "tenant_paused", Gate::Config),
    (Code::OtherEntity, "other_entity", Gate::Config),
    (Code::ColumnsUnchanged, "columns_unchanged", Gate::Config),
    (Code::Unchanged, "value_unchanged", Gate::Config),
    (Code::OtherFrom, "from_differs", Gate::Config),
    (Code::OtherTo, "to_differs", Gate::Config),
    (Code::Outside, "outside_range", Gate::Config),
    (Code::NotCrossed, "not_crossed", Gate::Config),
    (Code::ValueError, "value_error", Gate::Config),
    (Code::FilterFalse, "filter_false", Gate::Filter),
    (Code::FilterError, "filter_error", Gate::Filter),
    (Code::WindowNotFull, "window_not_full", Gate::Window),
    (Code::WindowFired, "window_fired_before", Gate::Window),
    (Code::HoldBroken, "hold_broken", Gate::Hold),
    (Code::HoldEntityGone, "hold_entity_gone", Gate::Hold),
    (Code::HoldInvalid, "hold_invalid_duration", Gate::Hold),
    (Code::HoldTriggerChanged, "hold_trigger_changed", Gate::Hold),
    (Code::HoldTriggerGone, "hold_trigger_gone", Gate::Hold),
    (Code::HoldInactive, "hold_automation_inactive", Gate::Hold),
    (Code::ConditionFalse, "condition_false", Gate::Condition),
    (Code::ConditionError, "condition_error", Gate::Condition),
    (Code::Duplicate, "duplicate", Gate::Dedup),
    (Code::Hot, "hot_flow", Gate::HotFlow),
    (Code::AlreadyRunning, "already_running", Gate::Mode),
    (Code::MaxRuns, "max_runs", Gate::Mode),
    (Code::TickOverlaps, "overlap", Gate::Mode),
];

/// Why a gate said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The automation's owner may not read the table that the event is about.
    NoRights,
    /// The trigger is switched off.
    Disabled,
    /// The event belongs to another tenant.
    OtherTenant,
    /// The automation, which is for all tenants, is paused for the event's tenant.
    TenantPaused,
    /// The event is about another entity.
    OtherEntity,
    /// None of the trigger's columns changed.
    ColumnsUnchanged,
    /// The field has the value it had.
    Unchanged,
    /// The field did not have the right value before.
    OtherFrom,
    /// The field does not have the right value now.
    OtherTo,
    /// The number is not inside the range.
    Outside,
    /// The number was inside before.
    NotCrossed,
    /// The number, or the row that it stands in, could not be worked out.
    ValueError,
    /// The filter does not hold.
    FilterFalse,
    /// The filter could not be worked out.
    FilterError,
    /// Too few occurrences within the window yet.
    WindowNotFull,
    /// More occurrences than the window needs, but it has fired for them.
    WindowFired,
    /// The state that was held is no longer so.
    HoldBroken,
    /// The entity came or went during the hold.
    HoldEntityGone,
    /// The text that says how long to hold is no duration.
    HoldInvalid,
    /// The trigger is not the one that was armed.
    HoldTriggerChanged,
    /// The trigger does not exist any more.
    HoldTriggerGone,
    /// The automation is not active.
    HoldInactive,
    /// An equal event was there before.
    Duplicate,
    /// The condition does not hold.
    ConditionFalse,
    /// The condition could not be worked out.
    ConditionError,
    /// Too many executions.
    Hot,
    /// A run with the same key is under way.
    AlreadyRunning,
    /// Too many runs with the same key are under way or queued.
    MaxRuns,
    /// The run of an earlier tick is under way.
    TickOverlaps,
}

impl Code {
    fn entry(self) -> &'static (Code, &'static str, Gate) {
        // Every code has an entry: a test looks at each.
        CODES.iter().find(|(code, ..)| *code == self).unwrap_or(&CODES[0])
    }

    /// The word that views and callers know.
    pub fn word(self) -> &'static str {
        self.entry().1
    }

    /// The gate that says no with this code.
    pub fn gate(self) -> Gate {
        self.entry().2
    }

    /// Every code.
    pub fn all() -> impl Iterator<Item = Code> {
        CODES.iter().map(|(code, ..)| *code)
    }
}

/// A gate's no: the first clause that was not fulfilled, and the value found instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The reason for programs.
    pub code: Code,
    /// The requirement, such as `status to "paid"`.
    pub clause: String,
    /// The value found, such as `it is "new"`; empty if there is nothing to add.
    pub found: String,
}

impl Reason {
    pub(crate) fn new(code: Code, clause: impl Into<String>, found: impl Into<String>) -> Reason {
        Reason { code, clause: clause.into(), found: found.into() }
    }
}

/// `to_differs: status to "paid"; it is "new"`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.word(), self.clause)?;
        if self.found.is_empty() { Ok(()) } else { write!(f, "; {}", self.found) }
    }
}

/// A value for people, not longer than a line.
pub(crate) fn shown(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_json();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::CODES;

    #[test]
    fn every_code_has_one_word_of_its_own_in_the_order_of_the_gates() {
        for (i, (code, word, gate)) in CODES.iter().enumerate() {
            assert_eq!((code.word(), code.gate()), (*word, *gate));
            assert!(CODES[..i].iter().all(|(_, earlier, _)| earlier != word), "{word} twice");
            assert!(i == 0 || CODES[i - 1].2 <= *gate, "{word} is out of order");
        }
    }
}
