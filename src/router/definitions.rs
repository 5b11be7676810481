//! The active automations, compiled, as the current snapshot shows them, and an index of the topics they listen to.
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use automation_core::ids::{AutomationId, VersionId};
use automation_core::program::Program;
use automation_core::topic::{Ears, TopicIndex};
use pgrx::pg_sys;

use super::held::HeldFields;
use crate::definitions::derived::{self, Derivers};
use crate::definitions::hearing::{self, Hearing};
use crate::definitions::versions::compile_stored;
use crate::event_log::events::Event;
use crate::pg::process;
use crate::pg::settings::Pinned;
use crate::pg::subtransaction::in_subtransaction;
use crate::store::automations;
use crate::store::log::{self, Entry};
use crate::store::subscriptions::{self, Subscription};
use crate::store::tenant_pauses;
use crate::store::wakes;

/// An active automation.
pub struct Active {
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    pub owner: pg_sys::Oid,
    pub name: String,
    pub program: Rc<Program>,
}

/// All active automations, and which of them listen to which topics.
#[derive(Default)]
pub struct Definitions {
    /// The fingerprint of the stored definitions that these were loaded from; none before the first load.
    fingerprint: Option<(i64, i64)>,
    active: Vec<Active>,
    by_id: HashMap<AutomationId, usize>,
    /// Topics without a wildcard, and the automations and triggers that listen to each.
    exact: HashMap<String, Vec<(usize, usize)>>,
    patterns: TopicIndex<(usize, usize)>,
    /// Topics that a trigger does not fire on, but whose events may break its hold.
    holders: HashMap<String, Vec<(usize, usize)>>,
    held: HeldFields,
    derivers: Rc<Derivers>,
    hearing: Rc<Hearing>,
    subscriptions: Vec<Subscription>,
    /// Automations that are paused for a tenant.
    paused_tenants: HashSet<(AutomationId, String)>,
    /// All topics that these listen to.
    ears: Rc<Ears>,
    /// Compiled once per version: versions never change.
    programs: HashMap<VersionId, Rc<Program>>,
}

thread_local! {
    static CURRENT: RefCell<Definitions> = RefCell::new(Definitions::default());
    /// Loading the definitions also recorded the fields to follow, and that record has been rolled back.
    static ROLLED_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work` with the definitions as this snapshot shows them; they are read again only if they changed.
pub fn with_current<R>(work: impl FnOnce(&Definitions) -> R) -> R {
    let fingerprint = automations::fingerprint();
    let stale = CURRENT.with(|current| current.borrow().fingerprint != Some(fingerprint));
    if ROLLED_BACK.replace(false) || stale {
        let programs = CURRENT.with(|current| std::mem::take(&mut current.borrow_mut().programs));
        let fresh = load(fingerprint, programs);
        follow(&fresh.held);
        pgrx::register_xact_callback(pgrx::PgXactCallbackEvent::Abort, || ROLLED_BACK.set(true));
        pgrx::register_subxact_callback(pgrx::PgSubXactCallbackEvent::AbortSub, |_, _| ROLLED_BACK.set(true));
        CURRENT.with(|current| *current.borrow_mut() = fresh);
    }
    CURRENT.with(|current| work(&current.borrow()))
}

/// Notes which fields the events of a batch have changed, for conditions with `for`.
pub fn note_changes(events: &[Event]) {
    if !events.is_empty() {
        with_current(|definitions| definitions.held.note(events));
    }
}

/// Begins to follow fields. The open transaction of a session that does the same must not delay routing, so a worker
/// that would have to wait for it tries again later.
fn follow(held: &HeldFields) {
    if !process::is_worker() {
        return held.follow();
    }
    let followed = in_subtransaction(|| {
        let pinned = Pinned::open();
        pinned.set(c"lock_timeout", c"50ms");
        held.follow();
        drop(pinned);
        Ok(())
    });
    match followed {
        Ok(()) => {}
        Err(error) if error.sqlstate == "55P03" => ROLLED_BACK.set(true),
        Err(error) => error.raise(),
    }
}

fn load(fingerprint: (i64, i64), mut programs: HashMap<VersionId, Rc<Program>>) -> Definitions {
    let rows = automations::active();
    let missing: Vec<VersionId> =
        rows.iter().map(|row| row.version_id).filter(|id| !programs.contains_key(id)).collect();
    for version in automations::versions(&missing) {
        match compile_stored(&version.document) {
            Ok(program) => {
                programs.insert(version.id, Rc::new(program));
            }
            Err(problem) => log::error(&Entry {
                code: "version_unreadable",
                message: &format!("version {} of an automation cannot be read and is left out", version.id),
                detail: Some(&problem),
                ..Default::default()
            }),
        }
    }
    let mut definitions = Definitions {
        fingerprint: Some(fingerprint),
        derivers: derived::at(fingerprint),
        hearing: hearing::at(fingerprint),
        subscriptions: subscriptions::all(),
        paused_tenants: tenant_pauses::all(),
        ..Default::default()
    };
    for row in rows {
        let Some(program) = programs.get(&row.version_id).cloned() else { continue };
        let place = definitions.active.len();
        for (trigger_no, trigger) in program.triggers.iter().enumerate() {
            for pattern in &trigger.patterns {
                definitions.listen(pattern, (place, trigger_no));
            }
            for topic in trigger.hold_patterns().into_iter().filter(|topic| !trigger.patterns.contains(topic)) {
                definitions.holders.entry(topic).or_default().push((place, trigger_no));
            }
        }
        definitions.held.add(&program);
        definitions.by_id.insert(row.automation_id, place);
        definitions.active.push(Active {
            automation_id: row.automation_id,
            version_id: row.version_id,
            owner: row.owner,
            name: row.name,
            program,
        });
    }
    programs.retain(|_, program| Rc::strong_count(program) > 1);
    definitions.programs = programs;
    definitions.ears = Rc::new(definitions.all_ears());
    definitions
}

/// The topics that the definitions in this snapshot listen to. Waits come and go too fast to be asked one by one: while
/// there may be any, all topics are read.
pub fn ears() -> Rc<Ears> {
    if wakes::any() { Rc::new(Ears::open()) } else { with_current(|definitions| definitions.ears.clone()) }
}

impl Definitions {
    pub fn by_id(&self, automation_id: AutomationId) -> Option<&Active> {
        self.by_id.get(&automation_id).map(|place| &self.active[*place])
    }

    /// Is the automation paused for the event's tenant?
    pub fn is_paused_for(&self, automation: AutomationId, event: &Event) -> bool {
        let Some(tenant) = event.tenant.as_ref().filter(|_| !self.paused_tenants.is_empty()) else { return false };
        self.paused_tenants.contains(&(automation, tenant.clone()))
    }

    /// All topics that triggers, holds, conditions, derived events and subscriptions listen to.
    fn all_ears(&self) -> Ears {
        let mut ears = if self.patterns.is_empty() { Ears::closed() } else { Ears::open() };
        let topics = self.exact.keys().chain(self.holders.keys());
        topics.chain(self.subscriptions.iter().map(|s| &s.pattern)).for_each(|topic| ears.listen_to(topic));
        self.held.kinds().chain(self.derivers.kinds()).for_each(|kind| ears.listen_to_kind(kind));
        ears
    }

    /// The subscriptions: which channels are notified of which topics.
    pub fn subscriptions(&self) -> &[Subscription] {
        &self.subscriptions
    }

    /// The rules that give changes further topics.
    pub fn derivers(&self) -> &Derivers {
        &self.derivers
    }

    /// The grants that say which roles hear which events.
    pub fn hearing(&self) -> &Hearing {
        &self.hearing
    }

    fn listen(&mut self, pattern: &str, listener: (usize, usize)) {
        // most patterns are plain topics of one kind, and those are found with one lookup
        if pattern.is_empty() || pattern.contains(['*', '#']) {
            self.patterns.insert(pattern, listener);
        } else {
            self.exact.entry(pattern.to_owned()).or_default().push(listener);
        }
    }

    /// Calls `found` for every trigger that listens to the topic, at most once each. The cost depends on the number of
    /// triggers found, not on the number of automations.
    pub fn for_each_match(&self, topic: &str, mut found: impl FnMut(&Active, usize)) {
        for (place, trigger_no) in self.exact.get(topic).into_iter().flatten() {
            found(&self.active[*place], *trigger_no);
        }
        self.patterns.each_match(topic, |(place, trigger_no)| found(&self.active[*place], *trigger_no));
    }

    /// Calls `found` for every trigger that does not listen to the topic, but whose hold an event on it may break.
    pub fn for_each_holder(&self, topic: &str, mut found: impl FnMut(&Active, usize)) {
        for (place, trigger_no) in self.holders.get(topic).into_iter().flatten() {
            found(&self.active[*place], *trigger_no);
        }
    }
}
