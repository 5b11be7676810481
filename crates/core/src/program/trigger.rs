//! Triggers and limits, with their texts parsed.

use super::parts::Parts;
use crate::condition::Condition;
use crate::cron::{Cron, parse_zone};
use crate::definition::{DEFAULT_TTL, Document, Mode, On, Problem, TriggerDef, micros};
use crate::expr::Expr;
use crate::gate::breaker;
use crate::gate::hot::Rate;
use crate::gate::window::{Refire, Window};
use crate::schedule::{Missed, Overlap, Schedule, Timetable};
use crate::template::Template;
use crate::topic;
use crate::value::Value;
use serde_json::Value as Json;

/// One trigger.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// Its name.
    pub id: String,
    /// What it fires on.
    pub on: On,
    /// Kind of entity, for changes.
    pub kind: Option<String>,
    /// Only these entities.
    pub entities: Option<Vec<String>>,
    /// For updates: fire only if one of these changed.
    pub columns: Option<Vec<String>>,
    /// Patterns of the topics it listens to; none if it is not enabled.
    pub patterns: Vec<String>,
    /// What must have happened to the entity.
    pub change: Change,
    /// When the clock fires it.
    pub schedule: Option<Schedule>,
    /// Condition over the event.
    pub filter: Option<Condition>,
    /// It fires at so many occurrences within a time.
    pub window: Option<Window>,
    /// It fires if what fired it is still so after this time.
    pub hold_for: Option<Hold>,
    /// False leaves it out.
    pub enabled: bool,
    /// Changes with anything in its definition but its name; an armed `hold_for` of another one is dropped.
    pub fingerprint: i64,
}

/// What must have happened to the entity of the event.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Whatever the topic says.
    Any,
    /// A transition of a field.
    State(Transition),
    /// A number came into a range.
    Numeric(Range),
}

/// From what to what, as in Home Assistant's `state` trigger.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transition {
    /// The field; the whole entity if none is given.
    pub field: Option<String>,
    /// What it was.
    pub from: Option<Matcher>,
    /// What it is.
    pub to: Option<Matcher>,
}

/// Which values are meant. Null is the value of what does not exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Matcher {
    /// One of these.
    OneOf(Vec<Value>),
    /// None of these.
    NoneOf(Vec<Value>),
}

impl Matcher {
    /// The values that it names.
    pub fn values(&self) -> &[Value] {
        match self {
            Matcher::OneOf(values) | Matcher::NoneOf(values) => values,
        }
    }
}

/// A range that a number comes into, as in Home Assistant's `numeric_state` trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The number.
    pub value: Measure,
    /// The range begins above this.
    pub above: Option<Expr>,
    /// It ends below this.
    pub below: Option<Expr>,
    /// Fire on every change inside, not only on coming in.
    pub level: bool,
}

/// Where the number is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// In a field of the entity.
    Field(String),
    /// By an expression over `new`.
    Expr(Expr),
}

/// How long something must be so.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// These many microseconds.
    For(i64),
    /// As long as this says when the time begins to run.
    Computed(Template),
}

/// What holds runs back.
#[derive(Clone, Debug)]
pub struct Limits {
    /// What happens while a run with the same key is under way.
    pub mode: Mode,
    /// Most runs with the same key, if the author said so.
    pub max_runs: Option<u32>,
    /// More executions than this within a time pause it; in place of the usual limits.
    pub max_executions: Option<Rate>,
    /// One automation at a time works on an entity.
    pub entity_lock: bool,
    /// Which events are the same.
    pub dedup: Option<Dedup>,
    /// Higher starts first.
    pub priority: i32,
    /// How long ended runs are kept, in microseconds.
    pub keep_for: Option<i64>,
    /// How many ended runs are kept.
    pub keep_runs: Option<u64>,
    /// Most runs that execute at the same time.
    pub concurrency: Option<u32>,
    /// After how many failed runs in a row it is paused; `None` for never.
    pub breaker: Option<u32>,
}

/// Which events are the same.
#[derive(Clone, Debug)]
pub struct Dedup {
    /// Those with the same value of this.
    pub key: Expr,
    /// Within so many microseconds.
    pub ttl: i64,
}

impl Trigger {
    /// Does nothing but the event decide whether the change is the one that is meant?
    pub fn has_pure_change(&self) -> bool {
        match &self.change {
            Change::Any | Change::State(_) => true,
            Change::Numeric(range) => range.each_expr().all(Expr::is_pure_event),
        }
    }

    /// Does nothing but the event decide what the change and the filter say? Then routing can tell.
    pub fn is_pure_event(&self) -> bool {
        self.has_pure_change() && self.filter.as_ref().is_none_or(Condition::is_pure_event)
    }

    /// Its expressions beside the filter, each with the field of the document that holds it.
    pub fn expressions(&self) -> Vec<(&'static str, &Expr)> {
        let mut found = Vec::new();
        if let Change::Numeric(range) = &self.change {
            if let Measure::Expr(expr) = &range.value {
                found.push(("value", expr));
            }
            found.extend(range.above.iter().map(|expr| ("above", expr)));
            found.extend(range.below.iter().map(|expr| ("below", expr)));
        }
        found.extend(self.window.iter().filter_map(|window| window.per.as_ref()).map(|expr| ("window.per", expr)));
        if let Some(Hold::Computed(template)) = &self.hold_for {
            found.extend(template.expressions().map(|(expr, _)| ("hold_for", expr)));
        }
        found
    }

    /// The field of the entity that it names, for the columns of a watched table.
    pub fn field(&self) -> Option<&str> {
        match &self.change {
            Change::State(transition) => transition.field.as_deref(),
            Change::Numeric(Range { value: Measure::Field(field), .. }) => Some(field),
            _ => None,
        }
    }

    /// Is it about the changes of an entity?
    pub fn is_change(&self) -> bool {
        self.kind.is_some()
    }

    /// The topics of the changes that can make false what is being held, beside its own patterns.
    pub fn hold_patterns(&self) -> Vec<String> {
        match &self.kind {
            Some(kind) if self.hold_for.is_some() && self.enabled => {
                verbs(kind, &["created", "updated", "deleted", "truncated"])
            }
            _ => Vec::new(),
        }
    }
}

impl Range {
    /// Its expressions.
    pub fn each_expr(&self) -> impl Iterator<Item = &Expr> {
        let value = match &self.value {
            Measure::Expr(expr) => Some(expr),
            Measure::Field(_) => None,
        };
        value.into_iter().chain(&self.above).chain(&self.below)
    }
}

/// Topics of the changes of a kind.
fn verbs(kind: &str, verbs: &[&str]) -> Vec<String> {
    verbs.iter().map(|verb| format!("{kind}.{verb}")).collect()
}

/// Compiles a trigger. What could not be parsed has left a problem behind.
pub(super) fn trigger(def: &TriggerDef, place: usize, problems: &mut Vec<Problem>) -> Option<Trigger> {
    let id = def.id.clone().unwrap_or_default();
    let mut parts = Parts { path: format!("triggers[{place}]"), place: format!("trigger \"{id}\""), problems };
    let filter = parts.condition(def.filter.as_ref(), "filter");
    let kind = def.kind.clone().unwrap_or_default();
    let mut patterns = match def.on {
        On::Created => verbs(&kind, &["created"]),
        On::Updated => verbs(&kind, &["updated"]),
        On::Deleted => verbs(&kind, &["deleted"]),
        On::Changed | On::State => verbs(&kind, &["created", "updated", "deleted"]),
        On::Numeric if def.level => verbs(&kind, &["created", "updated"]),
        On::Numeric => verbs(&kind, &["updated"]),
        On::Cron | On::Interval | On::Call => Vec::new(),
        On::Event => {
            let text = def.topic.clone().unwrap_or_default();
            parts.parsed(topic::validate(&text), "topic", &text)?;
            vec![topic::canonical(&text)]
        }
    };
    if !def.enabled {
        patterns.clear();
    }
    let change = change(def, &mut parts);
    let schedule = schedule(def, &mut parts);
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

fn change(def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Change> {
    Some(match def.on {
        On::State => {
            let values = |given: &Json| one_or_more(given).iter().map(Value::from_serde).collect();
            let side = |only: &Option<Json>, not: &Option<Json>| match (only, not) {
                (Some(only), _) => Some(Matcher::OneOf(values(only))),
                (None, Some(not)) => Some(Matcher::NoneOf(values(not))),
                (None, None) => None,
            };
            let (from, to) = (side(&def.from, &def.not_from), side(&def.to, &def.not_to));
            Change::State(Transition { field: def.field.clone(), from, to })
        }
        On::Numeric => {
            let value = match (&def.field, &def.value) {
                (Some(field), _) => Some(Measure::Field(field.clone())),
                (None, value) => parts.expression(value.as_ref(), "value").map(Measure::Expr),
            };
            if let Some(Measure::Expr(expr)) = &value
                && expr.roots().contains("event")
            {
                // it is worked out for the entity as it was, too, and `event` is only about this change
                let message = format!("\"value\" of {} reads the event", parts.place);
                parts.wrong("value", &message, "Read the entity through new, as in new.total - new.paid.");
            }
            let above = parts.expression(def.above.as_ref(), "above");
            let below = parts.expression(def.below.as_ref(), "below");
            Change::Numeric(Range { value: value?, above, below, level: def.level })
        }
        _ => Change::Any,
    })
}

fn schedule(def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Schedule> {
    let (timetable, text) = match def.on {
        On::Cron => {
            let (text, zone) = (def.expr.as_deref().unwrap_or_default(), def.timezone.as_deref().unwrap_or("UTC"));
            let cron = parts.parsed(Cron::parse(text), "expr", text);
            let zone = parts.parsed(parse_zone(zone), "timezone", zone);
            let (cron, zone) = (cron?, zone?);
            (Timetable::Cron(Box::new(cron), zone), format!("{text} {}", zone.name()))
        }
        On::Interval => {
            let every = def.every.clone()?;
            (Timetable::Every(micros(&Json::String(every.clone()))?), format!("every {every}"))
        }
        _ => return None,
    };
    let missed = match &def.missed {
        None => Missed::Once,
        Some(Json::Object(fields)) => Missed::All(fields.get("all").and_then(Json::as_u64).unwrap_or(1) as usize),
        Some(_) => Missed::Skip,
    };
    let overlap = match def.overlap.as_deref() {
        Some("allow") => Overlap::Allow,
        Some("queue") => Overlap::Queue,
        _ => Overlap::Skip,
    };
    Some(Schedule { timetable, missed, overlap, text })
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

fn one_or_more(value: &Json) -> &[Json] {
    match value {
        Json::Array(items) => items,
        other => std::slice::from_ref(other),
    }
}

fn texts(value: &Json) -> Vec<String> {
    one_or_more(value).iter().filter_map(Json::as_str).map(str::to_owned).collect()
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
