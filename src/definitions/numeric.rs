//! Evaluates `on_numeric` triggers whose last known value was NULL or an error, using the remembered side of the
//! threshold.
use automation_core::expr::{Budget, Scope};
use automation_core::gate::Code;
use automation_core::gate::change::{self, Occurrence};
use automation_core::ids::AutomationId;
use automation_core::program::Trigger;

use crate::store::numeric_memory;

/// Asks the core whether the event fires the trigger, passing the stored side of the threshold, and stores the new
/// side. `key` tells entities apart. The events of one entity must come in their order. All evaluations share one
/// budget.
pub fn config(
    automation: AutomationId,
    trigger: &Trigger,
    key: impl FnOnce() -> String,
    event: &Occurrence<'_>,
    scope: &dyn Scope,
    budget: &mut Budget,
) -> Result<(), Code> {
    let verdict = change::config(trigger, event, scope, budget, None);
    if !matches!(verdict, Err(Code::NotCrossed | Code::ValueError)) {
        return verdict;
    }
    let asks = change::asks_memory(trigger, scope, budget);
    if !asks && verdict == Err(Code::NotCrossed) {
        return verdict;
    }
    let key = key();
    let armed = if asks { numeric_memory::recall(automation, trigger, &key) } else { None };
    match change::armed_after(trigger, scope, budget, armed) {
        Some(now) if armed != Some(now) => numeric_memory::remember(automation, trigger, &key, now),
        None if armed.is_some() => numeric_memory::forget(automation, trigger, &key),
        _ => {}
    }
    change::config(trigger, event, scope, budget, armed)
}
