//! Filters and conditions as gates: closed if they cannot be worked out.

use super::{Code, Reason};
use crate::condition::Condition;
use crate::expr::{Budget, Scope};

/// Does a trigger's filter let the event pass?
pub fn filter(filter: Option<&Condition>, scope: &dyn Scope, budget: &mut Budget) -> Result<(), Reason> {
    judge(filter, scope, budget, Code::FilterFalse, Code::FilterError)
}

/// Does the automation's condition hold now?
pub fn condition(condition: Option<&Condition>, scope: &dyn Scope, budget: &mut Budget) -> Result<(), Reason> {
    judge(condition, scope, budget, Code::ConditionFalse, Code::ConditionError)
}

fn judge(
    condition: Option<&Condition>,
    scope: &dyn Scope,
    budget: &mut Budget,
    no: Code,
    error: Code,
) -> Result<(), Reason> {
    let Some(condition) = condition else { return Ok(()) };
    match condition.holds(scope, budget) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(failure) => return Err(Reason::new(error, failure.message, "")),
    }
    // The reason is worked out with a budget of its own: a costly condition is still explained.
    Err(match condition.explain(scope, &mut Budget::default()) {
        Ok(Some(refusal)) => Reason::new(no, refusal.clause, refusal.found),
        Ok(None) => Reason::new(no, "it holds", "it did not"),
        Err(failure) => Reason::new(no, "it holds", failure.message),
    })
}
