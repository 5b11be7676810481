//! The scope in which the expressions of a run are evaluated: the event, the run itself, and the state of entities.
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use automation_core::expr::{ExprError, ExprErrorKind, Scope};
use automation_core::value::{Timestamp, Unreadable, Value};

use crate::capture::read::{self, OwnId};
use crate::definitions::derived::DerivedTopic;
use crate::definitions::hearing::{self, Privileges};
use crate::definitions::scope::EventScope;
use crate::definitions::tenant_view::TenantColumns;
use crate::event_log::events::Event;
use crate::pg::clock::Micros;
use crate::pg::identity;

/// The values outside of a run that its expressions see. The results of its steps so far are kept by the machine.
pub struct RunScope<'a> {
    event: EventScope<'a>,
    now: Micros,
    run: Value,
    trigger_id: String,
    trigger: OnceCell<Result<Value, Unreadable>>,
    states: RefCell<HashMap<(String, String), Value>>,
    /// The ids of entities as their events spell them; known from reading the state, if it was read.
    own_ids: RefCell<HashMap<(String, String), OwnId>>,
    /// The tenant that the run belongs to: it sees no events and entities of other tenants.
    tenant: Option<String>,
    columns: TenantColumns,
}

impl<'a> RunScope<'a> {
    pub fn new(event: &'a Event, now: Micros, run: Value, trigger: &str, tenant: Option<String>) -> Self {
        RunScope {
            event: EventScope::new(event, now),
            now,
            run,
            trigger_id: trigger.to_owned(),
            trigger: OnceCell::new(),
            states: RefCell::new(HashMap::new()),
            own_ids: RefCell::new(HashMap::new()),
            tenant,
            columns: TenantColumns::default(),
        }
    }

    /// An event as the run's tenant sees it; the event itself unless it moves an entity from one tenant to another.
    /// None if the tenant does not see it.
    pub fn seen(&self, event: &Rc<Event>) -> Option<Rc<Event>> {
        self.columns.seen_by(self.tenant.as_deref(), event)
    }

    /// The event that the run is about.
    pub fn cause(&self) -> &'a Event {
        self.event.event()
    }

    /// Forgets the entities that were read, so that they are read anew.
    pub fn forget(&self) {
        self.states.borrow_mut().clear();
        self.own_ids.borrow_mut().clear();
    }

    /// The entity's id as its events spell it. If the state was read, the id is known without another statement.
    pub fn own_id(&self, kind: &str, id: &str) -> OwnId {
        let key = (kind.to_owned(), id.to_owned());
        if let Some(known) = self.own_ids.borrow().get(&key) {
            return known.clone();
        }
        let own = read::own_id(kind, id);
        self.own_ids.borrow_mut().insert(key, own.clone());
        own
    }

    /// May the run's owner hear the event? A run hears no event of another tenant. Whether the rule that derived a
    /// topic may start the owner's automations is decided by `may_hear`.
    pub fn may_see(&self, event: &Event) -> bool {
        let user = identity::current_user();
        let tenants = self.tenant.as_deref().zip(event.tenant.as_deref());
        if tenants.is_some_and(|(own, other)| own != other) {
            return false;
        }
        let (hearing, privileges) = (hearing::current(), Privileges::default());
        event.relation.is_none_or(|relation| identity::may_read(relation, user))
            && hearing.hears(user, event, &event.topic(), &privileges)
    }

    /// May the run's waits hear an event on a topic that was derived from it?
    pub fn may_hear(&self, event: &Event, derived: &DerivedTopic) -> bool {
        let user = identity::current_user();
        hearing::current().hears_derived(user, event, &derived.topic, &derived.makers, &Privileges::default())
    }

    /// The same scope with another event: the event that a run waits for.
    pub fn with_event<'b>(&'b self, event: &'b Event) -> WithEvent<'b>
    where
        'a: 'b,
    {
        WithEvent { world: self, event: EventScope::new(event, self.now) }
    }

    /// The root `trigger`: the event that started the run, also if `event` is another one.
    fn trigger(&self) -> Result<&Value, Unreadable> {
        let read = || {
            let root = |name: &str| Ok(self.event.root(name)?.cloned().unwrap_or_default());
            let entry = |name: &str, value: Value| (name.into(), value);
            Ok(Value::object(vec![
                entry("id", Value::text(&self.trigger_id)),
                entry("event", root("event")?),
                entry("payload", root("payload")?),
                entry("new", root("new")?),
                entry("next", root("new")?),
                entry("old", root("old")?),
                entry("prev", root("old")?),
            ]))
        };
        self.trigger.get_or_init(read).as_ref().map_err(|error| *error)
    }
}

impl Scope for RunScope<'_> {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        match name {
            "run" => Ok(Some(&self.run)),
            "trigger" => self.trigger().map(Some),
            _ => self.event.root(name),
        }
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        let key = (kind.to_owned(), id.to_owned());
        if let Some(known) = self.states.borrow().get(&key) {
            return Ok(known.clone());
        }
        let entity = read::entity(kind, id)
            .map_err(|error| ExprError::new(ExprErrorKind::InvalidValue, 0..0, error.message().to_owned()))?;
        let value = entity.state.map(|text| Value::from_json(&text)).transpose()?.unwrap_or_default();
        let visible = self.columns.may_see(self.tenant.as_deref(), kind, &value);
        let value = if visible { value } else { Value::Null };
        self.own_ids.borrow_mut().insert(key.clone(), entity.id);
        self.states.borrow_mut().insert(key, value.clone());
        Ok(value)
    }

    fn member(&self, root: &str, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        self.event.member(root, name)
    }

    fn changed_at(&self, kind: &str, id: &str, field: &str) -> Result<Option<Timestamp>, ExprError> {
        Ok(super::field_age::changed_at(kind, &self.own_id(kind, id).text, field))
    }

    fn now(&self) -> Timestamp {
        self.event.now()
    }
}

/// The scope of a run with another event in it.
pub struct WithEvent<'a> {
    world: &'a RunScope<'a>,
    event: EventScope<'a>,
}

impl Scope for WithEvent<'_> {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        match name {
            "run" | "trigger" => self.world.root(name),
            _ => self.event.root(name),
        }
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        self.world.state(kind, id)
    }

    fn member(&self, root: &str, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        match root {
            "run" | "trigger" => self.world.member(root, name),
            _ => self.event.member(root, name),
        }
    }

    fn changed_at(&self, kind: &str, id: &str, field: &str) -> Result<Option<Timestamp>, ExprError> {
        self.world.changed_at(kind, id, field)
    }

    fn now(&self) -> Timestamp {
        self.world.now()
    }
}
