//! Which run each executor executes at this moment, and which runs are being cancelled. All of it is in shared memory:
//! an executor says what it does with plain stores, without a lock, a write or a system call per run. Hints only: the
//! rows of a run and their locks decide what becomes of it.
//!
//! How a run that executes is cancelled: the session that calls cancel_run() enters the run's number among those that
//! are wanted, sends SIGINT to the executor that shows the run, and waits for the lock on the run's row. The executor
//! rolls its transaction back when it finds its run among the wanted, which gives up the row, and begins no wanted run
//! until the session has the row or has given up. A signal that comes too late, when the executor has gone on to another
//! run, makes it repeat that one; the run itself does not fail.
#![allow(unsafe_code)]
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

use pgrx::pg_sys;

use crate::context;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::server_text;
use crate::shmem::{self, ExecutorSlot, shared};

/// So many bytes of a step's name are kept, in words of eight.
const NAME_WORDS: usize = 8;
const NAME_BYTES: usize = NAME_WORDS * 8;
/// How often a reader tries again that met the executor while it wrote.
const READS: usize = 1000;

/// What one executor executes.
#[repr(C)]
pub struct Running {
    /// Odd while the executor changes what follows.
    version: AtomicU32,
    /// 0 between runs.
    run: AtomicI64,
    since: AtomicI64,
    name_length: AtomicU32,
    name: [AtomicU64; NAME_WORDS],
    /// How often cancel_run() has sent a signal to this process.
    signals: AtomicU32,
}

/// What an executor was found to execute.
#[derive(Debug)]
pub struct Seen {
    pub run: i64,
    /// When the executor took it up.
    pub since: i64,
    /// None before its first step.
    pub step: Option<String>,
}

impl Running {
    /// The executor alone changes what is shown; a reader that meets a change in the middle looks again.
    fn change(&self, work: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        work();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn show(&self, run: i64, since: i64) {
        self.change(|| {
            self.run.store(run, Ordering::Relaxed);
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
        self.show(0, 0);
    }

    /// What is executed now, if anything.
    pub fn seen(&self) -> Option<Seen> {
        for _ in 0..READS {
            let before = self.version.load(Ordering::Acquire);
            let (run, since) = (self.run.load(Ordering::Relaxed), self.since.load(Ordering::Relaxed));
            let length = (self.name_length.load(Ordering::Relaxed) as usize).min(NAME_BYTES);
            let name: Vec<u8> = self.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            fence(Ordering::Acquire);
            if before % 2 == 1 || self.version.load(Ordering::Relaxed) != before {
                std::hint::spin_loop();
                continue;
            }
            let step = (length > 0).then(|| String::from_utf8_lossy(&name[..length]).into_owned());
            return (run != 0).then_some(Seen { run, since, step });
        }
        None
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
    /// The run for whose cancellation the transaction under way was given up.
    static GAVE_WAY: Cell<Option<i64>> = const { Cell::new(None) };
    static ACTIVITY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// This process is the executor that has this place.
pub fn become_executor(slot: &'static ExecutorSlot) {
    slot.running.clear();
    DEALT_WITH.set(slot.running.signals.load(Ordering::Acquire));
    MINE.set(Some(slot));
}

/// Ends what is shown when dropped.
pub struct Shown(());

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(slot) = MINE.get() {
            slot.running.clear();
        }
    }
}

/// An executor takes a run up. Elsewhere nothing is shown.
pub fn show(run: i64) -> Shown {
    if let Some(slot) = MINE.get() {
        slot.running.show(run, clock::now());
        fence(Ordering::SeqCst);
    }
    Shown(())
}

/// An executor commits the work of this run alone. Deferred triggers of its steps execute then, and can be interrupted like a step.
pub fn show_commit(run: i64) -> Shown {
    let shown = show(run);
    if let Some(slot) = MINE.get() {
        slot.running.show_step("(commit)");
    }
    shown
}

/// The run goes on to a step. pg_stat_activity names automation, run and step, and no values.
pub fn at_step(automation: &str, run: i64, step: &str) {
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
    shared().executors_of(shmem::my_database()).find(|slot| slot.running.executes(run))
}

/// The runs that are being cancelled.
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
                && entry.database.load(Ordering::Acquire) == shmem::my_database().to_u32()
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
        entry.database.store(shmem::my_database().to_u32(), Ordering::Release);
        // SAFETY: reads a process global.
        entry.pid.store(unsafe { pg_sys::MyProcPid }, Ordering::Release);
        entry.run.store(run, Ordering::Release);
        // This store and the one in `show` have one order in all processes: either the executor that is about to begin the
        // run finds this entry, or the session that calls cancel_run() finds the run in the executor's slot.
        fence(Ordering::SeqCst);
        Some(place)
    }

    fn leave(&self, place: usize) {
        self.entries[place].run.store(0, Ordering::Release);
        self.entries[place].pid.store(0, Ordering::Release);
        self.taken.fetch_and(!(1 << place), Ordering::AcqRel);
    }

    /// Takes back what a session has entered that is about to end, however it ends.
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

/// A run that this session is cancelling; no executor begins it while this lives.
pub struct Request {
    run: i64,
    place: Option<usize>,
}

impl Request {
    pub fn new(run: i64) -> Request {
        crate::workers::wake::forget_requests_at_abort();
        Request { run, place: shared().wanted.enter(run) }
    }

    /// Interrupts the statement of the executor that executes the run; with `end`, ends that executor. False if no executor
    /// executes it: then none will while this lives.
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

/// Raises an error that gives up the transaction under way if the run in it is being cancelled.
pub fn give_way(run: i64) {
    if is_wanted(run) {
        GAVE_WAY.set(Some(run));
        PgError::new("57014", format!("run {run} is being cancelled")).raise()
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
    let run = context::run().filter(|run| is_wanted(*run));
    if run.is_some() {
        GAVE_WAY.set(run);
    }
    signalled || run.is_some() || GAVE_WAY.get().is_some()
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
