//! Suspending a run: saves its row, the entries of the wake-index that can wake it, and its timers.
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};

use automation_core::expr::Reference;
use automation_core::ids::{RunId, WaitNo};
use automation_core::machine::{JobItem, Machine, State, Wait, WaitFor};
use automation_core::run_state::Pause;
use automation_core::topic;
use automation_core::wake_key::wake_key;

use super::engine_events;
use super::run::Run;
use super::scope::RunScope;
use crate::capture::read::OwnId;
use crate::event_log::cursor as cursor_store;
use crate::event_log::events::{self, Event};
use crate::event_log::ids;
use crate::pg::clock::{self, Micros, POSTGRES_EPOCH};
use crate::store::dispatches::Reason;
use crate::store::live::{LiveRun, Seen, WaitNote};
use crate::store::log::{self, Entry};
use crate::store::timers::{self, Timer, TimerKind};
use crate::store::wakes::{Source, Waiter, Wake};

/// Most bytes of an entity's id in the wake-index: a page of a B-tree must hold three entries.
const MAX_INDEXED: usize = 1000;
/// How long an executor may take to evaluate once more a wait that it has armed, before the timer makes the router
/// queue it.
const ARM_GRACE: Micros = 500_000;

/// A run that has suspended, and the rows to be written with it.
pub struct Suspension {
    pub run: LiveRun,
    /// The run was not suspended before.
    pub is_new: bool,
    pub wakes: Vec<Wake>,
    pub timers: Vec<Timer>,
    /// Waits that are over.
    pub cleared: Vec<(RunId, WaitNo)>,
    /// Waits to be evaluated once more after the commit.
    pub arm: Vec<(RunId, WaitNo)>,
    /// Runs and bulk jobs that no run waits for any more.
    pub abandoned: Vec<i64>,
    /// The row of a bulk job that the run is for.
    pub item: Option<JobItem>,
}

/// Suspends a run that has just begun.
pub fn first(run: &Run, event: &Event, machine: &mut Machine<'_>, world: &RunScope<'_>, steps: String) -> Suspension {
    let mut put = Suspension { is_new: true, ..put_away(live(run, event, steps), machine, world, &[]) };
    put.timers.extend(run_timeout(&put.run, machine));
    put
}

/// The timer at which the run times out, if its program has a timeout.
pub fn run_timeout(run: &LiveRun, machine: &Machine<'_>) -> Option<Timer> {
    let due_at = run.started_at + machine.program().timeout?;
    Some(Timer { due_at, waiter: waiter(run, WaitNo::NONE), kind: TimerKind::RunTimeout })
}

/// Suspends a run before its first step, because its automation is paused.
pub fn frozen(run: &Run, event: &Event, machine: &Machine<'_>) -> Suspension {
    let state = to_json(&machine.state);
    let run = LiveRun { pause: Pause::Frozen, state, ..live(run, event, "[]".to_owned()) };
    Suspension {
        timers: run_timeout(&run, machine).into_iter().collect(),
        run,
        is_new: true,
        wakes: Vec::new(),
        cleared: Vec::new(),
        arm: Vec::new(),
        abandoned: Vec::new(),
        item: machine.state.job,
    }
}

/// Suspends a run before its first step, because other runs with the same key come first. A run that ended between the
/// look at those runs and our commit did not see this one, so the queue is evaluated once more after the commit.
pub fn queued(run: &Run, event: &Event, machine: &Machine<'_>) -> Suspension {
    let state = to_json(&machine.state);
    let run = LiveRun { pause: Pause::Queued, state, ..live(run, event, "[]".to_owned()) };
    let arm = Timer { due_at: clock::now() + ARM_GRACE, waiter: waiter(&run, WaitNo::NONE), kind: TimerKind::Arm };
    Suspension {
        timers: vec![arm],
        arm: vec![(run.id, WaitNo::NONE)],
        run,
        is_new: true,
        wakes: Vec::new(),
        cleared: Vec::new(),
        abandoned: Vec::new(),
        item: machine.state.job,
    }
}

fn live(run: &Run, event: &Event, steps: String) -> LiveRun {
    LiveRun {
        header: run.header.clone(),
        epoch: 1,
        pause: Pause::Waiting,
        event: event.clone(),
        state: String::new(),
        waits: Vec::new(),
        steps,
        automation: run.automation.clone(),
        active: true,
    }
}

pub fn waiter(run: &LiveRun, wait_no: WaitNo) -> Waiter {
    Waiter { run_id: run.id, wait_no, owner: run.owner, automation_id: run.automation_id, version_id: run.version_id }
}

fn to_json(state: &State) -> String {
    serde_json::to_string(state).unwrap_or_default()
}

/// Computes the rows that a suspended run leaves behind. `before` are the waits it had when the executor took it up.
pub fn put_away(mut run: LiveRun, machine: &mut Machine<'_>, world: &RunScope<'_>, before: &[WaitNote]) -> Suspension {
    let mut put = Put::default();
    let waits: Vec<Wait> = machine.state.waits().cloned().collect();
    let mut notes = Vec::new();
    for wait in &waits {
        if let Some(known) = before.iter().find(|note| note.no == wait.no) {
            notes.push(known.clone());
            continue;
        }
        notes.push(put.arm(&run, machine, wait, world));
    }
    warn(&run, machine);
    let gone = before.iter().filter(|note| !waits.iter().any(|wait| wait.no == note.no));
    let cleared = gone.map(|note| (run.id, note.no)).collect();
    run.state = to_json(&machine.state);
    run.waits = notes;
    let Put { wakes, timers, arm } = put;
    Suspension {
        run,
        is_new: false,
        wakes,
        timers,
        cleared,
        arm,
        abandoned: machine.take_abandoned(),
        item: machine.state.job,
    }
}

/// The condition of a wait is still false: sets the timer for its next evaluation. A deadline that was due and is not
/// any more, because the clock was set back, gets a timer for its time.
pub fn look_later(run: &LiveRun, machine: &Machine<'_>, wait: &Wait, reason: Reason, world: &RunScope<'_>) {
    let waiter = waiter(run, wait.no);
    let timer = match reason {
        Reason::Due => wait.due.map(|due| Timer { due_at: due - POSTGRES_EPOCH, waiter, kind: TimerKind::Due }),
        _ => machine.look_again(wait, world).map(|at| {
            timers::forget_look(run.id, wait.no);
            Timer { due_at: at.0 - POSTGRES_EPOCH, waiter, kind: TimerKind::Look }
        }),
    };
    if let Some(timer) = timer {
        timers::insert(&[timer]);
        crate::signal::at_commit::timer_at_commit(timer.due_at);
    }
}

/// How many waits whose condition could not be evaluated this process remembers.
const MOST_WARNED: usize = 10_000;

thread_local! {
    /// Runs and steps for which a warning was logged: a wait may be evaluated very often.
    static WARNED: RefCell<HashSet<(RunId, usize)>> = RefCell::new(HashSet::new());
}

/// Logs, once per run and step, the error in the condition of a wait.
pub fn warn(run: &LiveRun, machine: &mut Machine<'_>) {
    for (step, message) in machine.take_warnings() {
        let told = WARNED.with(|warned| {
            let mut warned = warned.borrow_mut();
            if warned.len() >= MOST_WARNED {
                warned.clear();
            }
            !warned.insert((run.id, step))
        });
        if told {
            continue;
        }
        let id = &machine.program().steps[step].id;
        log::warning(&Entry {
            code: "wait_condition_error",
            automation_id: Some(run.automation_id),
            owner: Some(run.owner),
            run_id: Some(run.id),
            message: &format!("the condition of step \"{id}\" could not be evaluated, so the run goes on waiting"),
            detail: Some(&message),
            ..Default::default()
        });
    }
}

/// The rows that the new waits of a run leave behind.
#[derive(Default)]
pub struct Put {
    pub wakes: Vec<Wake>,
    pub timers: Vec<Timer>,
    arm: Vec<(RunId, WaitNo)>,
}

impl Put {
    pub fn arm(&mut self, run: &LiveRun, machine: &Machine<'_>, wait: &Wait, world: &RunScope<'_>) -> WaitNote {
        let waiter = waiter(run, wait.no);
        let mut note = WaitNote {
            no: wait.no,
            step: machine.program().steps[wait.step].id.clone(),
            kind: machine.program().steps[wait.step].kind().to_owned(),
            what: String::new(),
            since: wait.since - POSTGRES_EPOCH,
            due: wait.due.map(|due| due - POSTGRES_EPOCH),
            refs: Vec::new(),
            seen: None,
        };
        if matches!(wait.what, WaitFor::Delay | WaitFor::Until | WaitFor::Event { .. } | WaitFor::Signal { .. }) {
            engine_events::step_started(run.id, &machine.program().steps[wait.step], 1);
        }
        let mut evaluated_later = true;
        match &wait.what {
            WaitFor::Delay | WaitFor::Retry | WaitFor::Turn | WaitFor::Lanes { .. } => {
                note.what = match wait.what {
                    WaitFor::Delay => "time".to_owned(),
                    WaitFor::Retry => "another try".to_owned(),
                    _ => "its turn".to_owned(),
                };
                evaluated_later = false;
            }
            WaitFor::Until => until(run, machine, wait, world, &mut note),
            WaitFor::Event { topic } => {
                note.what = format!("event {topic}");
                note.seen = Some(seen());
            }
            WaitFor::Signal { name, key } => {
                note.what = match key {
                    Some(key) => format!("signal {name} with key {key}"),
                    None => format!("signal {name}"),
                };
            }
            WaitFor::Run { run } => {
                note.what = format!("run {run}");
                // That run starts after our commit at the earliest.
                evaluated_later = false;
            }
            WaitFor::Bulk { job } => {
                note.what = format!("bulk job {job}");
                evaluated_later = false;
            }
        }
        self.wakes.extend(wakes_of(run, machine, wait, world));
        self.timers.extend(timers_of(run, machine, wait, world));
        if evaluated_later {
            self.arm.push((run.id, wait.no));
            self.timers.push(Timer { due_at: clock::now() + ARM_GRACE, waiter, kind: TimerKind::Arm });
        }
        note
    }
}

/// Fills in the note that shows people a wait for a condition, and warns if the wait cannot be indexed.
fn until(run: &LiveRun, machine: &Machine<'_>, wait: &Wait, world: &RunScope<'_>, note: &mut WaitNote) {
    let found = machine.references(wait, world);
    if let Some(condition) = machine.program().steps[wait.step].action.awaited() {
        note.what = condition.describe();
    }
    let own = |entity: &Reference| Reference {
        kind: entity.kind.clone(),
        id: entity.id.as_deref().map(|id| world.own_id(&entity.kind, id).text),
    };
    // Two spellings of one id are one entity.
    let entities: BTreeSet<Reference> = found.entities.iter().map(own).collect();
    note.refs.extend(entities.iter().map(ToString::to_string));
    if found.entities.is_empty() && !found.clock || !found.indeterminate.is_empty() {
        log::warning(&Entry {
            code: "wait_not_indexed",
            automation_id: Some(run.automation_id),
            owner: Some(run.owner),
            run_id: Some(run.id),
            message: &format!("step \"{}\" cannot be woken by every change it depends on", note.step),
            detail: Some(&match found.indeterminate.first() {
                Some(text) => format!("It cannot be seen which kind of entity {text} reads."),
                None => "Its condition names no entity; only its timeout can end it.".to_owned(),
            }),
            ..Default::default()
        });
    }
}

/// The name of an entity in the wake-index. None, which stands for all of its kind, if its events may have several
/// names or the name is too long.
fn indexed(id: &OwnId) -> Option<String> {
    let key = wake_key(&id.text);
    (id.is_only && key.len() <= MAX_INDEXED).then(|| key.into_owned())
}

/// The entries of the wake-index that may end a wait.
pub fn wakes_of(run: &LiveRun, machine: &Machine<'_>, wait: &Wait, world: &RunScope<'_>) -> Vec<Wake> {
    let wake = |source: Source, kind: String, entity_id: Option<String>| Wake {
        waiter: waiter(run, wait.no),
        source,
        kind,
        entity_id,
    };
    match &wait.what {
        WaitFor::Until => {
            let mut wakes: Vec<Wake> = Vec::new();
            for entity in machine.references(wait, world).entities {
                let id = entity.id.as_deref().and_then(|id| indexed(&world.own_id(&entity.kind, id)));
                let found = wake(Source::State, entity.kind, id);
                if !wakes.contains(&found) {
                    wakes.push(found);
                }
            }
            wakes
        }
        WaitFor::Event { topic } if topic::is_pattern(topic) => vec![wake(Source::Pattern, topic.clone(), None)],
        WaitFor::Event { topic } => vec![wake(Source::Topic, topic.clone(), None)],
        WaitFor::Signal { name, key } => vec![wake(Source::Signal, name.clone(), key.clone())],
        WaitFor::Run { run: RunId(id) } | WaitFor::Bulk { job: id } => {
            vec![wake(Source::Run, "run".to_owned(), Some(id.to_string()))]
        }
        WaitFor::Delay | WaitFor::Retry | WaitFor::Turn | WaitFor::Lanes { .. } => Vec::new(),
    }
}

/// The timers of a wait: its deadline, and the time at which its condition may become true by time alone.
pub fn timers_of(run: &LiveRun, machine: &Machine<'_>, wait: &Wait, world: &RunScope<'_>) -> Vec<Timer> {
    let timer = |at: i64, kind| Timer { due_at: at - POSTGRES_EPOCH, waiter: waiter(run, wait.no), kind };
    let due = wait.due.map(|due| timer(due, TimerKind::Due));
    let look = machine.look_again(wait, world).map(|at| timer(at.0, TimerKind::Look));
    due.into_iter().chain(look).collect()
}

/// The present position in the log.
fn seen() -> Seen {
    // Events that this run wrote before the wait come before the wait in the log.
    events::insert_buffered();
    let (present, up_to) =
        crate::pg::identity::as_engine(|| (cursor_store::present(), ids::own_ceiling().unwrap_or_default()));
    let (snapshot, floor) = present.map_or_else(Default::default, |moment| (moment.snapshot.to_text(), moment.floor));
    Seen { snapshot, xid: crate::pg::snapshot::own_transaction(), up_to, floor }
}
