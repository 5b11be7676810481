//! The shared memory of the processes: which process works for which database, which process to wake, which work to
//! pause. Hints only: tables hold the truth, and after a crash everything here is rebuilt.
#![allow(unsafe_code)]
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use pgrx::pg_sys;

use super::executor_slot::ExecutorSlot;
use super::id_counter::{Counter, PLACES, StandBy};
use super::running::Wanted;
use crate::pg::failpoint::skips;
pub use crate::pg::process::my_database;
use crate::pg::read_only;

/// Most databases with the extension.
pub const DATABASES: usize = 64;
/// How many of them a test may leave.
const FEW: usize = 3;
pub const EXECUTORS: usize = 128;

/// The whole segment. Zeroed memory is a valid, empty state but for the locks, see `attach`.
#[repr(C)]
pub struct Shared {
    /// PGPROC number + 1 of the launcher, 0 if there is none.
    launcher: AtomicU32,
    /// Changes whenever the launcher should look at the databases again.
    pub launcher_wanted: AtomicU64,
    /// Of the locks in here.
    tranche: AtomicI32,
    /// Held by the process that takes a slot for a database.
    taking: std::cell::UnsafeCell<pg_sys::LWLock>,
    /// Random, new after every start and crash of the server.
    pub boot: AtomicU64,
    /// Raised when a claimed batch was given back; claimers then forget how far the queue was known to be empty.
    pub claims_returned: AtomicU64,
    /// default_transaction_read_only in the configuration of the server, as the launcher has read it.
    pub read_only: AtomicBool,
    /// The asker for which the next free worker process is kept while max_worker_processes is used up, see
    /// src/workers/processes.rs, 0 = none; and when it last asked.
    pub process_claimed_by: AtomicU64,
    pub process_claimed_at: AtomicI64,
    /// Runs that are being cancelled.
    pub wanted: Wanted,
    pub databases: [DatabaseSlot; DATABASES],
    pub executors: [ExecutorSlot; EXECUTORS],
    /// By the place of the process in Postgres' own array.
    pub standing_by: [StandBy; PLACES],
}

/// One database that has, or may have, the extension.
#[repr(C)]
pub struct DatabaseSlot {
    /// Oid of the database, 0 = slot free.
    pub database: AtomicU32,
    pub state: AtomicU32,
    /// PGPROC number + 1 of the conductor.
    conductor: AtomicU32,
    pub conductor_pid: AtomicI32,
    /// Pid of a session that needs the database to itself (DROP DATABASE, DROP EXTENSION ...).
    pub quiesced_by: AtomicI32,
    /// Committed transactions that captured something, since the conductor last looked.
    pub events_pending: AtomicBool,
    /// stop_workers() was called.
    pub stopped: AtomicBool,
    /// Executors could not be started: max_worker_processes is used up.
    pub out_of_workers: AtomicBool,
    pub routed_events: AtomicI64,
    pub routed_dispatches: AtomicI64,
    pub turns: AtomicI64,
    pub errors: AtomicI64,
    pub started_at: AtomicI64,
    /// Conductor start attempts that ended in an error, since the last success.
    pub failures: AtomicU32,
    pub retry_at: AtomicI64,
    /// Dispatches below this id were queued when the server started: one of them may have crashed it. 0 = not known.
    pub careful_below: AtomicI64,
    /// An executor ended in the middle of its work.
    pub executor_died: AtomicBool,
    /// A process other than the conductor has queued dispatches.
    pub work_queued: AtomicBool,
    /// The earliest deadline set since the conductor last looked, 0 = none.
    pub timer_hint: AtomicI64,
    /// When the conductor is going to look at the timers, 0 = it does not know.
    pub next_timer: AtomicI64,
    /// Messages were put into the outbox since the courier last looked; without a courier, there may be some.
    pub outbox_filled: AtomicBool,
    /// PGPROC number + 1 of the courier.
    courier: AtomicU32,
    pub courier_pid: AtomicI32,
    /// The courier shall exit.
    pub courier_stop: AtomicBool,
    /// The courier could not be started: max_worker_processes is used up.
    pub courier_starved: AtomicBool,
    pub courier_started_at: AtomicI64,
    pub courier_in_flight: AtomicI64,
    pub courier_batches: AtomicI64,
    pub courier_sent: AtomicI64,
    pub courier_failed: AtomicI64,
    /// The session that has kept the conductor from routing for some time, and since when. 0 = none.
    pub held_up_by: AtomicI32,
    pub held_up_since: AtomicI64,
    /// Waits that only the sweep found fulfilled; stays 0 unless a wake-up was lost.
    pub rescued: AtomicI64,
    /// The chores of the janitor that failed when they were last tried, a bit for each, see src/janitor.rs.
    pub failing_chores: AtomicU32,
    pub event_ids: Counter,
}

/// States of a database slot.
pub const STATE_UNKNOWN: u32 = 0; // not looked at yet
pub const STATE_STARTING: u32 = 1; // conductor registered
pub const STATE_PRESENT: u32 = 2; // conductor runs
pub const STATE_ABSENT: u32 = 3; // looked: the extension is not there

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

/// The shared segment. Preloaded, the postmaster made it; otherwise the first process that needs it takes it from the
/// spare memory that Postgres keeps for this.
pub fn shared() -> &'static Shared {
    let known = SHARED.load(Ordering::Relaxed);
    if !known.is_null() {
        // SAFETY: points into the main shared memory segment, mapped at the same address for the process's life.
        return unsafe { &*known };
    }
    attach()
}

fn attach() -> &'static Shared {
    // SAFETY: ShmemInitStruct under AddinShmemInitLock, as every extension does.
    unsafe {
        let lock = addin_shmem_init_lock();
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let mut found = false;
        let memory = pg_sys::ShmemInitStruct(c"automation_engine".as_ptr(), size_of::<Shared>(), &mut found);
        let shared = memory.cast::<Shared>();
        if !found {
            std::ptr::write_bytes(memory.cast::<u8>(), 0, size_of::<Shared>());
            let mut random = [0u8; 8];
            pg_sys::pg_strong_random(random.as_mut_ptr().cast(), 8);
            (*shared).boot.store(u64::from_ne_bytes(random) | 1, Ordering::Relaxed);
            let tranche = pg_sys::LWLockNewTrancheId();
            (*shared).tranche.store(tranche, Ordering::Relaxed);
            pg_sys::LWLockInitialize((*shared).taking.get(), tranche);
            for slot in &(*shared).databases {
                slot.event_ids.prepare(tranche);
            }
        }
        pg_sys::LWLockRelease(lock);
        pg_sys::LWLockRegisterTranche((*shared).tranche.load(Ordering::Relaxed), c"automation_engine_ids".as_ptr());
        SHARED.store(shared, Ordering::Relaxed);
        &*shared
    }
}

/// AddinShmemInitLock is a macro over the main array of locks; 21 is its place in all supported versions.
pub unsafe fn addin_shmem_init_lock() -> *mut pg_sys::LWLock {
    // SAFETY: the array is made at server start and has more entries than this.
    unsafe { &raw mut (*pg_sys::MainLWLockArray.add(21)).lock }
}

static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Called from _PG_init while the postmaster preloads us.
pub fn request() {
    // SAFETY: hooks are chained in the single-threaded postmaster before it starts any child.
    unsafe {
        PREVIOUS_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(on_request);
        PREVIOUS_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(on_startup);
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_request() {
    // SAFETY: called by the postmaster when space may be asked for.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Shared>());
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_startup() {
    // SAFETY: called by the postmaster once shared memory exists, and again after each crash restart.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
    }
    SHARED.store(std::ptr::null_mut(), Ordering::Relaxed);
    attach();
}

pub(super) fn wake(proc_number: u32) {
    if proc_number == 0 {
        return;
    }
    // SAFETY: the array of PGPROCs is fixed; waking a process that has ended or been replaced is harmless.
    unsafe {
        let process = (*pg_sys::ProcGlobal).allProcs.add(proc_number as usize - 1);
        pg_sys::SetLatch(&raw mut (*process).procLatch);
    }
}

pub(super) fn my_proc_number() -> u32 {
    // SAFETY: both point into the same array.
    unsafe { pg_sys::MyProc.offset_from((*pg_sys::ProcGlobal).allProcs) as u32 + 1 }
}

/// The place of this process in the array of all.
pub fn my_place() -> usize {
    my_proc_number() as usize - 1
}

pub(super) fn my_pid() -> i32 {
    // SAFETY: reads a process global.
    unsafe { pg_sys::MyProcPid }
}

impl Shared {
    pub fn become_launcher(&self) {
        self.launcher.store(my_proc_number(), Ordering::Release);
    }

    pub fn has_launcher(&self) -> bool {
        self.launcher.load(Ordering::Acquire) != 0
    }

    pub fn leave_launcher(&self) {
        self.launcher.store(0, Ordering::Release);
    }

    pub fn wake_launcher(&self) {
        self.launcher_wanted.fetch_add(1, Ordering::AcqRel);
        wake(self.launcher.load(Ordering::Acquire));
    }

    pub fn database(&self, oid: pg_sys::Oid) -> Option<&DatabaseSlot> {
        self.databases.iter().find(|slot| slot.database.load(Ordering::Acquire) == oid.to_u32())
    }

    /// The slot of a database, taking one if it has none yet. None if all are taken by databases with the extension.
    pub fn database_or_new(&self, oid: pg_sys::Oid) -> Option<&DatabaseSlot> {
        self.database(oid).or_else(|| self.take(oid, |_| {}))
    }

    /// The slot of a database that may have got or lost the extension: its workers are to be started if it has it.
    pub fn expect_database(&self, oid: pg_sys::Oid) -> Option<&DatabaseSlot> {
        self.take(oid, |slot| {
            if slot.state.load(Ordering::Acquire) == STATE_ABSENT {
                slot.state.store(STATE_UNKNOWN, Ordering::Release);
            }
            slot.retry_at.store(0, Ordering::Release);
            slot.stopped.store(false, Ordering::Release);
        })
    }

    /// Makes the launcher look at a database that may have got or lost the extension.
    pub fn look_at_database(&self, oid: pg_sys::Oid) {
        if let Some(slot) = self.expect_database(oid) {
            slot.announce_events();
        }
        self.wake_launcher();
    }

    /// The slot of a database from which workers are to stay away until the calling process lets them return.
    pub fn hold_database(&self, oid: pg_sys::Oid) -> Option<&DatabaseSlot> {
        self.take(oid, |slot| slot.quiesced_by.store(my_pid(), Ordering::Release))
    }

    /// Finds or takes the slot of a database and prepares it, while no other process can take that slot.
    fn take(&self, oid: pg_sys::Oid, prepare: impl FnOnce(&DatabaseSlot)) -> Option<&DatabaseSlot> {
        // One at a time: a database with two slots would get two conductors.
        self.alone(|| {
            let slot = self.database(oid).or_else(|| {
                let slot = self
                    .usable()
                    .find(|slot| slot.is_free())
                    .or_else(|| self.usable().find(|slot| self.empty(slot)))?;
                slot.database.store(oid.to_u32(), Ordering::Release);
                Some(slot)
            })?;
            prepare(slot);
            Some(slot)
        })
    }

    /// The slots in use. Tests make them scarce.
    fn usable(&self) -> impl Iterator<Item = &DatabaseSlot> {
        let most = if skips("slots") { FEW } else { DATABASES };
        self.databases.iter().take(most)
    }

    /// Could a database that has no slot get one now?
    pub fn has_room(&self) -> bool {
        self.usable().any(|slot| slot.is_free() || self.is_reusable(slot))
    }

    /// Is this the slot of a database that was found to be without the extension, and which no process uses?
    fn is_reusable(&self, slot: &DatabaseSlot) -> bool {
        let database = pg_sys::Oid::from(slot.database.load(Ordering::Acquire));
        slot.state.load(Ordering::Acquire) == STATE_ABSENT
            && slot.quiesced_by.load(Ordering::Acquire) == 0
            && !self.is_staffed(slot, database)
    }

    /// Does a process work for the database of this slot?
    fn is_staffed(&self, slot: &DatabaseSlot, database: pg_sys::Oid) -> bool {
        slot.conductor_pid.load(Ordering::Acquire) != 0
            || slot.courier_pid.load(Ordering::Acquire) != 0
            || self.executors_of(database).next().is_some()
    }

    /// Takes a slot away from a database that was found to be without the extension. A transaction that has created the
    /// extension there and not committed yet may draw ids with it: then it stays.
    fn empty(&self, slot: &DatabaseSlot) -> bool {
        self.is_reusable(slot) && slot.event_ids.while_unused(|| slot.free()).is_some()
    }

    /// Frees the slot of a database that is gone, unless a process still works for it.
    pub fn forget(&self, slot: &DatabaseSlot) {
        self.alone(|| {
            let database = pg_sys::Oid::from(slot.database.load(Ordering::Acquire));
            if !self.is_staffed(slot, database) {
                slot.free();
            }
        });
    }

    /// Runs `work`, which raises nothing, while no other process gives or takes a slot.
    fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: a lock of ours; nothing in between can fail.
        unsafe { pg_sys::LWLockAcquire(self.taking.get(), pg_sys::LWLockMode::LW_EXCLUSIVE) };
        let done = work();
        // SAFETY: pairs with the above.
        unsafe { pg_sys::LWLockRelease(self.taking.get()) };
        done
    }

    pub fn executors_of(&self, database: pg_sys::Oid) -> impl Iterator<Item = &ExecutorSlot> {
        self.executors.iter().filter(move |slot| slot.database.load(Ordering::Acquire) == database.to_u32())
    }

    /// The slot of the calling process, if it is an executor.
    pub fn my_executor(&self) -> Option<&ExecutorSlot> {
        let me = my_pid();
        self.executors.iter().find(|slot| slot.pid.load(Ordering::Acquire) == me)
    }

    /// Dispatches that executors of this database other than the calling process try alone.
    pub fn tried_by_others(&self, database: pg_sys::Oid) -> Vec<i64> {
        let me = my_pid();
        self.executors_of(database)
            .filter(|slot| slot.pid.load(Ordering::Acquire) != me)
            .map(|slot| slot.trying.load(Ordering::Acquire))
            .filter(|id| *id != 0)
            .collect()
    }

    /// Takes a free executor slot; the process that is started for it fills in the rest.
    pub fn reserve_executor(&self, database: pg_sys::Oid, owner: pg_sys::Oid, now: i64) -> Option<usize> {
        self.executors.iter().position(|slot| {
            let free =
                slot.database.compare_exchange(0, database.to_u32(), Ordering::AcqRel, Ordering::Acquire).is_ok();
            if free {
                slot.owner.store(owner.to_u32(), Ordering::Release);
                slot.registered_at.store(now, Ordering::Release);
                slot.asked_at.store(0, Ordering::Release);
                slot.has_begun.store(false, Ordering::Release);
                slot.stop.store(false, Ordering::Release);
            }
            free
        })
    }
}

impl DatabaseSlot {
    pub fn become_conductor(&self, now: i64) {
        self.conductor.store(my_proc_number(), Ordering::Release);
        self.conductor_pid.store(my_pid(), Ordering::Release);
        self.started_at.store(now, Ordering::Release);
        self.state.store(STATE_PRESENT, Ordering::Release);
        self.failures.store(0, Ordering::Release);
    }

    pub fn leave_conductor(&self, state: u32) {
        self.conductor.store(0, Ordering::Release);
        self.conductor_pid.store(0, Ordering::Release);
        self.state.store(state, Ordering::Release);
    }

    pub fn wake_conductor(&self) {
        wake(self.conductor.load(Ordering::Acquire));
    }

    /// A transaction with events has committed: the conductor should look.
    pub fn announce_events(&self) {
        // Told once is enough: the conductor takes the word back before it looks.
        if !self.events_pending.swap(true, Ordering::AcqRel) {
            self.wake_conductor();
        }
    }

    /// A process other than the conductor has queued dispatches for executors.
    pub fn announce_work(&self) {
        self.work_queued.store(true, Ordering::Release);
        self.wake_conductor();
    }

    /// There are messages to deliver.
    pub fn announce_outbox(&self) {
        self.outbox_filled.store(true, Ordering::Release);
        match self.courier.load(Ordering::Acquire) {
            0 => self.wake_conductor(),
            // If the courier exits now, the conductor, which is woken by that, still sees `outbox_filled` and starts
            // another.
            courier => wake(courier),
        }
    }

    /// False if there is a courier already.
    pub fn become_courier(&self, now: i64) -> bool {
        if self.courier_pid.compare_exchange(0, my_pid(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        for counter in [&self.courier_in_flight, &self.courier_batches, &self.courier_sent, &self.courier_failed] {
            counter.store(0, Ordering::Release);
        }
        self.courier_started_at.store(now, Ordering::Release);
        self.courier.store(my_proc_number(), Ordering::Release);
        true
    }

    pub fn leave_courier(&self) {
        self.courier.store(0, Ordering::Release);
        self.courier_in_flight.store(0, Ordering::Release);
        self.courier_pid.store(0, Ordering::Release);
    }

    pub fn stop_courier(&self) {
        self.courier_stop.store(true, Ordering::Release);
        self.wake_courier();
    }

    pub fn wake_courier(&self) {
        wake(self.courier.load(Ordering::Acquire));
    }

    /// A timer is due at this time.
    pub fn announce_timer(&self, due_at: i64) {
        // 0 means none.
        let due_at = if due_at == 0 { -1 } else { due_at };
        let earlier = |known: i64| (known == 0 || due_at < known).then_some(due_at);
        // Sequentially consistent with the stores of `plan_timer`: either we see the new plan, or it sees our hint.
        let _ = self.timer_hint.fetch_update(Ordering::SeqCst, Ordering::SeqCst, earlier);
        let planned = self.next_timer.load(Ordering::SeqCst);
        if planned == 0 || due_at < planned {
            self.wake_conductor();
        }
    }

    /// The conductor is going to look at the timers then. False if a hint has come that it has not seen yet.
    pub fn plan_timer(&self, at: i64) -> bool {
        self.next_timer.store(at, Ordering::SeqCst);
        self.timer_hint.load(Ordering::SeqCst) == 0
    }

    pub fn is_quiesced(&self) -> bool {
        self.quiesced_by.load(Ordering::Acquire) != 0
    }

    fn is_free(&self) -> bool {
        self.database.load(Ordering::Acquire) == 0
    }

    /// Is this still the slot of the database?
    pub fn is_of(&self, database: pg_sys::Oid) -> bool {
        self.database.load(Ordering::Acquire) == database.to_u32()
    }

    /// Marks the slot as that of a database without the extension; another database may take it.
    pub fn leave_absent(&self) {
        // The counter is cleared before the state is set, so that no process finds the old ids in a slot marked absent.
        // A later CREATE EXTENSION starts a new sequence.
        self.event_ids.forget();
        self.leave_conductor(STATE_ABSENT);
    }

    fn free(&self) {
        self.leave_conductor(STATE_UNKNOWN);
        self.retry_at.store(0, Ordering::Release);
        self.quiesced_by.store(0, Ordering::Release);
        self.stopped.store(false, Ordering::Release);
        self.out_of_workers.store(false, Ordering::Release);
        self.failures.store(0, Ordering::Release);
        self.careful_below.store(0, Ordering::Release);
        self.timer_hint.store(0, Ordering::Release);
        self.next_timer.store(0, Ordering::Release);
        self.rescued.store(0, Ordering::Release);
        self.failing_chores.store(0, Ordering::Release);
        self.held_up_by.store(0, Ordering::Release);
        self.held_up_since.store(0, Ordering::Release);
        self.outbox_filled.store(false, Ordering::Release);
        self.courier_stop.store(false, Ordering::Release);
        self.courier_starved.store(false, Ordering::Release);
        self.leave_courier();
        for counter in [&self.routed_events, &self.routed_dispatches, &self.turns, &self.errors] {
            counter.store(0, Ordering::Release);
        }
        self.event_ids.forget();
        self.database.store(0, Ordering::Release);
    }
}

/// Moves whenever a transaction completes anywhere in the cluster; reading it costs no query.
pub fn completed_transactions() -> u64 {
    // SAFETY: an aligned 64-bit read of shared memory; a slightly old value only delays a look by a second.
    unsafe { std::ptr::read_volatile(&raw const (*pg_sys::ShmemVariableCache).xactCompletionCount) }
}

/// Has the whole database default_transaction_read_only on? Then no worker writes. The server's own setting is the one
/// that the launcher has read.
pub fn frozen() -> Option<read_only::Level> {
    read_only::frozen(|| shared().read_only.load(Ordering::Acquire))
}
