//! Changes and entities as a tenant sees them. The log has one event for each change; a change that moves an entity
//! from one tenant to another is shown to each of them as a deletion or a creation of its own.
use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

use automation_core::gate::tenant_view::{MAX_TENANT, View, may_see_entity, starts_runs, view};
use automation_core::value::Value;

use crate::definitions::scope::overlay;
use crate::error::{EngineError, EngineResult};
use crate::event_log::events::{Event, Op};
use crate::store::kinds;

/// The tenant column of each kind that has one, read when it is first asked for.
#[derive(Default)]
pub struct TenantColumns(OnceCell<HashMap<String, String>>);

impl TenantColumns {
    fn of_kind(&self, kind: Option<&str>) -> Option<&str> {
        self.0.get_or_init(kinds::tenant_columns).get(kind?).map(String::as_str)
    }

    /// Has an update changed the entity's tenant?
    pub fn has_moved(&self, event: &Event) -> bool {
        self.moved_by(event).is_some()
    }

    /// The tenant column, if an update has changed it.
    fn moved_by(&self, event: &Event) -> Option<&str> {
        let column = self.of_kind(event.kind.as_deref().filter(|_| event.op == Op::Updated))?;
        event.changed.iter().any(|changed| changed == column).then_some(column)
    }

    /// The two tenants between which an update moves an entity, if it does.
    pub fn move_of(&self, event: &Event) -> Option<(Option<String>, Option<String>)> {
        let column = self.moved_by(event)?;
        let read = |image: &Option<String>| image.as_deref().and_then(|text| Value::from_json(text).ok());
        Some((read(&event.prev).and_then(|prev| text_in(&prev, column)), event.tenant.clone()))
    }

    /// A change as `viewer` sees it: a tenant, or None for automations and runs without a tenant. The event itself
    /// unless the change moves an entity from one tenant to another. None if the viewer does not see it.
    pub fn seen_by(&self, viewer: Option<&str>, event: &Rc<Event>) -> Option<Rc<Event>> {
        let Some((viewer, (from, to))) = viewer.and_then(|viewer| Some((viewer, self.move_of(event)?))) else {
            return Some(event.clone());
        };
        match view(Some(viewer), from.as_deref(), to.as_deref()) {
            View::AsItIs => Some(event.clone()),
            View::Came => Some(Rc::new(came(event))),
            View::Left => Some(Rc::new(left(event, from))),
            View::Nothing => None,
        }
    }

    /// A made-up event with the tenant of its new values, if it moves an entity from one tenant to another.
    pub fn of_new_values(&self, event: Rc<Event>) -> Rc<Event> {
        let Some(column) = self.moved_by(&event) else { return event };
        let next = event.next.as_deref().and_then(|text| Value::from_json(text).ok()).unwrap_or_default();
        Rc::new(Event { tenant: text_in(&next, column), ..Event::clone(&event) })
    }

    /// The views of an update that moves an entity: that of the tenant it leaves, and that of the tenant it comes to.
    pub fn views(&self, event: &Event) -> Option<[Event; 2]> {
        let (from, to) = self.move_of(event)?;
        (from != to).then(|| [left(event, from), came(event)])
    }

    /// May a run of a tenant, or of none, see the state of an entity?
    pub fn may_see(&self, viewer: Option<&str>, kind: &str, state: &Value) -> bool {
        let Some(column) = self.of_kind(Some(kind).filter(|_| viewer.is_some())) else { return true };
        // Without the column, which was renamed or dropped, the tenant of the row is unknown.
        let is_there = matches!(state, Value::Null) || state.get(column).is_some();
        is_there && may_see_entity(viewer, text_in(state, column).as_deref())
    }
}

fn text_in(row: &Value, column: &str) -> Option<String> {
    row.get(column).filter(|value| !matches!(value, Value::Null)).and_then(Value::to_text)
}

fn came(event: &Event) -> Event {
    Event { op: Op::Created, topic: None, changed: Vec::new(), prev: None, ..event.clone() }
}

fn left(event: &Event, from: Option<String>) -> Event {
    let read =
        |image: &Option<String>| image.as_deref().and_then(|text| Value::from_json(text).ok()).unwrap_or_default();
    // An image that cannot be read is not shown, and neither are new values in its place.
    let prev = event.prev.is_some().then(|| overlay(&read(&event.next), &read(&event.prev)).to_json());
    Event { op: Op::Deleted, topic: None, changed: Vec::new(), prev, next: None, tenant: from, ..event.clone() }
}

/// Refuses an invalid name of a tenant, and names that are reserved for the engine.
pub fn check_tenant(tenant: Option<&str>) -> EngineResult<()> {
    match tenant {
        Some(tenant) if tenant.is_empty() || tenant.starts_with('_') => {
            Err(EngineError::invalid(format!("invalid tenant \"{tenant}\""))
                .hint("A tenant is not empty; names that begin with an underscore are reserved."))
        }
        Some(tenant) if tenant.len() > MAX_TENANT => Err(EngineError::invalid("the name of the tenant is too long")
            .detail(format!("It has {} bytes, and can have {MAX_TENANT}.", tenant.len()))),
        _ => Ok(()),
    }
}

/// Does an automation see an event? It sees the events of its own tenant; without a tenant, all but those of reserved
/// tenants.
pub fn tenant_matches(wanted: Option<&str>, event: &Event) -> bool {
    match (wanted, &event.tenant) {
        (Some(wanted), Some(tenant)) => wanted == tenant,
        (Some(_), None) => false,
        (None, tenant) => tenant.as_deref().is_none_or(starts_runs),
    }
}
