//! Finds the triggers that an event fires, as far as the event alone decides it.
use std::cell::RefCell;
use std::collections::HashSet;

use automation_core::expr::{Budget, ExprError, ExprErrorKind};
use automation_core::gate::Code;
use automation_core::gate::change::{self, Occurrence};
use automation_core::gate::tenant_view::{MAX_TENANT, starts_runs};
use automation_core::ids::{AutomationId, VersionId};
use automation_core::program::Trigger;
use automation_core::topic::engine;
use pgrx::pg_sys;

use super::definitions::{Active, Definitions};
use super::{Audience, Plan, key_of, slow};
use crate::definitions::derived::DerivedTopic;
use crate::definitions::numeric;
use crate::definitions::scope::EventScope;
use crate::definitions::tenant_view::tenant_matches;
use crate::event_log::events::Event;
use crate::gucs;
use crate::pg::key_lock::hash;
use crate::pg::{identity, names};
use crate::store::dispatches::{NewDispatch, Reason};
use crate::store::log::{self, Entry};
use crate::store::stats::Counts;

impl Plan {
    /// Asks every trigger on the event's topics: its own topic first, then those derived from it, in their order. A
    /// trigger fires once at most for an event, on the first topic on which no check refuses it.
    pub(super) fn match_event(&mut self, definitions: &Definitions, event: &Event, derived: &[DerivedTopic]) {
        if event.relation.is_some() && event.tenant.as_deref().is_some_and(|tenant| !starts_runs(tenant)) {
            warn_of_reserved(event);
        }
        let Some(views) = self.tenant_columns.views(event) else {
            return self.match_view(definitions, event, derived);
        };
        self.audience = Audience::Shared;
        self.match_view(definitions, event, derived);
        self.audience = Audience::Tenants;
        for view in &views {
            let topics = definitions.derivers().of_events(std::slice::from_ref(view), self.now);
            self.match_view(definitions, view, topics.get(&view.id).map_or(&[], Vec::as_slice));
        }
        self.audience = Audience::All;
    }

    /// Asks the triggers of automations that see the event in this form.
    fn match_view(&mut self, definitions: &Definitions, event: &Event, derived: &[DerivedTopic]) {
        let mut refused = Vec::new();
        let mut fired = HashSet::new();
        self.match_topic(definitions, event, None, &mut refused, &mut |_, _| true);
        if !derived.is_empty() {
            fired.extend(self.dispatches.iter().rev().map_while(|dispatch| {
                let ours = dispatch.event.is_some_and(|(id, _)| id == event.id);
                ours.then_some((dispatch.automation_id, dispatch.trigger_no))
            }));
        }
        for topic in derived {
            let before = self.dispatches.len();
            self.match_topic(definitions, event, Some(topic), &mut refused, &mut |automation, trigger| {
                !fired.contains(&(automation, trigger))
            });
            let new = self.dispatches[before..].iter();
            fired.extend(new.map(|dispatch| (dispatch.automation_id, dispatch.trigger_no)));
        }
        if !refused.is_empty() {
            refused.dedup();
            log::warning(&Entry {
                code: "chain_too_deep",
                event_id: Some(event.id),
                run_id: event.cause_run,
                message: &format!("event {} starts nothing: it is {} runs deep", event.id, event.depth),
                detail: Some(&format!("It would have started: {}.", refused.join(", "))),
                ..Default::default()
            });
        }
    }

    fn match_topic(
        &mut self,
        definitions: &Definitions,
        event: &Event,
        from: Option<&DerivedTopic>,
        refused: &mut Vec<String>,
        may_fire: &mut dyn FnMut(AutomationId, i16) -> bool,
    ) {
        let derived = from.map(|derived| &derived.topic);
        let own = derived.is_none().then(|| event.topic());
        let topic = derived.map(AsRef::as_ref).or(own.as_deref()).unwrap_or_default();
        let scope = EventScope::on_topic(event, self.now, derived.map(AsRef::as_ref));
        let too_deep = event.depth > gucs::max_chain_depth();
        definitions.for_each_match(topic, |active, trigger_no| {
            if !self.is_for(active) || !may_fire(active.automation_id, trigger_no as i16) {
                return;
            }
            let Some(trigger) = active.program.triggers.get(trigger_no) else { return };
            if !self.may_hear(definitions, active, event, topic, from)
                || (event.is_engines() && !wants(active, trigger, event, topic))
            {
                return;
            }
            let mut fires = self.fires(active, trigger, trigger_no, event, &scope);
            if fires && too_deep {
                self.count(active, trigger_no).refused += 1;
                refused.push(active.name.clone());
                self.cut(active, event, Some(trigger_no as i16), false);
                fires = false;
            }
            if fires && definitions.is_paused_for(active.automation_id, event) {
                let refused = (active.automation_id, trigger_no as i16, Code::TenantPaused.word());
                *self.refused.entry(refused).or_default() += 1;
                fires = false;
            }
            if fires {
                self.count(active, trigger_no).matched += 1;
            }
            if trigger.hold_for.is_some() {
                self.hear(active, trigger, trigger_no, event, derived, fires);
            } else if fires {
                let mut dispatch = self.dispatch(active, event, trigger_no as i16, Reason::Trigger, None);
                if !trigger.has_pure_change() {
                    // The remembered side of the threshold depends on the order of the changes.
                    let id = active.automation_id.to_string();
                    dispatch.ordering_key.get_or_insert_with(|| hash(&[&id, "hold", &key_of(event)]));
                }
                self.dispatches.push(NewDispatch { topic: derived.cloned(), ..dispatch });
            }
        });
        if derived.is_none() {
            self.check_holders(definitions, topic, event);
        }
    }

    /// May automations of the owner hear the event on this topic?
    pub(super) fn may_hear(
        &self,
        definitions: &Definitions,
        active: &Active,
        event: &Event,
        topic: &str,
        derived: Option<&DerivedTopic>,
    ) -> bool {
        let (hearing, privileges) = (definitions.hearing(), &self.privileges);
        match derived {
            Some(derived) => hearing.hears_derived(active.owner, event, topic, &derived.makers, privileges),
            None => hearing.hears(active.owner, event, topic, privileges),
        }
    }

    /// Is the view of the event that is being matched for this automation?
    pub(super) fn is_for(&self, active: &Active) -> bool {
        match self.audience {
            Audience::All => true,
            Audience::Shared => active.program.tenant.is_none(),
            Audience::Tenants => active.program.tenant.is_some(),
        }
    }

    /// Has the entity come from another tenant? Its earlier changes are queued in the lane of that tenant, and come
    /// first.
    pub(super) fn changes_tenant(&self, event: &Event) -> bool {
        self.tenant_columns.has_moved(event)
    }

    pub(super) fn count(&mut self, active: &Active, trigger_no: usize) -> &mut Counts {
        self.counts.entry((active.automation_id, trigger_no as i16)).or_default()
    }

    /// Does an event fire a trigger, as far as the event alone decides it?
    fn fires(
        &mut self,
        active: &Active,
        trigger: &Trigger,
        trigger_no: usize,
        event: &Event,
        scope: &EventScope<'_>,
    ) -> bool {
        if !tenant_matches(active.program.tenant.as_deref(), event) {
            return false;
        }
        if slow::is_stopped(active) {
            self.count(active, trigger_no).filter_errors += 1;
            return false;
        }
        // A run would tell the owner which row changed, and a filter would tell the values in it: no filter is
        // evaluated and no run started.
        let closed = event.relation.filter(|relation| {
            let key = (active.owner, *relation);
            !*self.readers.entry(key).or_insert_with(|| identity::may_read(*relation, active.owner))
        });
        if let Some(relation) = closed {
            let refused = (active.automation_id, trigger_no as i16, Code::NoRights.word());
            *self.refused.entry(refused).or_default() += 1;
            log_no_rights(active, relation);
            return false;
        }
        if trigger.has_pure_change() {
            let occurrence = Occurrence {
                tenant: event.tenant.as_deref(),
                entity: event.entity_id.as_deref(),
                changed: &event.changed,
            };
            let mut budget = Budget::default();
            let verdict =
                numeric::config(active.automation_id, trigger, || key_of(event), &occurrence, scope, &mut budget);
            slow::evaluated(active, &trigger.id, &budget);
            match verdict {
                Ok(()) => {}
                Err(Code::ValueError) => {
                    self.count(active, trigger_no).filter_errors += 1;
                    let told = change::matches(trigger, &occurrence, scope, &mut Budget::default(), None);
                    let told = told.err().map(|reason| reason.to_string()).unwrap_or_default();
                    self.note_filter_error(active, Some(event), &trigger.id, &told);
                    return false;
                }
                // The trigger is not about such a change: not counted, as if the event were on another topic.
                Err(_) => return false,
            }
        }
        let Some(filter) = trigger.filter.as_ref().filter(|filter| filter.is_pure_event()) else { return true };
        let mut budget = Budget::default();
        let holds = filter.holds(scope, &mut budget);
        slow::filtered(active, &trigger.id, &budget, ran_out(&holds));
        match holds {
            Ok(true) => true,
            Ok(false) => {
                self.count(active, trigger_no).filtered += 1;
                false
            }
            Err(error) => {
                self.count(active, trigger_no).filter_errors += 1;
                self.note_filter_error(active, Some(event), &trigger.id, &error.message);
                false
            }
        }
    }
}

/// Is an event of the engine for this trigger? Such events are for triggers that name them; and no automation is
/// started by an event that goes back to a run of its own.
fn wants(active: &Active, trigger: &Trigger, event: &Event, topic: &str) -> bool {
    trigger.patterns.iter().any(|pattern| engine::hears(pattern, topic))
        && !engine::goes_back_to(event.payload.as_deref(), &active.name)
}

/// Did an evaluation use up its budget?
pub(super) fn ran_out<T>(result: &Result<T, ExprError>) -> bool {
    matches!(result, Err(error) if error.kind == ExprErrorKind::BudgetExceeded)
}

/// A filter that could not be evaluated, with the error.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct FilterError {
    automation_id: AutomationId,
    owner: pg_sys::Oid,
    trigger: String,
    message: String,
}

impl Plan {
    /// Notes that a filter could not be evaluated. The events of a batch with the same error share one entry in the
    /// log.
    pub(super) fn note_filter_error(&mut self, active: &Active, event: Option<&Event>, trigger: &str, message: &str) {
        let (automation_id, owner) = (active.automation_id, active.owner);
        let error = FilterError { automation_id, owner, trigger: trigger.to_owned(), message: message.to_owned() };
        let (times, last) = self.filter_errors.entry(error).or_default();
        *times += 1;
        *last = event.map(|event| event.id).or(*last);
    }

    /// Writes the errors of the batch to the log.
    pub(super) fn log_filter_errors(&mut self) {
        for (error, (times, event_id)) in self.filter_errors.drain() {
            let message =
                format!("filter of trigger \"{}\" could not be evaluated, so it does not fire", error.trigger);
            let entry = Entry {
                code: "filter_error",
                automation_id: Some(error.automation_id),
                owner: Some(error.owner),
                event_id,
                message: &message,
                detail: Some(&error.message),
                ..Default::default()
            };
            log::repeated_warning(&entry, times);
        }
    }
}

thread_local! {
    static WARNED: RefCell<HashSet<String>> = RefCell::new(HashSet::new());
    /// Versions of automations and tables for which the log has an entry that the owner may not read the table.
    static TOLD_OF_RIGHTS: RefCell<HashSet<(VersionId, pg_sys::Oid)>> = RefCell::new(HashSet::new());
}

/// Logs, once for each version of an automation and table, that changes of the table start no run because the
/// automation's owner may not read it. The number of such changes is in automation.stat_gates.
fn log_no_rights(active: &Active, relation: pg_sys::Oid) {
    if !TOLD_OF_RIGHTS.with_borrow_mut(|told| told.insert((active.version_id, relation))) {
        return;
    }
    let table = names::relation_name(relation).unwrap_or_default();
    let owner = names::role_name(active.owner).unwrap_or_default();
    log::warning(&Entry {
        code: Code::NoRights.word(),
        automation_id: Some(active.automation_id),
        owner: Some(active.owner),
        message: &format!("changes of table {table} start no run of automation \"{}\"", active.name),
        detail: Some(&format!(
            "Its owner \"{owner}\" needs USAGE on the schema and SELECT on the table; automation.stat_gates counts the changes."
        )),
        ..Default::default()
    });
}

/// Logs, once for each kind, that its rows start no run because of the name of their tenant.
fn warn_of_reserved(event: &Event) {
    let kind = event.kind.clone().unwrap_or_default();
    if !WARNED.with_borrow_mut(|warned| warned.insert(kind.clone())) {
        return;
    }
    let (fault, detail) = match event.tenant.as_deref().map(str::len) {
        Some(length) if length > MAX_TENANT => {
            ("too long", format!("The name of a tenant has at most {MAX_TENANT} bytes; this one has {length}."))
        }
        _ => ("reserved", "Names of tenants that begin with an underscore are the engine's.".to_owned()),
    };
    log::warning(&Entry {
        code: "reserved_tenant",
        event_id: Some(event.id),
        message: &format!("rows of kind \"{kind}\" have a tenant whose name is {fault}, so they start nothing"),
        detail: Some(&detail),
        ..Default::default()
    });
}
