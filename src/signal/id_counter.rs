//! The shared memory behind the ids of events: how far they are drawn in each database, and which processes stand by.
//! The rules of drawing and standing by are in src/event_log/ids.rs.
#![allow(unsafe_code)]
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use pgrx::pg_sys;

use crate::pg::process::my_database;
use crate::pg::raw::nextval_internal;

/// Ids in a block: the increment of the sequence. See sql/schema/log.sql.
pub const BLOCK: i64 = 128;

/// How far the ids of a database are drawn. Zeroed memory means that it is not known.
#[repr(C)]
pub struct Counter {
    /// The sequence that it belongs to: when the extension is created anew, its successor begins anew.
    sequence: AtomicU64,
    /// The next id, 0 if that is not known. It is the first of a block if the block before is used up.
    next: AtomicI64,
    /// Held by the process that fetches a block.
    lock: UnsafeCell<pg_sys::LWLock>,
}

// SAFETY: the lock is used through Postgres' own functions only.
unsafe impl Sync for Counter {}

impl Counter {
    /// Prepares the lock, once for the life of the shared memory.
    ///
    /// # Safety
    /// No other process uses the counter yet.
    pub unsafe fn prepare(&self, tranche: i32) {
        // SAFETY: as demanded of the caller.
        unsafe { pg_sys::LWLockInitialize(self.lock.get(), tranche) };
    }

    /// Forgets the sequence and the next id, when the extension is gone or the slot is for another database.
    pub fn forget(&self) {
        self.sequence.store(0, Ordering::SeqCst);
        self.next.store(0, Ordering::SeqCst);
    }

    /// Runs `work` if no sequence uses the counter, and lets none begin to meanwhile. None if one does.
    pub fn while_unused<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        // SAFETY: a lock of ours; `work` raises nothing.
        unsafe { pg_sys::LWLockAcquire(self.lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE) };
        let done = (self.sequence.load(Ordering::SeqCst) == 0).then(work);
        // SAFETY: pairs with the above.
        unsafe { pg_sys::LWLockRelease(self.lock.get()) };
        done
    }

    /// The next id of this sequence; None if the counter belongs to no sequence or to another one. The sequence's
    /// number is read before and after the id, because the slot may be given to another database in between.
    pub fn known_next(&self, sequence: &Sequence) -> Option<i64> {
        let is_its_own = || self.sequence.load(Ordering::SeqCst) == sequence.number;
        is_its_own().then(|| self.next.load(Ordering::SeqCst)).filter(|next| *next > 0 && is_its_own())
    }

    /// Draws ids that follow each other, at least one and at most `most`: the first, and how many. None if that must be
    /// tried again, perhaps at another place: another process was quicker.
    pub fn draw(&self, sequence: &Sequence, most: i64, is_ours: impl Fn() -> bool) -> Option<(i64, i64)> {
        let known = self.known_next(sequence);
        let Some(next) = known.filter(|next| !is_used_up(*next)) else {
            return self.draw_from_new_block(sequence, known, most, is_ours);
        };
        let count = most.min(left_in_block(next));
        let drawn = self.next.compare_exchange(next, next + count, Ordering::SeqCst, Ordering::SeqCst);
        drawn.is_ok().then_some((next, count))
    }

    /// None if another process has fetched a block meanwhile, or the place was given to another database.
    fn draw_from_new_block(
        &self,
        sequence: &Sequence,
        seen: Option<i64>,
        most: i64,
        is_ours: impl Fn() -> bool,
    ) -> Option<(i64, i64)> {
        // SAFETY: a lock of ours and a sequence of ours; on an error, the rollback releases the lock. The sequence is
        // locked first: a wait for it while holding the LWLock could not be interrupted.
        unsafe {
            let opened = pg_sys::relation_open(sequence.relation, pg_sys::RowExclusiveLock as i32);
            pg_sys::relation_close(opened, pg_sys::NoLock as i32);
            pg_sys::LWLockAcquire(self.lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE);
            let drawn = (is_ours() && self.known_next(sequence) == seen).then(|| {
                let (first, count) = (nextval_internal(sequence.relation, false), most.min(BLOCK));
                // `next` before `sequence`: a reader that sees the new sequence must not see the old sequence's next
                // id.
                self.next.store(first + count, Ordering::SeqCst);
                self.sequence.store(sequence.number, Ordering::SeqCst);
                (first, count)
            });
            pg_sys::LWLockRelease(self.lock.get());
            drawn
        }
    }
}

fn is_used_up(next: i64) -> bool {
    left_in_block(next) == BLOCK
}

/// Blocks begin at 1.
fn left_in_block(next: i64) -> i64 {
    BLOCK - (next - 1).rem_euclid(BLOCK)
}

/// The sequence from which blocks of ids are fetched.
pub struct Sequence {
    pub relation: pg_sys::Oid,
    /// Tells the sequence from those of other databases, which may have the same oid.
    number: u64,
}

impl Sequence {
    /// The sequence with this oid in the database of this process.
    pub fn new(relation: pg_sys::Oid) -> Self {
        Sequence { relation, number: u64::from(my_database().to_u32()) << 32 | u64::from(relation.to_u32()) }
    }
}

/// The mark of a process whose transaction stands by. Zeroed memory means that it does not.
#[repr(C)]
pub struct StandBy {
    pub database: AtomicU32,
    /// The events of its transaction that cannot be found by it have at least this id; 0 if there are none.
    pub from: AtomicI64,
}

/// Processes beyond that do without.
pub const PLACES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::{BLOCK, is_used_up, left_in_block};

    #[test]
    fn blocks_begin_at_one() {
        assert_eq!([1, 2, BLOCK, BLOCK + 1].map(left_in_block), [BLOCK, BLOCK - 1, 1, BLOCK]);
        assert!(is_used_up(1) && is_used_up(BLOCK + 1) && !is_used_up(BLOCK));
    }
}
