//! One batch of an executor: claims dispatches, executes each, writes the history and deletes the dispatches, all in
//! one transaction.
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Instant;

use automation_core::ids::{EventId, RunId, WaitNo};
use pgrx::pg_sys;

use super::cancelled::Cancelled;
use super::claimer::Claimer;
use super::hold;
use super::resume::{self, Nudge};
use super::{bulk, gates, restart, start as begin, write};
use crate::definitions::tenant_view::TenantColumns;
use crate::definitions::versions;
use crate::event_log::events::{self, Event};
use crate::gucs;
use crate::pg::catch::PgError;
use crate::pg::clock::{self, Micros};
use crate::pg::failpoint::failpoint;
use crate::runs::end::give_up;
use crate::runs::error::error_json;
use crate::runs::suspend::Suspension;
use crate::runs::{batch_state, breaker, run};
use crate::signal::at_commit;
use crate::signal::running::{self, Task};
use crate::signal::shmem::{self, shared};
use crate::store::dispatches::{self, Dispatch, Reason};
use crate::store::history::{EndedRun, Ending};
use crate::store::live::{self, LiveRun};
use crate::store::log::{self, Entry};

/// A batch is committed early once it has taken this long, so that no run waits long for another's commit.
const TIME_SLICE: Micros = 20_000;
/// A dispatch that was being executed, alone, when the server crashed this often is not tried again.
pub const MAX_CRASHES: i16 = 2;

/// The result of one turn of a claimer.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub runs: usize,
    pub failed: usize,
    /// There may be more dispatches to execute at once.
    pub more: bool,
    /// Some claimed dispatches must wait for rows that other transactions have locked.
    pub blocked: bool,
    /// The dispatch, of a slow automation, that is to be executed alone next.
    pub alone: Option<i64>,
    /// How many runs the transaction has ended or suspended.
    pub moved: usize,
    /// The run whose work the transaction commits, if it is the only one.
    pub only_run: Option<Task>,
}

/// The dispatches that a turn may claim.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Up to so many, from the head of the queue.
    UpTo(i64),
    /// Up to so many, none of them below this one.
    From(i64, i64),
    /// This dispatch alone.
    Only(i64),
}

/// The outcome of one dispatch.
// Nearly all dispatches end a run: a box for each would cost more than the memory it saves.
#[allow(clippy::large_enum_variant)]
pub enum Outcome {
    /// The run has ended.
    Ended(EndedRun),
    /// The run waits, for the first time or again.
    Suspended(Box<Suspension>),
    /// The run did not move.
    Stays,
}

/// How many windows of the queue a turn searches for dispatches that need not wait.
const WINDOWS: usize = 20;

/// Claims dispatches and executes them.
pub fn turn(claimer: &mut Claimer, work: Work) -> Turn {
    claimer.refresh();
    claimer.begin();
    let mut batch = Batch { floor: claimer.floor, ..Default::default() };
    for window in 0..WINDOWS {
        // Behind a window in which all dispatches wait, a small batch reads further ahead; otherwise a few waiting
        // dispatches would hide the rest of the queue from it.
        let wide =
            |limit: i64| if claimer.is_worker { (limit << window).min(gucs::batch_size()).max(limit) } else { limit };
        let (claimed, most, limit) = match work {
            Work::UpTo(most) => (dispatches::claim(claimer.owner, batch.floor, wide(most)), most, wide(most)),
            Work::From(id, most) => {
                (dispatches::claim(claimer.owner, batch.floor.max(id), wide(most)), most, wide(most))
            }
            Work::Only(id) => (dispatches::claim_one(claimer.owner, id), 1, 1),
        };
        if claimed.is_empty() {
            break;
        }
        at_commit::announce_if_claims_return();
        failpoint("claimed");
        batch.run(claimer, &claimed, claimed.len() as i64 > most);
        batch.turn.more |= claimed.len() as i64 == limit;
        let stop = batch.turn.alone.is_some() || !batch.turn.more || matches!(work, Work::Only(_));
        if !batch.done.is_empty() || stop {
            break;
        }
        // All dispatches so far wait for rows that other transactions have locked; those behind them may not have to.
    }
    failpoint("ran");
    batch.write(claimer);
    failpoint("written");
    claimer.next_floor = batch.undone.into_iter().min().unwrap_or(batch.floor.max(claimer.floor));
    batch.turn
}

/// Evaluates once more the waits that this claimer has armed, in a snapshot taken after the commit that armed them. A
/// wait that cannot be evaluated now keeps its timer, with which the conductor queues it again.
pub fn look_at_armed(claimer: &mut Claimer, armed: &[(RunId, WaitNo)]) -> Turn {
    let mut batch = Batch::default();
    claimer.begin();
    claimer.shares = claimer.is_worker && armed.len() > 1;
    let mut nudges: HashMap<RunId, Vec<Nudge>> = HashMap::new();
    for (run, wait_no) in armed {
        let nudge = Nudge { wait_no: *wait_no, reason: Reason::Arm, event: None };
        nudges.entry(*run).or_default().push(nudge);
    }
    let mut runs: Vec<RunId> = nudges.keys().copied().collect();
    runs.sort_unstable();
    for live in live::lock(&runs) {
        if claimer.is_worker && running::is_wanted(live.id.0) {
            continue;
        }
        if claimer.is_worker {
            // In a session that drives the queue by hand the transaction that armed the waits is still open, and their
            // timers wake them after its commit.
            batch.disarmed.extend(armed.iter().filter(|(run, _)| *run == live.id));
        }
        versions::load(std::iter::once(live.version_id));
        let nudges = nudges.remove(&live.id).unwrap_or_default();
        let outcome = resume::resume(claimer, live, &nudges);
        batch.note(outcome);
        pgrx::check_for_interrupts!();
    }
    batch.disarmed.retain(|wait| !claimer.unsettled.contains(wait));
    batch.write(claimer);
    batch.turn
}

/// The progress of a turn.
#[derive(Default)]
struct Batch {
    /// The id at which the next window begins.
    floor: i64,
    /// Ordering keys of claimed dispatches that must wait.
    blocked: HashSet<i64>,
    /// By ordering key, the dispatches that other executors have locked.
    held: HashMap<i64, Vec<i64>>,
    ended: Vec<EndedRun>,
    suspended: Vec<Suspension>,
    /// Waits that were evaluated once more after the commit that armed them.
    disarmed: Vec<(RunId, WaitNo)>,
    done: Vec<i64>,
    undone: Vec<i64>,
    turn: Turn,
    /// A run has failed: the next one is not begun before the failure is counted by its automation's circuit breaker.
    failed: bool,
}

/// The runs that a window of dispatches wakes.
struct Woken {
    runs: HashMap<RunId, LiveRun>,
    /// Runs that other transactions have locked.
    held: HashSet<RunId>,
    nudges: HashMap<RunId, Vec<Nudge>>,
}

impl Woken {
    /// One wake-up of a run must wait: all wake-ups of a run are evaluated together, so they wait together.
    fn hold_back(&mut self, run: RunId) {
        if let Some(run) = self.runs.remove(&run) {
            self.held.insert(run.id);
        }
    }

    /// Locks the runs that are to be woken.
    fn lock(claimed: &[Dispatch], events: &HashMap<EventId, Rc<Event>>) -> Woken {
        let mut nudges: HashMap<RunId, Vec<Nudge>> = HashMap::new();
        for dispatch in claimed.iter().filter(|dispatch| dispatch.reason.wakes()) {
            let event = dispatch.cause.and_then(|(id, _)| events.get(&id));
            let event = event.map(|event| event.on_topic(dispatch.topic.as_deref()));
            let nudge = Nudge { wait_no: dispatch.wait_no, reason: dispatch.reason, event };
            nudges.entry(dispatch.run_id).or_default().push(nudge);
        }
        let mut ids: Vec<RunId> = nudges.keys().copied().collect();
        if ids.is_empty() {
            return Woken { runs: HashMap::new(), held: HashSet::new(), nudges };
        }
        ids.sort_unstable();
        let runs: HashMap<RunId, LiveRun> = live::lock(&ids).into_iter().map(|run| (run.id, run)).collect();
        let missing: Vec<RunId> = ids.into_iter().filter(|id| !runs.contains_key(id)).collect();
        Woken { runs, held: live::existing(&missing).into_iter().collect(), nudges }
    }
}

/// A window of the queue: dispatches that were claimed together, with their events and runs.
struct Window {
    events: HashMap<EventId, Rc<Event>>,
    woken: Woken,
    cancelled: Cancelled,
    /// Dispatches that other executors execute alone.
    tried: Vec<i64>,
    columns: TenantColumns,
    begun: Micros,
    /// Jobs that were tended since these dispatches were read.
    tended: HashSet<i64>,
}

impl Window {
    fn read(claimer: &mut Claimer, claimed: &[Dispatch]) -> Window {
        let events = read_events(claimed);
        let woken = Woken::lock(claimed, &events);
        let live_versions = woken.runs.values().map(|run| run.version_id);
        versions::load(claimed.iter().map(|dispatch| dispatch.version_id).chain(live_versions));
        let cancelled = Cancelled::of(claimer, claimed, &events, woken.runs.values());
        Window {
            events,
            woken,
            cancelled,
            tried: shared().tried_by_others(shmem::my_database()),
            columns: TenantColumns::default(),
            begun: clock::now(),
            tended: HashSet::new(),
        }
    }

    /// The event as the automation of a dispatch sees it.
    fn seen(&self, dispatch: &Dispatch, event: EventId) -> Option<Rc<Event>> {
        self.events.get(&event).map(|event| as_seen(&self.columns, dispatch, event))
    }
}

/// Is the dispatch to have a transaction of its own?
fn takes_long(claimer: &Claimer, dispatch: &Dispatch) -> bool {
    match dispatch.reason {
        // Tending a job executes no step of the automation.
        Reason::Bulk => bulk::takes_long(dispatch),
        _ => claimer.apart.contains(dispatch.automation_id),
    }
}

impl Batch {
    /// Executes claimed dispatches. If they are more than the batch may execute, the first that need not wait is left
    /// to be executed alone.
    fn run(&mut self, claimer: &mut Claimer, claimed: &[Dispatch], too_many: bool) {
        let (Some(first), Some(last)) = (claimed.first(), claimed.last()) else { return };
        claimer.head = Some(first.id);
        claimer.claimed_up_to(last.id);
        self.note_passed_over(claimer, claimed, last.id);
        let mut window = Window::read(claimer, claimed);
        claimer.shares = claimer.is_worker && claimed.len() > 1;
        for dispatch in claimed {
            if self.must_wait(claimer, dispatch, &window) {
                window.woken.hold_back(dispatch.run_id);
                continue;
            }
            if too_many || claimer.shares && takes_long(claimer, dispatch) {
                return self.leave_rest(claimed, dispatch.id);
            }
            let began = Instant::now();
            let settled = self.perform(claimer, dispatch, &mut window);
            if claimer.is_worker && !claimer.shares && dispatch.reason != Reason::Bulk {
                claimer.apart.ran_alone(dispatch.automation_id, began.elapsed().as_micros() as i64);
            }
            if !settled || claimer.unsettled.contains(&(dispatch.run_id, dispatch.wait_no)) {
                self.blocked.extend(dispatch.ordering_key);
                self.undone.push(dispatch.id);
                self.turn.blocked = true;
            } else {
                self.done.push(dispatch.id);
            }
            pgrx::check_for_interrupts!();
        }
    }

    /// Notes the dispatches that other executors have locked: later ones with the same ordering key wait behind them.
    fn note_passed_over(&mut self, claimer: &Claimer, claimed: &[Dispatch], last: i64) {
        let ids: Vec<i64> = claimed.iter().map(|dispatch| dispatch.id).collect();
        for (id, key) in dispatches::passed_over(claimer.owner, self.floor, last, &ids) {
            if let Some(key) = key {
                self.held.entry(key).or_default().push(id);
            }
            self.undone.push(id);
        }
        self.floor = last + 1;
    }

    /// Must the dispatch stay queued? Then later ones with the same ordering key wait behind it.
    fn must_wait(&mut self, claimer: &mut Claimer, dispatch: &Dispatch, window: &Window) -> bool {
        let before = dispatch.ordering_key.and_then(|key| self.held.get(&key));
        claimer.behind = before.and_then(|before| restart::only_before(claimer, dispatch, before));
        let waits = dispatch.ordering_key.is_some_and(|key| self.blocked.contains(&key))
            || before.is_some() && claimer.behind.is_none()
            || window.woken.held.contains(&dispatch.run_id)
            || window.cancelled.undecided.contains(&dispatch.run_id)
            // A session that cancels the run waits for the lock on its row.
            || claimer.is_worker && running::is_wanted(dispatch.run_id.0)
            || claimer.is_worker && running::is_wanted(running::all_of(dispatch.automation_id));
        let late =
            self.failed || claimer.restarted || !self.done.is_empty() && clock::now() - window.begun > TIME_SLICE;
        if !(waits || late || window.tried.contains(&dispatch.id) || claimer.put_off.contains(&dispatch.id)) {
            return false;
        }
        self.blocked.extend(dispatch.ordering_key);
        self.undone.push(dispatch.id);
        self.turn.blocked |= !late;
        self.turn.more |= late;
        true
    }

    /// Ends the batch before a dispatch that is to have a transaction of its own, so that the runs locked with it do
    /// not wait for it.
    fn leave_rest(&mut self, claimed: &[Dispatch], from: i64) {
        self.turn.alone = self.done.is_empty().then_some(from);
        self.undone.extend(claimed.iter().map(|dispatch| dispatch.id).filter(|id| *id >= from));
        self.turn.more = true;
    }

    /// Executes a dispatch. False if a part of its work must be done later.
    fn perform(&mut self, claimer: &mut Claimer, dispatch: &Dispatch, window: &mut Window) -> bool {
        if dispatch.reason.holds() {
            let event = dispatch.cause.and_then(|(id, _)| window.seen(dispatch, id));
            let (outcomes, settled) = hold::hear(claimer, dispatch, event.as_deref());
            outcomes.into_iter().for_each(|outcome| self.note(outcome));
            return settled;
        }
        let outcome = match dispatch.reason {
            // The first time that a job is tended covers the other orders to tend it in this batch.
            Reason::Bulk if !window.tended.insert(dispatch.run_id.0) => Outcome::Stays,
            Reason::Bulk => tend(claimer, dispatch),
            Reason::Manual if window.cancelled.runs.contains(&dispatch.run_id) => {
                let event = window.events.get(&dispatch.event_id);
                let run = run::of_dispatch(claimer.owner, dispatch, event.map(Rc::as_ref), clock::engine_now());
                Outcome::Ended(run.ended(Ending::Cancelled, Some("cancelled")))
            }
            reason if reason.starts() => {
                let event = window.seen(dispatch, dispatch.event_id);
                start(claimer, dispatch, event.as_deref())
            }
            _ => wake(claimer, dispatch, &mut window.woken),
        };
        self.note(outcome);
        true
    }

    fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Ended(run) => {
                self.failed |= run.ending == Ending::Failed && breaker::counts(&run);
                self.ended.push(run);
            }
            Outcome::Suspended(put) => self.suspended.push(*put),
            Outcome::Stays => {}
        }
    }

    fn write(&mut self, claimer: &mut Claimer) {
        self.turn.runs = self.done.len();
        self.turn.moved = self.ended.len() + self.suspended.len();
        let moved = match (&self.ended[..], &self.suspended[..]) {
            ([run], []) => Some((run.id, run.automation_id, run.item, &run.mode_key)),
            ([], [put]) => Some((put.run.id, put.run.automation_id, put.item, &put.run.mode_key)),
            _ => None,
        };
        self.turn.only_run = moved.map(|(run, automation, item, key)| {
            let key = key.as_ref().map(|key| gates::lock_of(automation, key));
            Task { run: run.0, automation, job: item.map(|item| item.job), key }
        });
        self.turn.failed = self.ended.iter().filter(|run| run.ending == Ending::Failed).count();
        write::write(claimer, &self.ended, &self.suspended, &self.disarmed, &self.done);
    }
}

fn read_events(claimed: &[Dispatch]) -> HashMap<EventId, Rc<Event>> {
    let own = claimed.iter().filter(|dispatch| dispatch.reason.starts()).map(|d| (d.event_id, d.event_at));
    let wanted: Vec<(EventId, Micros)> = own.chain(claimed.iter().filter_map(|dispatch| dispatch.cause)).collect();
    if wanted.is_empty() {
        return HashMap::new();
    }
    let ids: Vec<EventId> = wanted.iter().map(|(id, _)| *id).collect();
    let times = wanted.iter().map(|(_, at)| *at);
    let (from, to) = (times.clone().min().unwrap_or_default(), times.max().unwrap_or_default());
    events::many(&ids, from, to).into_iter().map(|event| (event.id, Rc::new(event))).collect()
}

/// The event as the automation's tenant sees it, on the topic that the trigger listens to.
fn as_seen(columns: &TenantColumns, dispatch: &Dispatch, event: &Rc<Event>) -> Rc<Event> {
    let version = versions::get(dispatch.version_id).ok();
    let viewer = version.as_ref().and_then(|version| version.program.tenant.as_deref());
    // The table may be watched with another tenant column than when the event was routed.
    let hidden = || Rc::new(Event { changed: Vec::new(), prev: None, next: None, ..Event::clone(event) });
    columns.seen_by(viewer, event).unwrap_or_else(hidden).on_topic(dispatch.topic.as_deref())
}

fn start(claimer: &mut Claimer, dispatch: &Dispatch, event: Option<&Event>) -> Outcome {
    let run = run::of_dispatch(claimer.owner, dispatch, event, clock::engine_now());
    let Some(event) = event else {
        let error = PgError::new("02000", format!("event {} is not in the log any more", dispatch.event_id));
        dead_letter(dispatch, claimer.owner, "event_missing", &error);
        let error = Some(error_json(&error, None));
        return Outcome::Ended(EndedRun { error, ..run.ended(Ending::Failed, Some("event_missing")) });
    };
    // The attempt about to be made is included in the count.
    if dispatch.attempt > MAX_CRASHES {
        let error = crashed(dispatch);
        dead_letter(dispatch, claimer.owner, "crashed_server", &error);
        let error = Some(error_json(&error, None));
        return Outcome::Ended(EndedRun { error, ..run.ended(Ending::Failed, Some("crashed_server")) });
    }
    begin::start(claimer, run, dispatch.active, event)
}

/// Tends a bulk job. The runs that it begins come through the queue like all others.
fn tend(claimer: &mut Claimer, dispatch: &Dispatch) -> Outcome {
    if dispatch.attempt > MAX_CRASHES {
        let error = crashed(dispatch);
        dead_letter(dispatch, claimer.owner, "crashed_server", &error);
        bulk::give_up(dispatch.run_id.0, &error);
    } else {
        bulk::tend(claimer, dispatch);
    }
    Outcome::Stays
}

/// Wakes a run; the first of its wake-ups in a batch stands for all of them.
fn wake(claimer: &mut Claimer, dispatch: &Dispatch, woken: &mut Woken) -> Outcome {
    let Some(live) = woken.runs.remove(&dispatch.run_id) else { return Outcome::Stays };
    if dispatch.attempt > MAX_CRASHES {
        let error = crashed(dispatch);
        dead_letter(dispatch, claimer.owner, "crashed_server", &error);
        return Outcome::Ended(give_up(live, "crashed_server", &error));
    }
    let nudges = woken.nudges.remove(&dispatch.run_id).unwrap_or_default();
    resume::resume(claimer, live, &nudges)
}

pub fn crashed(dispatch: &Dispatch) -> PgError {
    PgError {
        detail: Some(format!("The server crashed {} times while it ran.", dispatch.attempt - 1)),
        hint: Some("Look at the server log, mend the step, and start the automation by hand.".into()),
        ..PgError::new("57P02", "the run was stopped because it seems to crash the server")
    }
}

pub fn dead_letter(dispatch: &Dispatch, owner: pg_sys::Oid, reason: &'static str, error: &PgError) {
    let entry = Entry {
        code: reason,
        automation_id: Some(dispatch.automation_id),
        owner: Some(owner),
        run_id: Some(dispatch.run_id),
        event_id: dispatch.reason.starts().then_some(dispatch.event_id),
        ..Default::default()
    };
    log::dead_letter(&entry, &error_json(error, None));
}

/// Records that a run failed at commit (because of a deferred constraint, for example), or cannot be tried again, after
/// its own transaction was rolled back.
pub fn fail(claimer: &mut Claimer, dispatch_id: i64, reason: &'static str, error: &PgError) {
    batch_state::begin();
    let Some(dispatch) = dispatches::one(claimer.owner, dispatch_id) else { return };
    if dispatch.reason == Reason::Bulk {
        bulk::give_up(dispatch.run_id.0, error);
        return write::write(claimer, &[], &[], &[], &[dispatch_id]);
    }
    let ended = if dispatch.reason.starts() {
        let event = read_events(std::slice::from_ref(&dispatch)).remove(&dispatch.event_id);
        let run = run::of_dispatch(claimer.owner, &dispatch, event.as_deref(), clock::engine_now());
        let error = Some(error_json(error, None));
        Some(EndedRun { error, ..run.ended(Ending::Failed, Some(reason)) })
    } else if dispatch.reason.holds() {
        let event = dispatch.cause.and_then(|(id, _)| read_events(std::slice::from_ref(&dispatch)).remove(&id));
        let Some((ended, done)) = hold::give_up(claimer, &dispatch, event.as_deref(), reason, error) else {
            return;
        };
        let done: Vec<i64> = done.then_some(dispatch_id).into_iter().collect();
        return write::write(claimer, &ended, &[], &[], &done);
    } else {
        let run = live::lock(&[dispatch.run_id]).into_iter().next();
        if run.is_none() && !live::existing(&[dispatch.run_id]).is_empty() {
            // Another transaction has locked the run. The run may succeed there; if not, this wake-up is still queued.
            return;
        }
        run.map(|live| give_up(live, reason, error))
    };
    write::write(claimer, ended.as_slice(), &[], &[], &[dispatch_id]);
}
