//! What survives a crash: the tables of the engine, as far as runs that wait need them. They change only when a transaction
//! commits, all of it at once.

use automation_core::ids::WaitNo;
use automation_core::machine::{Cause, Machine, State, Wait, WaitFor};
use automation_core::value::{Timestamp, Value};
use std::collections::{BTreeMap, BTreeSet, HashSet};

pub const SECOND: i64 = 1_000_000;
/// When every simulation begins.
pub const BEGIN: i64 = 1_700_000_000 * SECOND;

/// What somebody did that the engine has to hear of.
#[derive(Clone, Debug)]
pub enum Event {
    Changed { kind: String, id: String },
    Emitted { topic: String, n: i64 },
    Signalled { name: String },
    Started { run: i64, automation: usize, parent: Option<i64> },
    Ended { run: i64 },
    Skip { run: i64, wait: WaitNo },
    Cancel { run: i64 },
}

/// Why a run is looked at.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    Start { automation: usize, parent: Option<i64> },
    Look,
    Due,
    Arm,
    Event(i64),
    Signal,
    Ended,
    Skip,
    Cancel,
}

#[derive(Clone, Debug)]
pub struct Dispatch {
    pub run: i64,
    pub wait: WaitNo,
    pub why: Why,
}

/// What can wake a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    State(String, Option<String>),
    Topic(String),
    Signal(String),
    Run(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKind {
    Due,
    Look,
    Arm,
}

#[derive(Clone, Debug)]
pub struct Signal {
    pub name: String,
    pub key: Option<String>,
}

/// A move of a run, as it would have to be made again to get to the same place.
#[derive(Clone, Debug)]
pub struct Move {
    pub wait: WaitNo,
    pub cause: Option<Cause>,
    pub world: World,
    pub outcomes: Vec<Performed>,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Performed {
    Done(usize, String),
    Failed(usize),
    Started(usize, i64),
    /// Others had their turn.
    Paused,
}

/// A run that waits.
#[derive(Clone, Debug)]
pub struct Live {
    pub automation: usize,
    pub parent: Option<i64>,
    pub started: i64,
    pub state: String,
    /// For each wait for an event: what the log held when it began.
    pub seen: BTreeMap<WaitNo, BTreeSet<i64>>,
    /// How it came here; not part of the engine.
    pub moves: Vec<Move>,
}

/// A change to a table.
#[derive(Clone, Debug)]
pub enum Write {
    Entity(String, String, i64),
    Event(i64, Event),
    Routed(i64),
    Index(i64, WaitNo, Source),
    Timer(i64, i64, WaitNo, TimerKind),
    TimerGone(i64, i64, WaitNo, TimerKind),
    ArmGone(i64, WaitNo),
    LookGone(i64, WaitNo),
    WaitGone(i64, WaitNo),
    Dispatch(Dispatch),
    DispatchGone(i64),
    Run(i64, Box<Live>),
    Ended(i64, &'static str, Value),
    Signal(i64, Signal),
    SignalGone(i64),
    Effect(i64, usize, String),
    SkipAsked(i64, usize),
}

#[derive(Default)]
pub struct Database {
    pub entities: BTreeMap<(String, String), i64>,
    pub events: BTreeMap<i64, Event>,
    pub unrouted: BTreeSet<i64>,
    pub index: BTreeSet<(i64, WaitNo, Source)>,
    pub timers: BTreeSet<(i64, i64, WaitNo, TimerKind)>,
    pub dispatches: BTreeMap<i64, Dispatch>,
    pub runs: BTreeMap<i64, Live>,
    pub ended: BTreeMap<i64, (&'static str, Value)>,
    pub signals: BTreeMap<i64, Signal>,
    pub effects: HashSet<(i64, usize, String)>,
    /// Steps that somebody asked to skip, by run.
    pub skips: HashSet<(i64, usize)>,
    pub suspensions: usize,
    next_dispatch: i64,
}

impl Database {
    pub fn commit(&mut self, writes: Vec<Write>) -> Result<(), String> {
        writes.into_iter().try_for_each(|write| self.apply(write))
    }

    fn apply(&mut self, write: Write) -> Result<(), String> {
        match write {
            Write::Entity(kind, id, n) => {
                self.entities.insert((kind, id), n);
            }
            Write::Event(id, event) => {
                self.events.insert(id, event);
                self.unrouted.insert(id);
            }
            Write::Routed(id) => {
                if !self.unrouted.remove(&id) {
                    return Err(format!("event {id} was routed twice"));
                }
            }
            Write::Index(run, wait, source) => {
                self.index.insert((run, wait, source));
            }
            Write::Timer(at, run, wait, kind) => {
                self.timers.insert((at, run, wait, kind));
            }
            Write::TimerGone(at, run, wait, kind) => {
                self.timers.remove(&(at, run, wait, kind));
            }
            Write::ArmGone(run, wait) => self.timers.retain(|t| (t.1, t.2, t.3) != (run, wait, TimerKind::Arm)),
            Write::LookGone(run, wait) => self.timers.retain(|t| (t.1, t.2, t.3) != (run, wait, TimerKind::Look)),
            Write::WaitGone(run, wait) => {
                self.index.retain(|row| (row.0, row.1) != (run, wait));
                self.timers.retain(|row| (row.1, row.2) != (run, wait));
            }
            Write::Dispatch(dispatch) => {
                self.next_dispatch += 1;
                self.dispatches.insert(self.next_dispatch, dispatch);
            }
            Write::DispatchGone(id) => {
                self.dispatches.remove(&id);
            }
            Write::Run(run, live) => {
                if self.ended.contains_key(&run) {
                    return Err(format!("run {run} moved after its end"));
                }
                self.suspensions += 1;
                self.runs.insert(run, *live);
            }
            Write::Ended(run, status, output) => {
                self.runs.remove(&run);
                if self.ended.insert(run, (status, output)).is_some() {
                    return Err(format!("run {run} ended twice"));
                }
            }
            Write::Signal(id, signal) => {
                self.signals.insert(id, signal);
            }
            Write::SignalGone(id) => {
                if self.signals.remove(&id).is_none() {
                    return Err(format!("signal {id} was taken twice"));
                }
            }
            Write::Effect(run, step, path) => {
                let effect = (run, step, path);
                if self.effects.contains(&effect) {
                    return Err(format!("effect {effect:?} happened twice"));
                }
                self.effects.insert(effect);
            }
            Write::SkipAsked(run, step) => {
                self.skips.insert((run, step));
            }
        }
        Ok(())
    }
}

/// What the expressions of a run see: the tables at one moment.
#[derive(Clone, Debug)]
pub struct World {
    pub entities: BTreeMap<(String, String), i64>,
    pub now: i64,
    pub run: Value,
    pub event: Option<Value>,
}

impl automation_core::expr::Scope for World {
    fn root(&self, name: &str) -> Result<Option<&Value>, automation_core::value::Unreadable> {
        Ok(match name {
            "run" => Some(&self.run),
            "event" => self.event.as_ref(),
            "payload" => self.event.as_ref().and_then(|event| event.get("payload")),
            _ => None,
        })
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, automation_core::expr::ExprError> {
        let found = self.entities.get(&(kind.to_owned(), id.to_owned()));
        Ok(found.map_or(Value::Null, |n| Value::object(vec![("n".into(), Value::int(*n))])))
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now)
    }
}

/// The waits of a run as its state has them.
pub fn waits(state: &State) -> Vec<Wait> {
    state.waits().cloned().collect()
}

/// The rows of the wake-index for a wait.
pub fn sources(machine: &Machine<'_>, wait: &Wait, world: &World) -> Vec<Source> {
    match &wait.what {
        WaitFor::Until => {
            let found = machine.references(wait, world).entities.into_iter();
            found.map(|entity| Source::State(entity.kind, entity.id)).collect()
        }
        WaitFor::Event { topic } => vec![Source::Topic(topic.clone())],
        WaitFor::Signal { name, .. } => vec![Source::Signal(name.clone())],
        WaitFor::Run { run } => vec![Source::Run(run.0)],
        _ => Vec::new(),
    }
}

/// Is it armed first and evaluated after that commit?
pub fn is_armed(wait: &Wait) -> bool {
    matches!(wait.what, WaitFor::Until | WaitFor::Event { .. } | WaitFor::Signal { .. })
}

/// An event as expressions see it.
pub fn event_value(topic: &str, n: i64) -> Value {
    let payload = Value::object(vec![("n".into(), Value::int(n))]);
    Value::object(vec![("topic".into(), Value::text(topic)), ("payload".into(), payload)])
}
