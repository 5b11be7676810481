//! The slot of an executor in shared memory: its state as the other processes see it.
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use automation_core::places::{self, Place};

use super::running::Running;
use super::shmem::{my_pid, my_proc_number, shared, wake};

/// One executor process.
#[repr(C)]
pub struct ExecutorSlot {
    /// Oid of the database, 0 = slot free.
    pub database: AtomicU32,
    pub owner: AtomicU32,
    pub pid: AtomicI32,
    pub(super) proc_number: AtomicU32,
    /// 0 while idle, else when the current batch began.
    pub busy_since: AtomicI64,
    /// The executor has begun a batch since it was started.
    pub(super) has_begun: AtomicBool,
    pub stop: AtomicBool,
    /// When the pool asked this executor to leave, 0 if it did not, or its conductor is gone.
    pub asked_at: AtomicI64,
    /// The dispatch that this executor runs alone after its attempt was counted; other executors do not claim that
    /// dispatch. 0 = none.
    pub trying: AtomicI64,
    /// The highest dispatch claimed so far.
    pub claimed: AtomicI64,
    /// Every dispatch of the owner below this one is done, as long as claims_returned has this value.
    floor: AtomicI64,
    floor_while: AtomicU64,
    pub runs: AtomicI64,
    pub failed_runs: AtomicI64,
    pub batches: AtomicI64,
    pub started_at: AtomicI64,
    pub registered_at: AtomicI64,
    /// The run that it executes at this moment.
    pub running: Running,
}

impl ExecutorSlot {
    pub fn occupy(&self, now: i64) {
        self.proc_number.store(my_proc_number(), Ordering::Release);
        self.runs.store(0, Ordering::Release);
        self.failed_runs.store(0, Ordering::Release);
        self.batches.store(0, Ordering::Release);
        self.busy_since.store(0, Ordering::Release);
        self.started_at.store(now, Ordering::Release);
        self.pid.store(my_pid(), Ordering::Release);
    }

    pub fn release(&self) {
        self.pid.store(0, Ordering::Release);
        self.running.clear();
        self.proc_number.store(0, Ordering::Release);
        self.busy_since.store(0, Ordering::Release);
        self.trying.store(0, Ordering::Release);
        self.claimed.store(0, Ordering::Release);
        self.floor.store(0, Ordering::Release);
        self.owner.store(0, Ordering::Release);
        self.database.store(0, Ordering::Release);
    }

    pub fn wake(&self) {
        wake(self.proc_number.load(Ordering::Acquire));
    }

    /// A batch begins.
    pub fn begin_batch(&self, now: i64) {
        self.busy_since.store(now, Ordering::Release);
        self.has_begun.store(true, Ordering::Release);
    }

    /// Has the executor leave after its batch.
    pub fn ask_to_leave(&self, now: i64) {
        self.asked_at.store(now, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// The executor as the pool's decisions see it.
    pub fn place(&self) -> Place {
        Place {
            owner: places::asker(self.database.load(Ordering::Acquire), self.owner.load(Ordering::Acquire)),
            started_at: self.started_at.load(Ordering::Acquire),
            is_new: !self.has_begun.load(Ordering::Acquire),
            busy_since: Some(self.busy_since.load(Ordering::Acquire)).filter(|since| *since != 0),
            // An executor that was asked by a conductor that is gone has had its time to leave.
            asked_at: self.stop.load(Ordering::Acquire).then(|| self.asked_at.load(Ordering::Acquire)),
        }
    }

    /// Tells up to where the owner's queue is done, as long as claims_returned has a value.
    pub fn set_floor(&self, floor: i64, returned: u64) {
        // Between the two stores a reader sees a floor that is too low, never one that is too high.
        self.floor.store(0, Ordering::Release);
        self.floor_while.store(returned, Ordering::Release);
        self.floor.store(floor, Ordering::Release);
    }

    /// Up to where the owner's queue is done, 0 if that is not known.
    pub fn floor(&self) -> i64 {
        // In this order, so that a floor is never taken for one of a later time.
        let returned = self.floor_while.load(Ordering::Acquire);
        let floor = self.floor.load(Ordering::Acquire);
        if returned == shared().claims_returned.load(Ordering::Acquire) { floor } else { 0 }
    }
}
