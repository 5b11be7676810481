//! The life of an automation: draft, active, paused, and the four ways between them.

/// The status of an automation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Being written; starts nothing.
    Draft,
    /// Starts runs.
    Active,
    /// Stopped for the time being.
    Paused,
}

/// Why a transition was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such automation, or the caller may not see it.
    NotFound,
    /// There is no legal change between the two statuses.
    IllegalEdge,
    /// An automation without steps cannot be active.
    NoSteps,
    /// An automation whose triggers are not complete cannot be active.
    InvalidTriggerConfig,
}

/// Every legal change of status, with the name under which it is audited and published.
pub const LEGAL_EDGES: [(Status, Status, &str); 4] = [
    (Status::Draft, Status::Active, "automation.activated"),
    (Status::Active, Status::Paused, "automation.paused"),
    (Status::Paused, Status::Active, "automation.resumed"),
    (Status::Paused, Status::Draft, "automation.reverted_to_draft"),
];

impl Status {
    /// The word in the status column.
    pub fn word(self) -> &'static str {
        match self {
            Status::Draft => "draft",
            Status::Active => "active",
            Status::Paused => "paused",
        }
    }

    /// The status with this word.
    pub fn parse(word: &str) -> Option<Status> {
        [Status::Draft, Status::Active, Status::Paused].into_iter().find(|status| status.word() == word)
    }

    /// May an automation go from this status to `to`? Some(action) for a real change, None if it has that status
    /// already.
    pub fn transition(self, to: Status, steps: usize, triggers: usize) -> Result<Option<&'static str>, Refusal> {
        if self == to {
            return Ok(None);
        }
        let action =
            LEGAL_EDGES.iter().find(|(from, target, _)| *from == self && *target == to).map(|(_, _, action)| *action);
        let action = action.ok_or(Refusal::IllegalEdge)?;
        match to {
            Status::Active if steps == 0 => Err(Refusal::NoSteps),
            Status::Active if triggers == 0 => Err(Refusal::InvalidTriggerConfig),
            _ => Ok(Some(action)),
        }
    }
}

impl Refusal {
    /// The reason as callers compare it.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::NotFound => "automation_not_found",
            Refusal::IllegalEdge => "illegal_edge",
            Refusal::NoSteps => "no_steps",
            Refusal::InvalidTriggerConfig => "invalid_trigger_config",
        }
    }

    /// The reason as a person reads it.
    pub fn message(self) -> &'static str {
        match self {
            Refusal::NotFound => "Automation not found",
            Refusal::IllegalEdge => "Automation is not in a state that allows this transition",
            Refusal::NoSteps => "Automation must have at least one step to be activated",
            Refusal::InvalidTriggerConfig => "Automation trigger is missing required configuration",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, Status};

    #[test]
    fn exactly_the_four_edges_are_legal_r003_15() {
        let all = [Status::Draft, Status::Active, Status::Paused];
        let mut legal = Vec::new();
        for from in all {
            for to in all {
                if let Ok(Some(action)) = from.transition(to, 1, 1) {
                    legal.push((from.word(), to.word(), action));
                }
            }
        }
        assert_eq!(
            legal,
            [
                ("draft", "active", "automation.activated"),
                ("active", "paused", "automation.paused"),
                ("paused", "draft", "automation.reverted_to_draft"),
                ("paused", "active", "automation.resumed"),
            ]
        );
    }

    #[test]
    fn the_same_status_again_is_no_change_r003_18() {
        assert_eq!(Status::Paused.transition(Status::Paused, 0, 0), Ok(None));
    }

    #[test]
    fn becoming_active_needs_steps_and_triggers_from_both_sides_r003_16() {
        for from in [Status::Draft, Status::Paused] {
            assert_eq!(from.transition(Status::Active, 0, 1), Err(Refusal::NoSteps));
            assert_eq!(from.transition(Status::Active, 1, 0), Err(Refusal::InvalidTriggerConfig));
        }
        assert_eq!(Status::Active.transition(Status::Draft, 1, 1), Err(Refusal::IllegalEdge));
    }
}
