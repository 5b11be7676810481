//! Records when fields last changed, for conditions with `for`, while events are routed. There is no other record of
//! when a field of a row last changed; only fields that an active automation asks about are followed.
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use automation_core::condition::Condition;
use automation_core::program::Program;

use crate::event_log::events::{Event, Op};
use crate::pg::clock::{self, Micros};
use crate::runs::field_age::changed;
use crate::store::field_changes::{self, FieldChange};

/// Longer than any `for`, which is 30 days at most.
const MEMORY: Micros = 31 * 86_400_000_000;
/// How often records that are too old are deleted.
const FORGET_EVERY: Micros = 3_600_000_000;

thread_local!(static FORGOTTEN_AT: Cell<Micros> = const { Cell::new(0) });

/// The followed fields, by kind.
#[derive(Debug, Default)]
pub struct HeldFields(BTreeMap<String, BTreeSet<String>>);

impl HeldFields {
    /// Adds the fields that the conditions of an automation ask about.
    pub fn add(&mut self, program: &Program) {
        for (kind, field) in program.conditions().into_iter().flat_map(Condition::held_fields) {
            self.0.entry(kind).or_default().insert(field);
        }
    }

    /// The kinds that have such fields.
    pub fn kinds(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Begins to follow new fields, and stops following fields that are not asked about any more.
    pub fn follow(&self) {
        let pairs = self.0.iter().flat_map(|(kind, fields)| fields.iter().map(move |field| (kind, field)));
        let (kinds, fields): (Vec<&str>, Vec<&str>) =
            pairs.map(|(kind, field)| (kind.as_str(), field.as_str())).unzip();
        field_changes::follow(&kinds, &fields, clock::engine_now());
    }

    /// Records the fields that a batch of events changed, in the order of the events.
    pub fn note(&self, events: &[Event]) {
        if self.0.is_empty() {
            return;
        }
        let mut changes: HashMap<(&str, &str, &str), Micros> = HashMap::new();
        for event in events {
            let Some((kind, fields)) = event.kind.as_deref().and_then(|kind| self.0.get_key_value(kind)) else {
                continue;
            };
            let happened = clock::as_seen(event.occurred_at);
            if event.op == Op::Truncated {
                field_changes::all_changed(kind, happened);
            }
            let Some(entity) = event.entity_id.as_deref() else { continue };
            for field in fields.iter().filter(|field| changed(event, field)) {
                let at = changes.entry((kind, field, entity)).or_insert(happened);
                *at = (*at).max(happened);
            }
        }
        if !changes.is_empty() {
            let one = |((kind, field, entity_id), at)| FieldChange { kind, field, entity_id, at };
            field_changes::record(&changes.into_iter().map(one).collect::<Vec<_>>());
        }
        let now = clock::now();
        if now - FORGOTTEN_AT.get() > FORGET_EVERY {
            FORGOTTEN_AT.set(now);
            field_changes::forget_older_than(now - MEMORY);
        }
    }
}
