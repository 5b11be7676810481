//! Triggers and limits, with their texts parsed.

use super::parts::Parts;
use crate::condition::Condition;
use crate::definition::{DEFAULT_TTL, Document, Mode, On, Problem, TriggerDef, micros};
use crate::expr::Expr;
use crate::gate::breaker;
use crate::gate::hot::Rate;
use crate::gate::window::{Refire, Window};
use crate::schedule::Schedule;
use crate::template::Template;
use crate::triggers::{Change, verbs};
use serde_json::Value as Json;

/// One trigger.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// Its name.
    pub id: String,
    /// The kind of the trigger.
    pub on: On,
    /// Kind of entity, for changes.
    pub kind: Option<String>,
    /// Only these entities.
    pub entities: Option<Vec<String>>,
    /// For updates: fire only if one of these changed.
    pub columns: Option<Vec<String>>,
    /// Patterns of the topics it listens to; none if it is not enabled.
    pub patterns: Vec<String>,
    /// The change that the trigger requires of the event's entity.
    pub change: Change,
    /// When the clock fires it.
    pub schedule: Option<Schedule>,
    /// Condition over the event.
    pub filter: Option<Condition>,
    /// The trigger fires at so many occurrences within a time.
    pub window: Option<Window>,
    /// The trigger fires if the state that fired it is still so after this time.
    pub hold_for: Option<Hold>,
    /// False switches the trigger off.
    pub enabled: bool,
    /// Changes with anything in its definition but its name; an armed `hold_for` of another one is dropped.
    pub fingerprint: i64,
}

/// The length of a hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// These many microseconds.
    For(i64),
    /// As long as this template says when the hold begins.
    Computed(Template),
}

/// The limits on the runs of an automation.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How a firing is treated while a run with the same key is under way.
    pub mode: Mode,
    /// Most runs with the same key, if the author said so.
    pub max_runs: Option<u32>,
    /// More executions than this within a time pause it; in place of the usual limits.
    pub max_executions: Option<Rate>,
    /// One automation at a time works on an entity.
    pub entity_lock: bool,
    /// Which events count as equal, so that only the first starts a run.
    pub dedup: Option<Dedup>,
    /// Higher starts first.
    pub priority: i32,
    /// How long ended runs are kept, in microseconds.
    pub keep_for: Option<i64>,
    /// How many ended runs are kept.
    pub keep_runs: Option<u64>,
    /// Most runs that execute at the same time.
    pub concurrency: Option<u32>,
    /// After how many failed runs in a row the automation is paused; `None` for never.
    pub breaker: Option<u32>,
}

/// Which events count as equal.
#[derive(Clone, Debug)]
pub struct Dedup {
    /// Events with the same value of this expression are equal.
    pub key: Expr,
    /// Within so many microseconds.
    pub ttl: i64,
}

impl Trigger {
    /// Does the event alone decide whether its change is the one that the trigger means?
    pub fn has_pure_change(&self) -> bool {
        self.change.meant().expressions().iter().all(|(_, expr)| expr.is_pure_event())
    }

    /// Do the change and the filter depend on the event alone? Then routing can evaluate them.
    pub fn is_pure_event(&self) -> bool {
        self.has_pure_change() && self.filter.as_ref().is_none_or(Condition::is_pure_event)
    }

    /// Its expressions beside the filter, each with the field of the document that holds it.
    pub fn expressions(&self) -> Vec<(&'static str, &Expr)> {
        let mut found = self.change.meant().expressions();
        found.extend(self.window.iter().filter_map(|window| window.per.as_ref()).map(|expr| ("window.per", expr)));
        if let Some(Hold::Computed(template)) = &self.hold_for {
            found.extend(template.expressions().map(|(expr, _)| ("hold_for", expr)));
        }
        found
    }

    /// The field of the entity that it names, for the columns of a watched table.
    pub fn field(&self) -> Option<&str> {
        self.change.meant().field()
    }

    /// Is the trigger about changes of entities?
    pub fn is_change(&self) -> bool {
        self.kind.is_some()
    }

    /// The topics of the changes that can break a hold of this trigger, beside its own patterns.
    pub fn hold_patterns(&self) -> Vec<String> {
        match &self.kind {
            Some(kind) if self.hold_for.is_some() && self.enabled => {
                verbs(kind, &["created", "updated", "deleted", "truncated"])
            }
            _ => Vec::new(),
        }
    }
}

/// Compiles a trigger. A text that could not be parsed has left a problem behind.
pub(super) fn trigger(def: &TriggerDef, place: usize, problems: &mut Vec<Problem>) -> Option<Trigger> {
    let id = def.id.clone().unwrap_or_default();
    let mut parts = Parts { path: format!("triggers[{place}]"), place: format!("trigger \"{id}\""), problems };
    let filter = parts.condition(def.filter.as_ref(), "filter");
    let mut patterns = def.on.patterns(def, &mut parts)?;
    if !def.enabled {
        patterns.clear();
    }
    let change = def.on.change(def, &mut parts);
    let schedule = def.on.schedule(def, &mut parts);
    let window = def.window.as_ref().and_then(|given| window(given, &mut parts));
    let hold_for = def.hold_for.as_ref().and_then(|text| match micros(&Json::String(text.clone())) {
        Some(micros) => Some(Hold::For(micros)),
        None => parts.template(text, "hold_for").map(Hold::Computed),
    });
    let entities = def.entity.as_ref().map(texts);
    Some(Trigger {
        id,
        on: def.on,
        kind: def.kind.clone(),
        entities,
        columns: def.columns.clone(),
        patterns,
        change: change?,
        schedule,
        filter,
        window,
        hold_for,
        enabled: def.enabled,
        fingerprint: fingerprint(def),
    })
}

fn window(given: &Json, parts: &mut Parts<'_>) -> Option<Window> {
    let refire = if given.get("refire").is_some() { Refire::Once } else { Refire::Every };
    let per = parts.expression(given.get("per"), "window.per");
    Some(Window { count: given.get("count")?.as_u64()?, within: micros(given.get("within")?)?, per, refire })
}

/// Compiles the limits of a document.
pub(super) fn limits(document: &Document, problems: &mut Vec<Problem>) -> Limits {
    let mut parts = Parts { path: String::new(), place: String::new(), problems };
    let length = |text: &String| micros(&Json::String(text.clone()));
    let rate = document.max_executions.as_ref();
    let dedup = document.dedup.as_ref().and_then(|def| {
        let key = parts.expression(Some(&Json::String(def.key.clone())), "dedup.key")?;
        Some(Dedup { key, ttl: def.ttl.as_ref().and_then(length).unwrap_or(DEFAULT_TTL) })
    });
    let (age, runs) = match &document.retention {
        Some(Json::Object(fields)) => (fields.get("age"), fields.get("runs")),
        other => (other.as_ref(), None),
    };
    Limits {
        mode: document.mode,
        max_runs: document.max_runs,
        max_executions: rate.and_then(|def| Some(Rate { count: def.count.into(), within: length(&def.window)? })),
        entity_lock: document.entity_lock,
        dedup,
        priority: document.priority,
        keep_for: age.and_then(micros),
        keep_runs: runs.and_then(Json::as_u64),
        concurrency: document.concurrency,
        breaker: match &document.breaker {
            Some(Json::Bool(false)) => None,
            given => Some(given.as_ref().and_then(Json::as_u64).map_or(breaker::DEFAULT, |count| count as u32)),
        },
    }
}

fn texts(value: &Json) -> Vec<String> {
    let one_or_more = match value {
        Json::Array(items) => items,
        other => std::slice::from_ref(other),
    };
    one_or_more.iter().filter_map(Json::as_str).map(str::to_owned).collect()
}

/// FNV-1a over the trigger as it is kept. It is stored, so it must be the same in every version of the program.
fn fingerprint(def: &TriggerDef) -> i64 {
    let unnamed = TriggerDef { id: None, ..def.clone() };
    let text = serde_json::to_string(&unnamed).unwrap_or_default();
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash as i64
}
