//! The ids of events. They rise in the order in which they are drawn, whoever draws them: promise G1 rests on it.
//!
//! A draw from a sequence costs as much as an index entry: a lock, an open relation, a page that all writers want. So the
//! sequence gives out blocks, and the ids of a block are counted in shared memory. What a crash takes with it is the rest
//! of a block, for the sequence's own record of the block is in the WAL before anything that was written with an id of it.
//!
//! A transaction that ends with the statement that changed one row stands by while it has drawn an id: it says in shared
//! memory from where on its events lie, until it has ended. The router begins to read there, so that it finds the event
//! by its id alone, and the log needs no second index entry for it. Other events are also found by their transaction.
#![allow(unsafe_code)]
use std::cell::{Cell, RefCell, UnsafeCell};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use pgrx::pg_sys;

use crate::failpoint::skips;
use crate::pg::append::last_drawn;
use crate::pg::names;
use crate::pg::raw::nextval_internal;
use crate::shmem::{my_database, my_place, shared};

/// Ids in a block: the increment of the sequence. See sql/schema/log.sql.
const BLOCK: i64 = 128;
const NAME: &str = "event_id_seq";

/// How far the ids of a database are drawn. Zeroed memory means that it is not known.
#[repr(C)]
pub struct Counter {
    /// The sequence that it belongs to: when the extension is created anew, its successor begins anew.
    sequence: AtomicU64,
    /// The next id, 0 if that is not known. It is the first of a block if the block before is used up.
    next: AtomicI64,
    /// Held by whoever fetches a block.
    lock: UnsafeCell<pg_sys::LWLock>,
}

// SAFETY: the lock is used through Postgres' own functions only.
unsafe impl Sync for Counter {}

impl Counter {
    /// Prepares the lock, once for the life of the shared memory.
    ///
    /// # Safety
    /// Nobody else uses the counter yet.
    pub unsafe fn prepare(&self, tranche: i32) {
        // SAFETY: as demanded of the caller.
        unsafe { pg_sys::LWLockInitialize(self.lock.get(), tranche) };
    }

    /// Forgets what it knows, when the extension is gone or its place is for another database.
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

    /// The next id of this sequence; None if the counter belongs to no sequence or to another one. The sequence's number is
    /// read before and after the id, because the slot may be given to another database in between.
    fn known_next(&self, sequence: &Sequence) -> Option<i64> {
        let is_its_own = || self.sequence.load(Ordering::SeqCst) == sequence.number;
        is_its_own().then(|| self.next.load(Ordering::SeqCst)).filter(|next| *next > 0 && is_its_own())
    }

    /// Draws ids that follow each other, at least one and at most `most`: the first, and how many. None if that must be
    /// tried again, perhaps at another place: another process was quicker.
    fn draw(&self, sequence: &Sequence, most: i64, is_ours: impl Fn() -> bool) -> Option<(i64, i64)> {
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
        // SAFETY: a lock of ours and a sequence of ours; if it fails, the rollback lets go of the lock. The sequence is
        // locked before: waiting for it with the other lock in hand could not be broken off.
        unsafe {
            let opened = pg_sys::relation_open(sequence.relation, pg_sys::RowExclusiveLock as i32);
            pg_sys::relation_close(opened, pg_sys::NoLock as i32);
            pg_sys::LWLockAcquire(self.lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE);
            let drawn = (is_ours() && self.known_next(sequence) == seen).then(|| {
                let (first, count) = (nextval_internal(sequence.relation, false), most.min(BLOCK));
                // In this order: who finds the sequence's number finds an id of it, or none.
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

/// The sequence of this database.
struct Sequence {
    relation: pg_sys::Oid,
    /// Tells it from those of other databases, which may have the same oid.
    number: u64,
}

impl Sequence {
    /// None if it is gone: the extension is being dropped.
    fn find() -> Option<Self> {
        let relation = names::internal_relation(NAME)?;
        Some(Sequence { relation, number: u64::from(my_database().to_u32()) << 32 | u64::from(relation.to_u32()) })
    }
}

/// Draws an id for each of so many events, and hands it over with its place.
pub fn draw(count: usize, mut take: impl FnMut(usize, i64)) {
    let Some(sequence) = Sequence::find() else { return };
    let mut place = 0;
    while place < count {
        let most = (count - place) as i64;
        let drawn = match shared().database_or_new(my_database()) {
            Some(slot) => slot.event_ids.draw(&sequence, most, || slot.is_of(my_database())),
            None => Some(draw_alone(&sequence, most)),
        };
        let Some((first, drawn)) = drawn else { continue };
        for id in first..first + drawn {
            take(place, id);
            place += 1;
        }
    }
}

/// For a database that finds no place in shared memory: what is left of the block is lost.
fn draw_alone(sequence: &Sequence, most: i64) -> (i64, i64) {
    loop {
        // SAFETY: a sequence of ours.
        let first = unsafe { nextval_internal(sequence.relation, false) };
        // Had it found a place meanwhile, others could draw lower ids than these from now on.
        if shared().database(my_database()).is_none() {
            return (first, most.min(BLOCK));
        }
    }
}

/// What a process says while it stands by. Zeroed memory means that it does not.
#[repr(C)]
pub struct StandBy {
    database: AtomicU32,
    /// The events of its transaction that cannot be found by it have at least this id; 0 if there are none.
    from: AtomicI64,
}

/// Processes beyond that do without.
pub const PLACES: usize = 1024;

thread_local! {
    static STANDS_BY: Cell<bool> = const { Cell::new(false) };
    /// The ids that this transaction has drawn standing by.
    static OWN: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

/// Stands by until the transaction has ended. False if that is not possible: then the events must be found otherwise.
/// Comes before the draw.
pub fn stand_by() -> bool {
    if STANDS_BY.get() {
        return true;
    }
    let Some(place) = shared().standing_by.get(my_place()) else { return false };
    let Some(next) = next() else { return false };
    place.database.store(my_database().to_u32(), Ordering::SeqCst);
    place.from.store(next, Ordering::SeqCst);
    STANDS_BY.set(true);
    true
}

/// The transaction has ended: whoever takes a snapshot from now on sees that. Raises nothing.
pub fn stand_down() {
    if STANDS_BY.replace(false)
        && let Some(place) = shared().standing_by.get(my_place())
    {
        place.from.store(0, Ordering::SeqCst);
        OWN.with(|own| own.borrow_mut().clear());
    }
}

/// Remembers an id that was drawn standing by.
pub fn note_own(id: i64) {
    OWN.with(|own| own.borrow_mut().push(id));
}

/// The events of this transaction that cannot be found by it.
pub fn own() -> Vec<i64> {
    OWN.with(|own| own.borrow().clone())
}

/// Where those lie that stand by.
fn standing_by() -> Option<i64> {
    if skips("stand_by") {
        return None;
    }
    let mine = my_database().to_u32();
    shared()
        .standing_by
        .iter()
        .map(|place| (place.from.load(Ordering::SeqCst), place.database.load(Ordering::SeqCst)))
        .filter(|(from, database)| *from != 0 && *database == mine)
        .map(|(from, _)| from)
        .min()
}

/// Every id that is drawn from now on is above this one, and so is every event that cannot be found by its transaction, if
/// that transaction has not ended in a snapshot that is taken from now on.
pub fn floor() -> Option<i64> {
    // SAFETY: reads a process global.
    if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as i32 {
        // The snapshot was taken long ago.
        return Some(0);
    }
    // Without a counter, the next one may be the first of the block that the sequence gave out last.
    let next = next().or_else(|| last_drawn(NAME))?;
    let drawn = (next - 1).max(0);
    // In this order: who stands by only now draws an id above.
    Some(standing_by().map_or(drawn, |from| drawn.min(from - 1)))
}

/// The next id of this database, if that is known.
fn next() -> Option<i64> {
    let sequence = Sequence::find()?;
    shared().database(my_database())?.event_ids.known_next(&sequence)
}

/// Every id that this transaction has drawn is at most this one, every one that it will draw is above.
pub fn own_ceiling() -> Option<i64> {
    next().map(|next| next - 1).or_else(ceiling)
}

/// Every id that has been drawn by now is at most this one. Only the sequence knows that for sure: it is the same for all.
pub fn ceiling() -> Option<i64> {
    last_drawn(NAME).map(|block| if block == 0 { 0 } else { block + BLOCK - 1 })
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, is_used_up, left_in_block};

    #[test]
    fn blocks_begin_at_one() {
        assert_eq!([1, 2, BLOCK, BLOCK + 1].map(left_in_block), [BLOCK, BLOCK - 1, 1, BLOCK]);
        assert!(is_used_up(1) && is_used_up(BLOCK + 1) && !is_used_up(BLOCK));
    }
}
