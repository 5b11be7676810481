//! Worker processes where `max_worker_processes` is used up: an executor of any database makes room for an asker (an
//! owner without an executor, a conductor or a courier), and the process that becomes free is kept for that asker.
//! `automation_core::places` decides.
use std::sync::atomic::Ordering;

use automation_core::places::{self, Claim, Place};

use crate::pg::process;
use crate::signal::executor_slot::ExecutorSlot;
use crate::signal::shmem::shared;

/// How soon, in microseconds, to try again for an asker that has no process at all.
pub const AGAIN: i64 = 50_000;

fn claim() -> Option<Claim> {
    let by = shared().process_claimed_by.load(Ordering::Acquire);
    (by != 0).then(|| Claim { by, at: shared().process_claimed_at.load(Ordering::Acquire) })
}

/// Does an asker wait for a process somewhere?
pub fn is_claimed(now: i64) -> bool {
    // No asker has the number 0.
    !places::may_take(claim(), 0, now)
}

/// May this asker start a process now? Not while the next free process is kept for another asker.
pub fn may_start(asker: u64, now: i64) -> bool {
    places::may_take(claim(), asker, now)
}

/// The asker has got its process.
pub fn started(asker: u64) {
    // Another asker may have taken over the claim meanwhile.
    let _ = shared().process_claimed_by.compare_exchange(asker, 0, Ordering::AcqRel, Ordering::Acquire);
}

/// No process can be started for this asker, which has none. An executor that another owner has beyond its first and
/// that did not leave when asked is ended; its batch is rolled back and stays queued. If there is no such executor,
/// another is asked to leave: an idle one at once, a busy one after its batch.
pub fn make_room(asker: u64, now: i64) {
    if !may_start(asker, now) {
        return;
    }
    shared().process_claimed_at.store(now, Ordering::Release);
    shared().process_claimed_by.store(asker, Ordering::Release);
    let slots: Vec<&ExecutorSlot> =
        shared().executors.iter().filter(|slot| slot.database.load(Ordering::Acquire) != 0).collect();
    let places: Vec<Place> = slots.iter().map(|slot| slot.place()).collect();
    if let Some(index) = places::take_back(&places, asker, now) {
        process::terminate(slots[index].pid.load(Ordering::Acquire));
    } else if let Some(index) = places::make_room(&places, asker, now) {
        slots[index].ask_to_leave(now);
    }
    // A courier that only rests leaves, too.
    shared().databases.iter().for_each(|slot| slot.wake_courier());
}
