//! The topics that rules derive for changes, beside their own topic. Every process keeps the rules of the snapshot in
//! which it last read them; they are read again only if a definition has changed since.
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use automation_core::derive::{Derived, Deriver, derive_with};
use automation_core::ids::EventId;
use automation_core::topic::engine::hears;
use pgrx::pg_sys;

use super::allowance;
use super::scope::EventScope;
use crate::event_log::events::{Event, Op};
use crate::pg::clock::{self, Micros};
use crate::pg::identity;
use crate::store::automations;
use crate::store::derived_events::{self, StoredRule};
use crate::store::log::{self, Entry};

/// At most one log entry per rule that fails is written in this time.
const TELL_EVERY: Micros = 60_000_000;

/// How long a rule rests that took more time than its creator had left.
const REST: Micros = 60_000_000;

/// A topic that a change has beside its own.
#[derive(Clone, Debug)]
pub struct DerivedTopic {
    pub topic: Rc<str>,
    /// The roles whose rules derived it.
    pub makers: Vec<pg_sys::Oid>,
}

/// The topics that the events of a batch have beside their own, by the number of the event. Most have none.
pub type Topics = HashMap<EventId, Vec<DerivedTopic>>;

/// The rules of each kind, in the order of registration.
#[derive(Default)]
pub struct Derivers {
    by_kind: HashMap<String, Vec<Deriver>>,
    /// The role that made each rule, in the same order.
    makers: HashMap<String, Vec<pg_sys::Oid>>,
}

/// The rules, and the fingerprint of the definitions with which they were read.
type Known = (Option<(i64, i64)>, Rc<Derivers>);

thread_local! {
    static CURRENT: RefCell<Known> = RefCell::new((None, Rc::default()));
    /// When the last log entry about a failing rule was written, by kind and name.
    static TOLD: RefCell<HashMap<(String, String), Micros>> = RefCell::new(HashMap::new());
}

/// Until when rules rest that took too long, by kind and name.
type Resting = HashMap<(String, String), Micros>;
thread_local!(static RESTING: RefCell<Resting> = RefCell::new(HashMap::new()));

fn is_resting(event: &Event, rule: &Deriver, now: Micros) -> bool {
    RESTING.with_borrow_mut(|resting| {
        if resting.is_empty() {
            return false;
        }
        resting.retain(|_, until| *until > now);
        resting.contains_key(&(event.kind.clone().unwrap_or_default(), rule.name.clone()))
    })
}

/// The rules as this snapshot shows them.
pub fn current() -> Rc<Derivers> {
    at(automations::fingerprint())
}

/// The rules for a fingerprint of the definitions.
pub fn at(fingerprint: (i64, i64)) -> Rc<Derivers> {
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        if current.0 != Some(fingerprint) {
            *current = (Some(fingerprint), Rc::new(load()));
        }
        current.1.clone()
    })
}

fn load() -> Derivers {
    let mut derivers = Derivers::default();
    for StoredRule { kind, name, topic, condition, created_by } in derived_events::all() {
        match Deriver::parse(&name, &topic, &condition.as_str().into()) {
            Ok(rule) => {
                derivers.makers.entry(kind.clone()).or_default().push(created_by);
                derivers.by_kind.entry(kind).or_default().push(rule);
            }
            Err(problems) => {
                let detail = problems.first().map(|problem| problem.error.message.clone());
                log::error(&Entry {
                    code: "derived_event_unreadable",
                    owner: Some(created_by),
                    message: &format!("derived event \"{name}\" of kind \"{kind}\" cannot be read and is left out"),
                    detail: detail.as_deref(),
                    ..Default::default()
                });
            }
        }
    }
    derivers
}

fn may_read(event: &Event, role: pg_sys::Oid) -> bool {
    event.relation.is_none_or(|relation| identity::may_read(relation, role))
}

impl Derivers {
    fn derive(&self, event: &Event, now: Micros) -> Derived<'_> {
        // TRUNCATE is not the change of an entity.
        let changes = matches!(event.op, Op::Created | Op::Updated | Op::Deleted);
        let kind = event.kind.as_deref().filter(|_| changes && !self.by_kind.is_empty());
        match kind.and_then(|kind| self.by_kind.get(kind)) {
            Some(rules) => derive_with(rules, &EventScope::new(event, now), |rule| !is_resting(event, rule, now)),
            None => Derived::default(),
        }
    }

    /// The derived topics of a batch. Rules that cannot be evaluated are passed over and logged.
    pub fn of_events(&self, events: &[Event], now: Micros) -> Topics {
        let mut topics = Topics::new();
        if self.by_kind.is_empty() {
            return topics;
        }
        for event in events {
            let derived = self.derive(event, now);
            for (rule, error) in &derived.failed {
                self.tell(event, rule, &error.message, now);
            }
            for (rule, spent) in &derived.slow {
                self.spend(event, rule, *spent, now);
            }
            if !derived.topics.is_empty() {
                topics.insert(event.id, self.with_makers(event, derived));
            }
        }
        topics
    }

    fn with_makers(&self, event: &Event, derived: Derived<'_>) -> Vec<DerivedTopic> {
        let makers = event.kind.as_deref().and_then(|kind| self.makers.get(kind)).map_or(&[][..], Vec::as_slice);
        let of = |rules: &[usize]| rules.iter().filter_map(|rule| makers.get(*rule).copied()).collect();
        derived
            .topics
            .into_iter()
            .map(|(topic, rules)| DerivedTopic { topic: topic.into(), makers: of(&rules) })
            .collect()
    }

    /// The event on each topic that a pattern selects: its own topic, and each derived one for which `may` is true.
    pub fn heard(&self, pattern: &str, event: &Rc<Event>, may: impl Fn(&DerivedTopic) -> bool) -> Vec<Rc<Event>> {
        let own = hears(pattern, &event.topic()).then(|| event.clone());
        let derived = self.with_makers(event, self.derive(event, clock::now()));
        let derived = derived.into_iter().filter(|derived| hears(pattern, &derived.topic) && may(derived));
        own.into_iter().chain(derived.map(|derived| event.on_topic(Some(&derived.topic)))).collect()
    }

    /// The rules of a kind.
    pub fn of_kind(&self, kind: &str) -> &[Deriver] {
        self.by_kind.get(kind).map_or(&[], Vec::as_slice)
    }

    /// The kinds that have rules.
    pub fn kinds(&self) -> impl Iterator<Item = &String> {
        self.by_kind.keys()
    }

    /// Every topic that can be derived.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.by_kind.values().flatten().map(|rule| rule.topic.as_str())
    }

    fn maker_of(&self, kind: &str, rule: &str) -> Option<pg_sys::Oid> {
        let place = self.of_kind(kind).iter().position(|known| known.name == rule)?;
        self.makers.get(kind)?.get(place).copied()
    }

    /// Charges a slow rule to its creator. If the creator has no time left, the rule rests: the process that routes
    /// serves all roles.
    fn spend(&self, event: &Event, rule: &str, micros: u64, now: Micros) {
        let key = (event.kind.clone().unwrap_or_default(), rule.to_owned());
        if self.maker_of(&key.0, rule).is_some_and(|maker| !allowance::spend(maker, micros)) {
            RESTING.with_borrow_mut(|resting| resting.insert(key, now + REST));
            self.tell(event, rule, "It takes too long, so it rests for a minute.", now);
        }
    }

    fn tell(&self, event: &Event, rule: &str, error: &str, now: Micros) {
        let kind = event.kind.clone().unwrap_or_default();
        let key = (kind, rule.to_owned());
        let told = TOLD.with(|told| {
            let mut told = told.borrow_mut();
            let last = told.get(&key).copied();
            let recently = last.is_some_and(|at| now - at < TELL_EVERY);
            if !recently {
                told.insert(key.clone(), now);
            }
            recently
        });
        if told {
            return;
        }
        log::warning(&Entry {
            code: "derived_event_error",
            // The error may repeat values of the row: if the creator may not read the table, only superusers see the
            // entry.
            owner: self.maker_of(&key.0, rule).filter(|maker| may_read(event, *maker)),
            event_id: Some(event.id),
            message: &format!("derived event \"{rule}\" of kind \"{}\" could not be worked out and is skipped", key.0),
            detail: Some(error),
            ..Default::default()
        });
    }
}
