//! Which run each executor executes at this moment, and which runs are being cancelled. All of it is in shared memory:
//! an executor shows its run with plain stores, without a lock, a write or a system call per run. Hints only: the rows
//! of a run and their locks decide how it ends.
//!
//! How a run that executes is cancelled: the session that calls cancel_run() enters the run's number among those that
//! are wanted, sends SIGINT to the executor that shows the run, and waits for the lock on the run's row. The executor
//! rolls its transaction back when it finds its run among the wanted, which gives up the row, and begins no wanted run
//! until the session has the row or has given up. A signal that comes too late, when the executor has gone on to
//! another run, makes it repeat that one; the run itself does not fail. A bulk job or an automation is entered among
//! the wanted in the same way while all its runs that execute are being cancelled.
#![allow(unsafe_code)]
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

use automation_core::ids::{AutomationId, RunId};
use pgrx::pg_sys;

use super::executor_slot::ExecutorSlot;
use super::shmem::shared;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::process::my_database;
use crate::pg::server_text;

/// So many bytes of a step's name are kept, in words of eight.
const NAME_WORDS: usize = 8;
const NAME_BYTES: usize = NAME_WORDS * 8;
/// How often a reader that meets the executor while it writes tries again.
const READS: usize = 1000;

/// A run that an executor takes up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Task {
    /// The run; the bulk job itself while the job's query executes. Both have numbers of one sequence.
    pub run: i64,
    pub automation: AutomationId,
    /// The bulk job that the run is a row of.
    pub job: Option<i64>,
    /// The lock on the run's key, if it is known.
    pub key: Option<i64>,
}

/// The number by which all runs of an automation are wanted; runs and jobs have positive numbers.
pub fn all_of(automation: AutomationId) -> i64 {
    -i64::from(automation.0)
}

impl Task {
    /// The numbers by which it can be wanted.
    fn numbers(&self) -> [i64; 3] {
        [self.run, self.job.unwrap_or_default(), all_of(self.automation)]
    }

    /// The number by which it is wanted at this moment.
    fn wanted(&self) -> Option<i64> {
        self.numbers().into_iter().find(|number| is_wanted(*number))
    }
}

/// The run that one executor executes.
#[repr(C)]
pub struct Running {
    /// Odd while the executor changes the fields below.
    version: AtomicU32,
    /// 0 between runs.
    run: AtomicI64,
    automation: AtomicI32,
    /// The bulk job that the run is a row of, else 0.
    job: AtomicI64,
    /// The lock on the run's key, if a later start with the same key may interrupt the run, else 0.
    key: AtomicI64,
    since: AtomicI64,
    name_length: AtomicU32,
    name: [AtomicU64; NAME_WORDS],
    /// How often cancel_run() has sent a signal to this process.
    signals: AtomicU32,
}

/// The run that an executor was found to execute.
#[derive(Debug)]
pub struct Seen {
    pub run: i64,
    task: Task,
    /// When the executor took it up.
    pub since: i64,
    /// None before its first step.
    pub step: Option<String>,
}

impl Running {
    /// The executor alone changes the fields; a reader that meets a change in the middle looks again.
    fn change(&self, work: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        work();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn show(&self, task: Task, since: i64) {
        self.change(|| {
            self.run.store(task.run, Ordering::Relaxed);
            self.automation.store(task.automation.0, Ordering::Relaxed);
            self.job.store(task.job.unwrap_or_default(), Ordering::Relaxed);
            self.key.store(task.key.unwrap_or_default(), Ordering::Relaxed);
            self.since.store(since, Ordering::Relaxed);
            self.name_length.store(0, Ordering::Relaxed);
        });
    }

    fn show_step(&self, name: &str) {
        let end = (0..=name.len().min(NAME_BYTES)).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        self.change(|| {
            self.name_length.store(end as u32, Ordering::Relaxed);
            for (word, bytes) in self.name.iter().zip(name.as_bytes()[..end].chunks(8)) {
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
            }
        });
    }

    pub fn clear(&self) {
        self.show(Task::default(), 0);
    }

    /// The run that is executed now, if any.
    pub fn seen(&self) -> Option<Seen> {
        for _ in 0..READS {
            let before = self.version.load(Ordering::Acquire);
            let (task, since) = (self.task(), self.since.load(Ordering::Relaxed));
            let length = (self.name_length.load(Ordering::Relaxed) as usize).min(NAME_BYTES);
            let name: Vec<u8> = self.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            fence(Ordering::Acquire);
            if before % 2 == 1 || self.version.load(Ordering::Relaxed) != before {
                std::hint::spin_loop();
                continue;
            }
            let step = (length > 0).then(|| String::from_utf8_lossy(&name[..length]).into_owned());
            return (task.run != 0).then_some(Seen { run: task.run, task, since, step });
        }
        None
    }

    fn task(&self) -> Task {
        Task {
            run: self.run.load(Ordering::Relaxed),
            automation: AutomationId(self.automation.load(Ordering::Relaxed)),
            job: Some(self.job.load(Ordering::Relaxed)).filter(|job| *job != 0),
            key: Some(self.key.load(Ordering::Relaxed)).filter(|key| *key != 0),
        }
    }

    fn executes(&self, run: i64) -> bool {
        self.run.load(Ordering::Acquire) == run
    }
}

thread_local! {
    /// The place of this process, if it is an executor.
    static MINE: Cell<Option<&'static ExecutorSlot>> = const { Cell::new(None) };
    /// How many signals of cancel_run() this process has dealt with.
    static DEALT_WITH: Cell<u32> = const { Cell::new(0) };
    /// The number, see `Task::numbers`, for whose cancellation the transaction under way was given up.
    static GAVE_WAY: Cell<Option<i64>> = const { Cell::new(None) };
    static ACTIVITY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// This process is the executor that has this place.
pub fn become_executor(slot: &'static ExecutorSlot) {
    slot.running.clear();
    DEALT_WITH.set(slot.running.signals.load(Ordering::Acquire));
    MINE.set(Some(slot));
}

/// Clears the run that is shown when dropped.
pub struct Shown(());

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(slot) = MINE.get() {
            slot.running.clear();
        }
    }
}

/// An executor takes a run up. Elsewhere nothing is shown.
pub fn show(task: Task) -> Shown {
    if let Some(slot) = MINE.get() {
        slot.running.show(task, clock::now());
        fence(Ordering::SeqCst);
    }
    Shown(())
}

/// The run that this executor executes has its key to itself; a later start with the same key may interrupt it.
pub fn show_key(key: i64) {
    if let Some(slot) = MINE.get() {
        slot.running.change(|| slot.running.key.store(key, Ordering::Relaxed));
    }
}

/// An executor executes the deferred triggers of this run, which has the transaction to itself. They can be interrupted
/// like a step.
pub fn show_commit(task: Task) -> Shown {
    let shown = show(task);
    if let Some(slot) = MINE.get() {
        slot.running.show_step("(commit)");
    }
    shown
}

/// The run goes on to a step. pg_stat_activity names automation, run and step, and no values.
pub fn at_step(automation: &str, run: RunId, step: &str) {
    let Some(slot) = MINE.get() else { return };
    slot.running.show_step(step);
    ACTIVITY.with_borrow_mut(|text| {
        text.clear();
        // Piece by piece: this is done for every step, and formatting all at once takes several times as long.
        for part in ["automation \"", automation, "\" run "] {
            text.extend_from_slice(&server_text::write(part));
        }
        // Writing to a Vec cannot fail.
        let _ = write!(text, "{run}");
        for part in [" step \"", step, "\"\0"] {
            text.extend_from_slice(&server_text::write(part));
        }
        // SAFETY: NUL-terminated; the call copies as much as there is room for.
        unsafe { pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, text.as_ptr().cast()) };
    });
}

/// The executor of this database that executes a run.
fn executor_of(run: i64) -> Option<&'static ExecutorSlot> {
    shared().executors_of(my_database()).find(|slot| slot.running.executes(run))
}

/// The runs that the other executors of this database execute.
fn executed_elsewhere() -> impl Iterator<Item = Seen> {
    let mine = MINE.get();
    shared()
        .executors_of(my_database())
        .filter(move |slot| mine.is_none_or(|mine| !std::ptr::eq(mine, *slot)))
        .filter_map(|slot| slot.running.seen())
}

/// The run of an automation that another executor executes in mode restart, by the lock on its key.
pub fn with_key(automation: AutomationId, key: i64) -> Option<RunId> {
    executed_elsewhere()
        .find(|seen| seen.task.automation == automation && seen.task.key == Some(key))
        .map(|seen| RunId(seen.run))
}

/// Does another executor execute the run at this moment?
pub fn executes_elsewhere(run: RunId) -> bool {
    executed_elsewhere().any(|seen| seen.run == run.0)
}

/// The runs, bulk jobs and automations that are being cancelled.
#[repr(C)]
pub struct Wanted {
    /// A bit for each entry that is taken.
    taken: AtomicU64,
    entries: [WantedRun; 64],
}

#[repr(C)]
struct WantedRun {
    database: AtomicU32,
    pid: AtomicI32,
    run: AtomicI64,
}

impl Wanted {
    fn has(&self, run: i64) -> bool {
        let mut left = self.taken.load(Ordering::Acquire);
        while left != 0 && run != 0 {
            let entry = &self.entries[left.trailing_zeros() as usize];
            left &= left - 1;
            if entry.run.load(Ordering::Acquire) == run
                && entry.database.load(Ordering::Acquire) == my_database().to_u32()
            {
                return true;
            }
        }
        false
    }

    fn enter(&self, run: i64) -> Option<usize> {
        let free = |taken: u64| (taken != u64::MAX).then(|| taken | (1 << (!taken).trailing_zeros()));
        let before = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        let place = (!before).trailing_zeros() as usize;
        let entry = &self.entries[place];
        entry.database.store(my_database().to_u32(), Ordering::Release);
        // SAFETY: reads a process global.
        entry.pid.store(unsafe { pg_sys::MyProcPid }, Ordering::Release);
        entry.run.store(run, Ordering::Release);
        // This store and the one in `show` have one order in all processes: either the executor that is about to begin
        // the run finds this entry, or the session that calls cancel_run() finds the run in the executor's slot.
        fence(Ordering::SeqCst);
        Some(place)
    }

    fn leave(&self, place: usize) {
        self.entries[place].run.store(0, Ordering::Release);
        self.entries[place].pid.store(0, Ordering::Release);
        self.taken.fetch_and(!(1 << place), Ordering::AcqRel);
    }

    /// Takes back all requests that this session has entered. Called when the session is about to end, in any way.
    pub fn forget_mine(&self) {
        // SAFETY: reads a process global.
        let me = unsafe { pg_sys::MyProcPid };
        for (place, entry) in self.entries.iter().enumerate() {
            if entry.pid.load(Ordering::Acquire) == me {
                self.leave(place);
            }
        }
    }
}

/// A run that this session is cancelling, or all runs of a bulk job or an automation; no executor begins one of them
/// while this lives.
pub struct Request {
    /// A run, a job, or `all_of` an automation.
    run: i64,
    place: Option<usize>,
}

impl Request {
    pub fn new(run: i64) -> Request {
        super::at_commit::forget_requests_at_abort();
        Request { run, place: shared().wanted.enter(run) }
    }

    /// The runs that other executors execute and that are wanted by this request.
    pub fn executing(&self) -> Vec<i64> {
        let concerned = |seen: &Seen| self.place.is_some() && seen.task.numbers().contains(&self.run);
        executed_elsewhere().filter(concerned).map(|seen| seen.run).collect()
    }

    /// Interrupts the statement of the executor that executes the run; with `end`, ends that executor. False if no
    /// executor executes it: then none will while this lives.
    pub fn interrupt(&self, end: bool) -> bool {
        // Without an entry among the wanted the executor would take the signal for a person's.
        let Some(slot) = executor_of(self.run).filter(|_| self.place.is_some()) else { return false };
        let pid = slot.pid.load(Ordering::Acquire);
        slot.running.signals.fetch_add(1, Ordering::AcqRel);
        if pid != 0 && slot.running.executes(self.run) {
            // SAFETY: a process of this server, which shows that it executes the run.
            unsafe { libc::kill(pid, if end { libc::SIGTERM } else { libc::SIGINT }) };
        }
        true
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            shared().wanted.leave(place);
        }
    }
}

/// Is the run being cancelled by another session?
pub fn is_wanted(run: i64) -> bool {
    shared().wanted.has(run)
}

fn being_cancelled(number: i64) -> PgError {
    GAVE_WAY.set(Some(number));
    PgError::new("57014", "the run is being cancelled")
}

/// Raises an error that gives up the transaction under way if the run in it is being cancelled, alone or with all runs
/// of its job or automation.
pub fn give_way(task: Task) {
    if let Some(number) = task.wanted() {
        being_cancelled(number).raise()
    }
}

/// The same at the end of a transaction, after the deferred triggers of its only run have executed or have failed: they
/// may have caught the interruption.
pub fn give_way_at_commit(task: Task, outcome: Result<(), PgError>) -> Result<(), PgError> {
    match task.wanted() {
        Some(number) => Err(being_cancelled(number)),
        None => outcome,
    }
}

/// Has cancel_run() interrupted this executor? Then the transaction under way is to be given up: its run is being
/// cancelled, or the signal was meant for a run that had just ended, and this one is to be repeated.
pub fn interrupted(error: &PgError) -> bool {
    if error.sqlstate != "57014" {
        return false;
    }
    let Some(slot) = MINE.get() else { return false };
    let signals = slot.running.signals.load(Ordering::Acquire);
    let signalled = DEALT_WITH.replace(signals) != signals;
    let wanted = slot.running.task().wanted();
    if wanted.is_some() {
        GAVE_WAY.set(wanted);
    }
    signalled || wanted.is_some() || GAVE_WAY.get().is_some()
}

/// A transaction of this executor has failed: was that for the sake of a cancellation? Then rests a little, so that the
/// session that cancels gets the run's row before the next claim.
pub fn gave_way(error: &PgError, rest: impl Fn()) -> bool {
    let interrupted = interrupted(error);
    if let Some(run) = GAVE_WAY.take() {
        for _ in 0..100 {
            if !is_wanted(run) {
                break;
            }
            rest();
        }
    }
    interrupted
}
