//! Which events reach which roles. Has no rules of its own: privileges come from the catalog, rules from the core.
//!
//! Every process keeps the grants of the snapshot in which it last read them; they are read again only if a definition
//! has changed since. Privileges of roles are read anew for each batch.
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use automation_core::topic::grants::{Grants, Right, Roles};
use pgrx::pg_sys;

use crate::error::{EngineError, EngineResult};
use crate::event_log::events::{Event, Op};
use crate::pg::{identity, names};
use crate::store::kinds::Kind;
use crate::store::{automations, kinds, topic_grants};

/// The grants, and the owners of kinds without a table.
#[derive(Default)]
pub struct Hearing {
    grants: Grants<pg_sys::Oid>,
    kinds: HashMap<String, pg_sys::Oid>,
}

/// The grants, and the fingerprint of the definitions with which they were read.
type Known = (Option<(i64, i64)>, Rc<Hearing>);

thread_local!(static CURRENT: RefCell<Known> = RefCell::new((None, Rc::default())));

/// The grants as this snapshot shows them.
pub fn current() -> Rc<Hearing> {
    at(automations::fingerprint())
}

/// The grants for a fingerprint of the definitions.
pub fn at(fingerprint: (i64, i64)) -> Rc<Hearing> {
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        if current.0 != Some(fingerprint) {
            let hearing = Hearing { grants: topic_grants::all().into_iter().collect(), kinds: kinds::stateless() };
            *current = (Some(fingerprint), Rc::new(hearing));
        }
        current.1.clone()
    })
}

/// Whether one role has the privileges of another, cached for one batch.
#[derive(Default)]
pub struct Privileges(RefCell<HashMap<(pg_sys::Oid, pg_sys::Oid), bool>>);

impl Roles<pg_sys::Oid> for Privileges {
    fn has(&self, role: pg_sys::Oid, other: pg_sys::Oid) -> bool {
        role == other || *self.0.borrow_mut().entry((role, other)).or_insert_with(|| identity::has_role(role, other))
    }

    fn is_member(&self, role: pg_sys::Oid, other: pg_sys::Oid) -> bool {
        self.has(role, other) && identity::was_made_member(role, other)
    }
}

impl Hearing {
    /// May a role read an event in the log? As in the view automation.events: a change of a table by the rights on the
    /// table, and never if the table's row security policies apply to the role; a change of a dropped table with the
    /// privileges of the role that wrote it; a change of a kind without a table by the rights on the kind; an emitted
    /// event by the emitter's grants; an event of the engine with the privileges of the automation's owner.
    pub fn may_read(&self, role: pg_sys::Oid, event: &Event, privileges: &Privileges) -> bool {
        if let Some(relation) = event.relation {
            return match names::relation_name(relation) {
                Some(_) => identity::may_read(relation, role) && !identity::sees_some_rows_only(relation, role),
                // The table was dropped, and its rights with it.
                None => privileges.has(role, event.role),
            };
        }
        match event.op {
            Op::Emitted if !event.is_engines() => {
                event.role == role || self.grants.may_read(role, event.role, &event.topic(), privileges)
            }
            Op::Created | Op::Updated | Op::Deleted | Op::Truncated => {
                let kind = event.kind.as_deref().unwrap_or_default();
                let owner = self.kinds.get(kind).copied().unwrap_or(event.role);
                self.grants.may_use_kind(Right::Listen, role, owner, kind, privileges)
            }
            Op::Emitted | Op::Started | Op::Signalled | Op::Ended | Op::Moved => privileges.has(role, event.role),
        }
    }

    /// Is a subscriber notified of an event? An event of a superuser reaches all subscribers, as it reaches all
    /// automations; a notification contains no values of the event.
    pub fn is_told(&self, role: pg_sys::Oid, event: &Event, privileges: &Privileges) -> bool {
        self.may_read(role, event, privileges) || is_superusers(event)
    }

    /// Does an automation of `owner` hear an event on its own topic? For a change of a table, the right of the owner to
    /// read the table is not checked here.
    pub fn hears(&self, owner: pg_sys::Oid, event: &Event, topic: &str, privileges: &Privileges) -> bool {
        match event.op {
            // A superuser could start every automation by hand, so its events reach all of them. Reading the log needs
            // rights all the same.
            Op::Emitted if !event.is_engines() => {
                self.grants.hears(owner, event.role, topic, privileges) || is_superusers(event)
            }
            _ => event.relation.is_some() || self.may_read(owner, event, privileges),
        }
    }

    /// Does an automation of `owner` hear an event on a topic that rules of these roles derived?
    pub fn hears_derived(
        &self,
        owner: pg_sys::Oid,
        event: &Event,
        topic: &str,
        makers: &[pg_sys::Oid],
        privileges: &Privileges,
    ) -> bool {
        makers.iter().any(|maker| self.grants.may_start(*maker, owner, topic, privileges))
            && (event.relation.is_some() || self.may_read(owner, event, privileges))
    }

    /// May a role read or write entities of a kind without a table?
    pub fn may_use(&self, right: Right, role: pg_sys::Oid, kind: &Kind) -> bool {
        self.grants.may_use_kind(right, role, kind.owner, &kind.kind, &Privileges::default())
    }
}

/// Did a superuser emit the event?
fn is_superusers(event: &Event) -> bool {
    event.op == Op::Emitted && !event.is_engines() && identity::is_superuser(event.role)
}

/// May a role read entities of a kind without a table?
pub fn may_read_kind(role: pg_sys::Oid, kind: &Kind) -> bool {
    may_use_kind(Right::Listen, role, kind)
}

fn may_use_kind(right: Right, role: pg_sys::Oid, kind: &Kind) -> bool {
    // Most kinds are used by their owner: no grant needs to be read then.
    kind.owner == role || identity::has_role(role, kind.owner) || current().may_use(right, role, kind)
}

/// An error if the owner of a kind without a table has not granted the current user this right.
pub fn check_kind(right: Right, kind: &Kind) -> EngineResult<()> {
    let user = identity::current_user();
    if may_use_kind(right, user, kind) {
        return Ok(());
    }
    let role = |oid| names::role_name(oid).unwrap_or_default();
    let (name, owner) = (&kind.kind, role(kind.owner));
    Err(EngineError::not_allowed(format!("permission denied for kind \"{name}\""))
        .detail(format!("It belongs to \"{owner}\", the role that first gave one of its entities a state."))
        .hint(format!(
            "Ask \"{owner}\" for: SELECT automation.grant_topic('{}', '{name}', '{}').",
            role(user),
            right.name()
        )))
}
