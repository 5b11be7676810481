//! Hot flow: an automation that is executed far too often is paused before it does more harm (R002-12 to R002-20).
//!
//! The author's own limit takes the place of the usual ones. A hot execution is recorded, does nothing and is not
//! counted; only a person makes the automation active again.

use super::{Code, Reason};
use crate::definition::{in_words, spelled};
use crate::value::Timestamp;
use serde_json::{Value as Json, json};

/// A limit: so many executions within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many executions are allowed.
    pub count: u64,
    /// Within so many microseconds.
    pub within: i64,
}

/// The executions that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// All executions, against the author's own limit.
    Custom,
    /// All executions.
    General,
    /// Executions for updates of one entity.
    EntityUpdates,
    /// Executions that the automation caused itself, directly or through others.
    OwnWrites,
}

/// The usual limits, in the order in which they are looked at.
const USUAL: [(Check, Rate); 3] = [
    (Check::General, Rate { count: 100, within: 30_000_000 }),
    (Check::EntityUpdates, Rate { count: 50, within: 60_000_000 }),
    (Check::OwnWrites, Rate { count: 20, within: 300_000_000 }),
];

/// More executions in a minute than this are a storm.
pub const STORM: u64 = 20;
const MINUTE: i64 = 60_000_000;

/// The cause of the execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// An update of an entity.
    pub update: bool,
    /// The event goes back to a run of the same automation.
    pub own: bool,
}

/// An automation that is executed too often.
#[derive(Clone, Debug, PartialEq)]
pub struct Hot {
    /// The executions that were counted.
    pub check: Check,
    /// The limit that they were counted against.
    pub limit: Rate,
    /// How many executions, this one included.
    pub count: u64,
}

impl Check {
    /// The word in the details.
    pub fn word(self) -> &'static str {
        match self {
            Check::Custom => "max_executions",
            Check::General => "general",
            Check::EntityUpdates => "entity_updates",
            Check::OwnWrites => "own_writes",
        }
    }
}

/// The checks to make, with their limits. The author's limit stands alone.
pub fn checks(custom: Option<Rate>, cause: Cause) -> Vec<(Check, Rate)> {
    if let Some(rate) = custom {
        return vec![(Check::Custom, rate)];
    }
    let applies = |check: Check| match check {
        Check::EntityUpdates => cause.update,
        Check::OwnWrites => cause.own,
        Check::Custom | Check::General => true,
    };
    USUAL.into_iter().filter(|(check, _)| applies(*check)).collect()
}

/// Is one more execution too many? `count` gives the executions that a check counts since an instant, without this one
/// and without those that were hot.
pub fn judge(
    custom: Option<Rate>,
    cause: Cause,
    now: Timestamp,
    mut count: impl FnMut(Check, Timestamp) -> u64,
) -> Result<(), Hot> {
    for (check, limit) in checks(custom, cause) {
        let counted = count(check, Timestamp(now.0.saturating_sub(limit.within))) + 1;
        if counted > limit.count {
            return Err(Hot { check, limit, count: counted });
        }
    }
    Ok(())
}

impl Hot {
    /// Why the run executes no step.
    pub fn reason(&self) -> Reason {
        let clause = format!("at most {} executions within {}", self.limit.count, in_words(self.limit.within));
        Reason::new(Code::Hot, clause, format!("this is number {} ({})", self.count, self.check.word()))
    }

    /// The details that are stored with the automation that is paused because of this.
    pub fn disable_details(&self, at: Timestamp) -> Json {
        json!({
            "disabled_by": "system",
            "disabled_at": at.to_string(),
            "reason": Code::Hot.word(),
            "check": self.check.word(),
            "executions": self.count,
            "limit": self.limit.count,
            "window": spelled(self.limit.within),
        })
    }
}

/// A chain of causes that has come to its limit: the event at its end starts nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// How many runs led to the event.
    pub depth: i16,
    /// How many runs are allowed to lead to an event.
    pub limit: i16,
    /// One of those runs is of the automation that the event would have started.
    pub own: bool,
    /// A step `run` would have started that automation.
    pub called: bool,
}

impl Chain {
    /// Is the automation part of a loop, which would be cut off here again and again? The last automation of a long
    /// straight chain is not. An automation that calls itself by a step `run` is not paused either: the step fails, and
    /// with it every run that waits for the step, so the loop does not go on.
    pub fn is_loop(&self) -> bool {
        self.own && !self.called
    }

    /// Why the event at the end of the chain starts nothing.
    pub fn reason(&self) -> Reason {
        let clause = format!("at most {} runs that cause one another", self.limit);
        Reason::new(
            Code::Hot,
            clause,
            format!("this would be number {}, and the automation feeds itself", self.depth + 1),
        )
    }

    /// The details that are stored with an automation that is paused because of this chain.
    pub fn disable_details(&self, at: Timestamp) -> Json {
        json!({
            "disabled_by": "system",
            "disabled_at": at.to_string(),
            "reason": Code::Hot.word(),
            "check": "chain_too_deep",
            "depth": self.depth,
            "limit": self.limit,
        })
    }
}

/// Is it worth a warning that an automation was executed so often within the last minute? The warning never holds
/// anything back, and comes once a minute.
pub fn storm(executions: u64, warned: Option<Timestamp>, now: Timestamp) -> bool {
    executions > STORM && warned.is_none_or(|at| now.0.saturating_sub(at.0) >= MINUTE)
}

#[cfg(test)]
mod tests {
    use super::{Cause, Check, checks, storm};
    use crate::value::Timestamp;

    #[test]
    fn only_the_counts_that_matter_are_asked_for_r002_13() {
        let asked = |update: bool, own: bool| -> Vec<Check> {
            checks(None, Cause { update, own }).into_iter().map(|(check, _)| check).collect()
        };
        assert_eq!(asked(false, false), [Check::General]);
        assert_eq!(asked(true, false), [Check::General, Check::EntityUpdates]);
        assert_eq!(asked(true, true), [Check::General, Check::EntityUpdates, Check::OwnWrites]);
    }

    #[test]
    fn more_than_twenty_executions_in_a_minute_are_a_storm_said_once_a_minute_r001_42() {
        // R001-61: the constant.
        let minute = Timestamp(60_000_000);
        assert!(!storm(20, None, minute));
        assert!(storm(21, None, minute));
        assert!(!storm(500, Some(Timestamp(1)), minute));
        assert!(storm(500, Some(Timestamp(0)), minute));
    }
}
