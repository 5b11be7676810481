//! Stage 1 for triggers with `hold_for`: selects the events that may begin, continue or break a hold.
//!
//! An event that fires such a trigger becomes a dispatch, as for any other trigger. An event that does not fire it may
//! make a hold false: it becomes a dispatch only if there is a hold, or is about to be because a dispatch that fires
//! the trigger is queued. All dispatches about one entity share an ordering key, so they are executed in the order of
//! the events; and so are those of its timers, which are taken when all events that were committed before are routed.
use std::collections::HashSet;
use std::rc::Rc;

use automation_core::gate::key;
use automation_core::ids::RunId;
use automation_core::program::Trigger;

use super::definitions::{Active, Definitions};
use super::{Plan, entity_key, hash};
use crate::event_log::events::{Event, Op};
use crate::store::dispatches::{NewDispatch, Reason};
use crate::store::dwells::{self, Place};

/// The holds that a batch of the router may affect.
#[derive(Default)]
pub struct Holds {
    /// There is a hold, or a dispatch that may begin one was queued when the batch began.
    any: Option<bool>,
    /// An event of the batch itself fires a trigger with `hold_for`.
    fired: bool,
    /// Checks in the batch, by their index among its dispatches, that are dropped if no hold needs them.
    doubtful: Vec<(usize, Place)>,
}

impl Holds {
    /// May there be a hold?
    fn any(&mut self) -> bool {
        self.fired || *self.any.get_or_insert_with(dwells::any)
    }
}

/// The key of the hold that an event concerns. Entities are told apart by kind and id alone: an entity that goes over
/// to another tenant is still the same.
pub fn key_of(event: &Event) -> String {
    let entity = event.entity_id.as_deref();
    let tenant = event.tenant.as_deref().filter(|_| entity.is_none() || event.kind.is_none());
    key::context(tenant, event.kind.as_deref(), entity, &event.topic())
}

impl Plan {
    /// Adds the dispatch by which a trigger with `hold_for` learns of an event.
    pub fn hear(
        &mut self,
        active: &Active,
        trigger: &Trigger,
        trigger_no: usize,
        event: &Event,
        derived: Option<&Rc<str>>,
        fired: bool,
    ) {
        if !fired && !self.holds.any() {
            return;
        }
        let place = Place { automation_id: active.automation_id, trigger_id: trigger.id.clone(), key: key_of(event) };
        let ordering_key =
            entity_key(active, event).unwrap_or_else(|| hash(&[&active.automation_id.to_string(), "hold", &place.key]));
        if fired {
            self.holds.fired = true;
            let mut dispatch = self.dispatch(active, event, trigger_no as i16, Reason::Hold, None);
            // It may begin a hold, and starts no run by itself.
            dispatch.cause = dispatch.event.take();
            dispatch.topic = derived.cloned();
            dispatch.ordering_key = Some(ordering_key);
            self.dispatches.push(dispatch);
        } else {
            self.holds.doubtful.push((self.dispatches.len(), place));
            self.dispatches.push(self.check(active, event, trigger_no, ordering_key));
        }
    }

    /// A dispatch that evaluates the holds under an ordering key.
    fn check(&self, active: &Active, event: &Event, trigger_no: usize, ordering_key: i64) -> NewDispatch {
        NewDispatch {
            owner: active.owner,
            id: 0,
            tenant: event.tenant.clone(),
            behind: self.changes_tenant(event),
            run_id: RunId(0),
            event: None,
            created_at: self.now,
            ordering_key: Some(ordering_key),
            automation_id: active.automation_id,
            version_id: active.version_id,
            trigger_no: trigger_no as i16,
            reason: Reason::HoldCheck,
            wait_no: None,
            cause: Some((event.id, event.occurred_at)),
            topic: None,
        }
    }

    /// Adds checks for an event that fires no trigger on this topic, but may break a hold.
    pub fn check_holders(&mut self, definitions: &Definitions, topic: &str, event: &Event) {
        definitions.for_each_holder(topic, |active, trigger_no| {
            let Some(trigger) = active.program.triggers.get(trigger_no) else { return };
            if !self.is_for(active) || !self.may_hear(definitions, active, event, topic, None) {
                return;
            }
            if event.op == Op::Truncated {
                self.check_all(active, trigger, trigger_no, event);
            } else {
                self.hear(active, trigger, trigger_no, event, None, false);
            }
        });
    }

    /// Adds a check for each hold of a trigger: every entity of its kind is gone.
    fn check_all(&mut self, active: &Active, trigger: &Trigger, trigger_no: usize, event: &Event) {
        let fires =
            |dispatch: &&NewDispatch| dispatch.reason == Reason::Hold && dispatch.automation_id == active.automation_id;
        let batch = self.dispatches.iter().filter(fires).filter_map(|dispatch| dispatch.ordering_key);
        let mut keys: HashSet<i64> = batch.collect();
        keys.extend(dwells::ordering_keys(active.automation_id, &trigger.id));
        let checks = keys.into_iter().map(|key| {
            // Behind the queued dispatches about any of the entities, of all tenants: TRUNCATE belongs to no tenant.
            NewDispatch { behind: true, ..self.check(active, event, trigger_no, key) }
        });
        let checks: Vec<NewDispatch> = checks.collect();
        self.dispatches.extend(checks);
    }

    /// Drops the checks for which there is no hold, nor a dispatch that may begin one.
    pub fn settle_checks(&mut self) {
        let doubtful = std::mem::take(&mut self.holds.doubtful);
        let keys: Vec<i64> = doubtful.iter().filter_map(|(at, _)| self.dispatches[*at].ordering_key).collect();
        let (at, places): (Vec<usize>, Vec<Place>) = doubtful.into_iter().unzip();
        if !places.is_empty() {
            // In this order: a dispatch that is executed between the two queries is found as a hold by the second.
            let mut firing = dwells::queued(&keys);
            let held = dwells::find(&places);
            let (mut no, mut next) = (0, at.iter().enumerate().peekable());
            self.dispatches.retain(|dispatch| {
                no += 1;
                if dispatch.reason == Reason::Hold {
                    firing.extend(dispatch.ordering_key);
                }
                match next.next_if(|(_, at)| **at == no - 1) {
                    Some((place, _)) => {
                        held.contains(&place) || dispatch.ordering_key.is_some_and(|key| firing.contains(&key))
                    }
                    None => true,
                }
            });
        }
    }
}
