//! The ids of events. They rise in the order in which they are drawn, over all sessions: promise G1 rests on it.
//!
//! A draw from a sequence costs as much as an index entry: a lock, an open relation, a page that all writers want. So
//! the sequence gives out blocks, and the ids of a block are counted in shared memory. A crash loses the rest of a
//! block, and no more, for the sequence's own record of the block is in the WAL before anything that was written with
//! an id of it.
//!
//! A transaction that ends with the statement that changed one row stands by while it has drawn an id: it says in
//! shared memory from where on its events lie, until it has ended. The router begins to read there, so that it finds
//! the event by its id alone, and the log needs no second index entry for it. Other events are also found by their
//! transaction.
#![allow(unsafe_code)]
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use pgrx::pg_sys;

use crate::pg::append::last_drawn;
use crate::pg::failpoint::skips;
use crate::pg::names;
use crate::pg::process::my_database;
use crate::pg::raw::nextval_internal;
use crate::signal::id_counter::{BLOCK, Sequence};
use crate::signal::shmem::{my_place, shared};

const NAME: &str = "event_id_seq";

/// The sequence of this database. None if it is gone: the extension is being dropped.
fn sequence() -> Option<Sequence> {
    Some(Sequence::new(names::internal_relation(NAME)?))
}

/// Draws an id for each of so many events, and hands it over with its place.
pub fn draw(count: usize, mut take: impl FnMut(usize, i64)) {
    let Some(sequence) = sequence() else { return };
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

/// For a database that finds no place in shared memory: the rest of the block is lost.
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

/// The transaction has ended: every snapshot taken from now on sees that. Raises nothing.
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

/// The lowest id from which on the events of transactions that stand by in this database lie.
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

/// Every id that is drawn from now on is above this one, and so is every event that cannot be found by its transaction,
/// if that transaction has not ended in a snapshot that is taken from now on.
pub fn floor() -> Option<i64> {
    // SAFETY: reads a process global.
    if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as i32 {
        // The snapshot was taken long ago.
        return Some(0);
    }
    // Without a counter, the next one may be the first of the block that the sequence gave out last.
    let next = next().or_else(|| last_drawn(NAME))?;
    let drawn = (next - 1).max(0);
    // In this order: a transaction that begins to stand by only now draws an id above `drawn`.
    Some(standing_by().map_or(drawn, |from| drawn.min(from - 1)))
}

/// The next id of this database, if that is known.
fn next() -> Option<i64> {
    let sequence = sequence()?;
    shared().database(my_database())?.event_ids.known_next(&sequence)
}

/// Every id that this transaction has drawn is at most this one, every one that it will draw is above.
pub fn own_ceiling() -> Option<i64> {
    next().map(|next| next - 1).or_else(ceiling)
}

/// Every id that has been drawn by now is at most this one. Only the sequence knows that for sure: it is the same for
/// all.
pub fn ceiling() -> Option<i64> {
    last_drawn(NAME).map(|block| if block == 0 { 0 } else { block + BLOCK - 1 })
}
