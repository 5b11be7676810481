//! Locks on things that have no row, held until the transaction ends. Executors do not wait for such a lock: a run that
//! cannot take it stays queued. Three callers wait: cancel_run() for another session that cancels the same run,
//! subscribe() for another session of the same role, and a router for another router that assigns places in a queue.
//! These locks are kept in the server's lock table next to the advisory locks, under a number that no SQL function can
//! reach, so that no session can take one to hold the engine up.
use pgrx::pg_sys;

use super::failpoint::skips;

/// The sort of thing that is locked; each sort has a number of its own among the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Sort {
    /// A partition of a window.
    Window = 0xae01,
    /// A key by which equal events are found.
    Dedup = 0xae02,
    /// The count of an automation's executions.
    Executions = 0xae03,
    /// Runs of an automation with the same key.
    Key = 0xae04,
    /// An entity that one automation at a time works on.
    Entity = 0xae05,
    /// One of the places for runs that execute at the same time.
    Slot = 0xae06,
    /// A run that was ordered by hand and is being cancelled before it is queued.
    Run = 0xae07,
    /// The places of a queue, while dispatches are given theirs.
    Places = 0xae08,
    /// The count of a role's subscriptions. Only sessions that subscribe take it.
    Subscriptions = 0xae09,
}

fn tag_of(sort: Sort, key: i64) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: reads a process global.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: (key as u64 >> 32) as u32,
        locktag_field3: key as u32,
        locktag_field4: sort as u16,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

/// Takes the lock unless another session holds it.
pub fn try_take(sort: Sort, key: i64) -> bool {
    if skips("key_lock") {
        return true;
    }
    let tag = tag_of(sort, key);
    // SAFETY: inside a transaction; the lock table copies the tag.
    let taken = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, false, true) };
    taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Takes the lock, waiting for a session that has it.
pub fn wait_for(sort: Sort, key: i64) {
    // SAFETY: inside a transaction; the lock table copies the tag.
    unsafe { pg_sys::LockAcquire(&tag_of(sort, key), pg_sys::ExclusiveLock as i32, false, false) };
}

/// A lock that is given back when this is dropped, not when the transaction ends.
pub struct Briefly(pg_sys::LOCKTAG);

/// Takes the lock for a moment, waiting for a session that has it.
pub fn wait_for_a_while(sort: Sort, key: i64) -> Option<Briefly> {
    if skips("places_lock") {
        return None;
    }
    wait_for(sort, key);
    Some(Briefly(tag_of(sort, key)))
}

impl Drop for Briefly {
    fn drop(&mut self) {
        // After an error the rollback gives it back.
        if !std::thread::panicking() {
            // SAFETY: taken by `wait_for_a_while` in the transaction under way.
            unsafe { pg_sys::LockRelease(&self.0, pg_sys::ExclusiveLock as i32, false) };
        }
    }
}

/// Does no other session have the lock at this moment?
pub fn is_free(sort: Sort, key: i64) -> bool {
    if skips("key_lock") {
        return true;
    }
    let (tag, mode) = (tag_of(sort, key), pg_sys::ShareLock as i32);
    // SAFETY: inside a transaction; the lock taken here is released at once.
    unsafe {
        let taken = pg_sys::LockAcquire(&tag, mode, false, true);
        taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL && pg_sys::LockRelease(&tag, mode, false)
    }
}

/// FNV-1a: the same in every process and version. A collision only makes two things wait for each other.
pub fn hash(parts: &[&str]) -> i64 {
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    for part in parts {
        for byte in part.bytes().chain(std::iter::once(0xff)) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    state as i64
}
