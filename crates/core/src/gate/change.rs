//! The first gates, config and filter: is this event one that the trigger means?

use super::{Code, Reason, clause};
use crate::definition::On;
use crate::expr::{Budget, Scope, root_of};
use crate::program::{Change, Trigger};

/// What a trigger must know of an event beside what expressions see of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occurrence<'a> {
    /// Its tenant.
    pub tenant: Option<&'a str>,
    /// The entity it is about.
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

/// Is it what the trigger is about: its entity, its columns, its transition, its range? The topic has been matched by
/// the caller. `armed` is what [`armed_after`] last said of this entity.
pub fn config(
    trigger: &Trigger,
    event: &Occurrence<'_>,
    scope: &dyn Scope,
    budget: &mut Budget,
    armed: Option<bool>,
) -> Result<(), Reason> {
    if !trigger.enabled {
        return Err(Reason::new(Code::Disabled, "the trigger is enabled", ""));
    }
    entity(trigger, event.entity)?;
    if let (Some(columns), On::Updated) = (&trigger.columns, trigger.on)
        && !event.changed.iter().any(|name| columns.contains(name))
    {
        let (wanted, changed) = (columns.join(" or "), event.changed.join(", "));
        return Err(Reason::new(Code::ColumnsUnchanged, format!("{wanted} changed"), format!("only {changed} did")));
    }
    match &trigger.change {
        Change::Any => Ok(()),
        Change::State(transition) => transition.fires(root_of(scope, "old"), root_of(scope, "new")),
        Change::Numeric(range) => range.fires(scope, budget, armed),
    }
}

/// Is the event about one of the trigger's entities?
pub fn entity(trigger: &Trigger, entity: Option<&str>) -> Result<(), Reason> {
    let Some(wanted) = &trigger.entities else { return Ok(()) };
    if entity.is_some_and(|entity| wanted.iter().any(|id| id == entity)) {
        return Ok(());
    }
    let found = entity.map_or("it has none".to_owned(), |entity| format!("it is \"{entity}\""));
    Err(Reason::new(Code::OtherEntity, format!("entity is \"{}\"", wanted.join("\" or \"")), found))
}

/// Config and filter: what routing can decide if the trigger [is pure](Trigger::is_pure_event).
pub fn matches(
    trigger: &Trigger,
    event: &Occurrence<'_>,
    scope: &dyn Scope,
    budget: &mut Budget,
    armed: Option<bool>,
) -> Result<(), Reason> {
    config(trigger, event, scope, budget, armed)?;
    clause::filter(trigger.filter.as_ref(), scope, budget)
}

/// What to remember about an entity whose number could not be worked out; see [`crate::program::Range::armed_after`].
/// Only needed after [`config`] said [`Code::ValueError`].
pub fn armed_after(trigger: &Trigger, scope: &dyn Scope, budget: &mut Budget, armed: Option<bool>) -> Option<bool> {
    match &trigger.change {
        Change::Numeric(range) => range.armed_after(scope, budget, armed),
        _ => None,
    }
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
