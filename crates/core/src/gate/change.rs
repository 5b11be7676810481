//! The first gates, config and filter: is this event one that the trigger means?

use super::{Code, Reason, clause};
use crate::expr::{Budget, Scope};
use crate::program::Trigger;

/// Facts about an event that a trigger needs beside those that expressions see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occurrence<'a> {
    /// The tenant of the event.
    pub tenant: Option<&'a str>,
    /// The entity that the event is about.
    pub entity: Option<&'a str>,
    /// The columns that changed.
    pub changed: &'a [String],
}

/// An automation sees the events of its own tenant; one without a tenant sees all but those of reserved tenants.
pub fn tenant(automation: Option<&str>, event: Option<&str>) -> Result<(), Reason> {
    let passes = match (automation, event) {
        (Some(wanted), event) => event == Some(wanted),
        (None, event) => !event.is_some_and(|tenant| tenant.starts_with('_')),
    };
    if passes {
        return Ok(());
    }
    let clause = automation.map_or("tenant is not reserved".to_owned(), |wanted| format!("tenant is \"{wanted}\""));
    let found = event.map_or("it has none".to_owned(), |tenant| format!("it is \"{tenant}\""));
    Err(Reason::new(Code::OtherTenant, clause, found))
}

/// Does the trigger mean this event: its entity, its columns, its transition, its range? The topic has been matched by
/// the caller; `armed` is the last result of [`armed_after`] for this entity. Routing asks this of every event and
/// trigger, so it writes no text; [`matches`] does.
pub fn config(
    trigger: &Trigger,
    event: &Occurrence<'_>,
    scope: &dyn Scope,
    budget: &mut Budget,
    armed: Option<bool>,
) -> Result<(), Code> {
    if !trigger.enabled {
        return Err(Code::Disabled);
    }
    let of_others = |ids: &Vec<String>| !event.entity.is_some_and(|entity| ids.iter().any(|id| id == entity));
    if trigger.entities.as_ref().is_some_and(of_others) {
        return Err(Code::OtherEntity);
    }
    let untouched = |columns: &Vec<String>| !event.changed.iter().any(|name| columns.contains(name));
    if trigger.columns.as_ref().is_some_and(untouched) {
        return Err(Code::ColumnsUnchanged);
    }
    trigger.change.meant().verdict(scope, budget, armed)
}

/// Does the event pass config and filter?
pub fn verdict(
    trigger: &Trigger,
    event: &Occurrence<'_>,
    scope: &dyn Scope,
    budget: &mut Budget,
    armed: Option<bool>,
) -> Result<(), Code> {
    config(trigger, event, scope, budget, armed)?;
    match trigger.filter.as_ref().map(|filter| filter.holds(scope, budget)) {
        None | Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(Code::FilterFalse),
        Some(Err(_)) => Err(Code::FilterError),
    }
}

/// As [`verdict`], with the clause that said no and the value it saw.
pub fn matches(
    trigger: &Trigger,
    event: &Occurrence<'_>,
    scope: &dyn Scope,
    budget: &mut Budget,
    armed: Option<bool>,
) -> Result<(), Reason> {
    let Err(code) = verdict(trigger, event, scope, budget, armed) else { return Ok(()) };
    let budget = &mut Budget::default();
    let told = match code {
        Code::FilterFalse | Code::FilterError => clause::filter(trigger.filter.as_ref(), scope, budget),
        Code::Disabled | Code::OtherEntity | Code::ColumnsUnchanged => Err(shape(trigger, event, code)),
        code => trigger.change.meant().fires(code, scope, budget, armed),
    };
    // An event whose check ran out of its budget may pass with another budget; it has not passed.
    told.and(Err(Reason::new(code, "it can be worked out within its budget", "")))
}

fn shape(trigger: &Trigger, event: &Occurrence<'_>, code: Code) -> Reason {
    match code {
        Code::OtherEntity => {
            let wanted = trigger.entities.as_deref().unwrap_or_default().join("\" or \"");
            let found = event.entity.map_or("it has none".to_owned(), |entity| format!("it is \"{entity}\""));
            Reason::new(code, format!("entity is \"{wanted}\""), found)
        }
        Code::ColumnsUnchanged => {
            let wanted = trigger.columns.as_deref().unwrap_or_default().join(" or ");
            Reason::new(code, format!("{wanted} changed"), format!("only {} did", event.changed.join(", ")))
        }
        _ => Reason::new(code, "the trigger is enabled", ""),
    }
}

/// The value of `armed` to remember for an entity whose number could not be worked out; see
/// [`crate::triggers::Meant::armed_after`]. Only needed after [`verdict`] said [`Code::ValueError`].
pub fn armed_after(trigger: &Trigger, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Option<bool> {
    trigger.change.meant().armed_after(scope, budget, armed)
}

/// Does the verdict on the change depend on the last result of [`armed_after`]? Otherwise it need not be looked up.
pub fn asks_memory(trigger: &Trigger, scope: &dyn Scope, budget: &mut Budget) -> bool {
    trigger.change.meant().asks_memory(scope, budget)
}

#[cfg(test)]
mod tests {
    use super::tenant;

    #[test]
    fn an_automation_sees_its_own_tenant_and_nobody_sees_reserved_ones_by_chance_r001_16_d19() {
        for (automation, event, passes) in [
            (Some("acme"), Some("acme"), true),
            (Some("acme"), Some("other"), false),
            (Some("acme"), None, false),
            (None, None, true),
            (None, Some("acme"), true),
            (None, Some("_system"), false),
        ] {
            assert_eq!(tenant(automation, event).is_ok(), passes, "{automation:?} and {event:?}");
        }
        let reason = tenant(Some("acme"), Some("other")).expect_err("another tenant");
        assert_eq!(reason.to_string(), "other_tenant: tenant is \"acme\"; it is \"other\"");
    }
}
