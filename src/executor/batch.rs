//! One batch: claim, run each, write history, delete, all in one transaction.
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use pgrx::pg_sys;

use super::{run, versions};
use crate::failpoint::failpoint;
use crate::pg::catch::PgError;
use crate::pg::clock::{self, Micros};
use crate::pg::session;
use crate::shmem::{self, shared};
use crate::store::dispatches::{self, Dispatch};
use crate::store::events::{self, Event};
use crate::store::history::{self, EndedRun, Ending};
use crate::store::log::{self, Entry};
use crate::store::stats::{self, Counts};
use crate::workers::wake;

/// A batch is committed early once it has taken this long, so that no run waits long for another's commit.
const TIME_SLICE: Micros = 20_000;
/// A dispatch that was being run, alone, when the server crashed this often is not tried again.
const MAX_CRASHES: i16 = 2;

/// Who claims, and what it knows about the queue.
#[derive(Debug)]
pub struct Claimer {
    pub owner: pg_sys::Oid,
    /// True in an executor, which is logged in as the owner; false where another session drives the queue by hand.
    pub is_worker: bool,
    /// Every dispatch of the owner below this id is done. A hint that spares the scan the dead rows that vacuum cannot
    /// remove while somebody holds an old snapshot.
    floor: i64,
    /// The floor to use if this batch commits.
    next_floor: i64,
    returned: u64,
    /// The first dispatch of the current batch.
    pub head: Option<i64>,
    /// More than one run shares the transaction under way.
    pub shares: bool,
    /// Automations with a run that was too slow to share a transaction; they get one for each run.
    pub slow: HashSet<i32>,
}

impl Claimer {
    pub fn new(owner: pg_sys::Oid, is_worker: bool) -> Self {
        let returned = shared().claims_returned.load(Ordering::Acquire);
        Claimer { owner, is_worker, floor: 0, next_floor: 0, returned, head: None, shares: false, slow: HashSet::new() }
    }

    /// A batch of anybody's was given back: what is below the floor may not be done after all.
    fn refresh(&mut self) {
        let returned = shared().claims_returned.load(Ordering::Acquire);
        if returned != self.returned {
            self.returned = returned;
            self.floor = 0;
        }
        self.next_floor = self.floor;
    }

    /// Remembers how far this process has claimed, for whoever comes after it should it die.
    fn claimed_up_to(&mut self, id: i64) {
        if self.is_worker
            && let Some(slot) = shared().my_executor()
        {
            slot.claimed.fetch_max(id, Ordering::AcqRel);
        }
    }

    /// The batch's transaction has committed.
    pub fn committed(&mut self) {
        self.floor = self.next_floor;
    }

    /// The batch's transaction was rolled back.
    pub fn aborted(&mut self) {
        self.floor = 0;
    }
}

/// What a turn did.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub runs: usize,
    pub failed: usize,
    /// There may be more to do at once.
    pub more: bool,
    /// Some claimed work must wait for runs that others have in hand.
    pub blocked: bool,
    /// This dispatch, of a slow automation, is to be run alone next.
    pub alone: Option<i64>,
}

/// What a turn takes on.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Up to so many, from the head of the queue.
    UpTo(i64),
    /// This dispatch alone.
    Only(i64),
}

/// How many windows of the queue a turn looks through for work that need not wait.
const WINDOWS: usize = 20;

/// Claims dispatches and runs them.
pub fn turn(claimer: &mut Claimer, work: Work) -> Turn {
    claimer.refresh();
    let mut batch = Batch { floor: claimer.floor, ..Default::default() };
    for _ in 0..WINDOWS {
        let (claimed, limit) = match work {
            Work::UpTo(limit) => (dispatches::claim(claimer.owner, batch.floor, limit), limit),
            Work::Only(id) => (dispatches::claim_one(claimer.owner, id), 1),
        };
        if claimed.is_empty() {
            break;
        }
        wake::announce_if_claims_return();
        failpoint("claimed");
        batch.run(claimer, &claimed, matches!(work, Work::UpTo(_)));
        batch.turn.more |= claimed.len() as i64 == limit;
        let stop = batch.turn.alone.is_some() || !batch.turn.more || matches!(work, Work::Only(_));
        if !batch.ended.is_empty() || stop {
            break;
        }
        // Everything so far waits for what others have in hand; behind it there may be work that need not.
    }
    failpoint("ran");
    if !batch.ended.is_empty() {
        write(claimer, &batch.ended, &batch.done);
    }
    failpoint("written");
    claimer.next_floor = batch.undone.into_iter().min().unwrap_or(batch.floor.max(claimer.floor));
    batch.turn.runs = batch.ended.len();
    batch.turn.failed = batch.ended.iter().filter(|run| run.ending == Ending::Failed).count();
    batch.turn
}

/// What a turn has done so far.
#[derive(Default)]
struct Batch {
    /// Where the next window begins.
    floor: i64,
    /// Ordering keys of what others hold, or of what must wait itself.
    blocked: HashSet<i64>,
    ended: Vec<EndedRun>,
    done: Vec<i64>,
    undone: Vec<i64>,
    turn: Turn,
}

impl Batch {
    fn run(&mut self, claimer: &mut Claimer, claimed: &[Dispatch], from_head: bool) {
        let (Some(first), Some(last)) = (claimed.first(), claimed.last()) else { return };
        claimer.head = Some(first.id);
        claimer.claimed_up_to(last.id);
        let ids: Vec<i64> = claimed.iter().map(|dispatch| dispatch.id).collect();
        let from = if from_head { self.floor } else { 0 };
        for (id, key) in dispatches::passed_over(claimer.owner, from, last.id, &ids) {
            self.blocked.extend(key);
            self.undone.push(id);
        }
        if from_head {
            self.floor = last.id + 1;
        }
        let events = read_events(claimed);
        versions::load(claimed.iter().map(|dispatch| dispatch.version_id));
        let tried = shared().tried_by_others(shmem::my_database());
        let begun = clock::now();
        claimer.shares = claimer.is_worker && claimed.len() > 1;
        for dispatch in claimed {
            if claimer.shares && claimer.slow.contains(&dispatch.automation_id) {
                // What is locked with it must not wait for it: end here, and let it have a transaction of its own.
                self.turn.alone = self.ended.is_empty().then_some(dispatch.id);
                let rest = claimed.iter().filter(|other| other.id >= dispatch.id).map(|other| other.id);
                self.undone.extend(rest);
                self.turn.more = true;
                return;
            }
            let waits = dispatch.ordering_key.is_some_and(|key| self.blocked.contains(&key));
            let late = !self.ended.is_empty() && clock::now() - begun > TIME_SLICE;
            if waits || late || tried.contains(&dispatch.id) {
                // Whatever comes later with the same key must wait for this one.
                self.blocked.extend(dispatch.ordering_key);
                self.undone.push(dispatch.id);
                self.turn.blocked |= !late;
                self.turn.more |= late;
                continue;
            }
            let run = one(claimer, dispatch, events.get(&dispatch.event_id));
            self.ended.push(run);
            self.done.push(dispatch.id);
            pgrx::check_for_interrupts!();
        }
    }
}

fn read_events(claimed: &[Dispatch]) -> HashMap<i64, Event> {
    let ids: Vec<i64> = claimed.iter().map(|dispatch| dispatch.event_id).collect();
    let times = claimed.iter().map(|dispatch| dispatch.event_at);
    let (from, to) = (times.clone().min().unwrap_or_default(), times.max().unwrap_or_default());
    events::many(&ids, from, to).into_iter().map(|event| (event.id, event)).collect()
}

fn one(claimer: &mut Claimer, dispatch: &Dispatch, event: Option<&Event>) -> EndedRun {
    let started_at = clock::now();
    let Some(event) = event else {
        let error = PgError::new("02000", format!("event {} is not in the log any more", dispatch.event_id));
        return give_up(claimer.owner, dispatch, None, started_at, "event_missing", &error);
    };
    // The attempt about to be made is counted already.
    if dispatch.attempt > MAX_CRASHES {
        let error = PgError {
            detail: Some(format!("The server crashed {} times while it ran.", dispatch.attempt - 1)),
            hint: Some("Look at the server log, mend the step, and start the automation by hand.".into()),
            ..PgError::new("57P02", "the run was stopped because it seems to crash the server")
        };
        return give_up(claimer.owner, dispatch, Some(event), started_at, "crashed_server", &error);
    }
    run::run(claimer, dispatch, event, started_at)
}

/// An ended run with everything taken from dispatch and event.
pub fn ended(
    owner: pg_sys::Oid,
    dispatch: &Dispatch,
    event: Option<&Event>,
    started_at: Micros,
    ending: Ending,
    reason: Option<&'static str>,
) -> EndedRun {
    EndedRun {
        id: dispatch.run_id,
        event_id: dispatch.event_id,
        event_at: dispatch.event_at,
        started_at,
        ended_at: clock::now(),
        owner,
        automation_id: dispatch.automation_id,
        version_id: dispatch.version_id,
        trigger_no: dispatch.trigger_no,
        attempt: dispatch.attempt,
        depth: event.map_or(0, |event| event.depth),
        ending,
        kind: event.and_then(|event| event.kind.clone()),
        entity_id: event.and_then(|event| event.entity_id.clone()),
        key: None,
        tenant: event.and_then(|event| event.tenant.clone()),
        reason,
        error: None,
        steps: None,
    }
}

fn give_up(
    owner: pg_sys::Oid,
    dispatch: &Dispatch,
    event: Option<&Event>,
    started_at: Micros,
    reason: &'static str,
    error: &PgError,
) -> EndedRun {
    let error = run::error_json(error, None);
    let entry = Entry {
        code: reason,
        automation_id: Some(dispatch.automation_id),
        owner: Some(owner),
        run_id: Some(dispatch.run_id),
        event_id: Some(dispatch.event_id),
        ..Default::default()
    };
    log::dead_letter(&entry, &error);
    EndedRun { error: Some(error), ..ended(owner, dispatch, event, started_at, Ending::Failed, Some(reason)) }
}

fn write(claimer: &Claimer, runs: &[EndedRun], done: &[i64]) {
    let at = clock::now();
    history::insert(at, runs);
    dispatches::finish(claimer.owner, done);
    let mut counts: HashMap<(i32, i16), Counts> = HashMap::new();
    for run in runs {
        let counts = counts.entry((run.automation_id, run.trigger_no)).or_default();
        counts.entered += 1;
        counts.run_time_us += run.ended_at - run.started_at;
        match run.ending {
            Ending::Completed => counts.completed += 1,
            Ending::Failed => counts.failed += 1,
            Ending::Cancelled => counts.cancelled += 1,
            Ending::Skipped => counts.skipped += 1,
        }
    }
    stats::add(counts.iter(), at);
    if claimer.is_worker {
        session::stop_listening();
    }
}

/// Records that a run failed at commit (a deferred constraint, say), after its own transaction was rolled back.
pub fn fail(claimer: &Claimer, dispatch_id: i64, error: &PgError) {
    let Some(dispatch) = dispatches::one(claimer.owner, dispatch_id) else { return };
    let event = read_events(std::slice::from_ref(&dispatch)).remove(&dispatch.event_id);
    let now = clock::now();
    let run = EndedRun {
        error: Some(run::error_json(error, None)),
        ..ended(claimer.owner, &dispatch, event.as_ref(), now, Ending::Failed, Some("commit_failed"))
    };
    write(claimer, &[run], &[dispatch_id]);
}
