//! Events on their way into the log: rows that are formed and wait to be inserted, and the ids they get then.
#![allow(unsafe_code)]
use std::cell::Cell as ThreadCell;

use pgrx::pg_sys;

use super::ids;
use crate::pg::append::{Cell, Leaf, form, leaf};
use crate::pg::clock::Micros;
use crate::pg::insert::insert_tuples;
use crate::pg::raw::unguarded;

/// A row that was formed but not inserted yet.
struct Waiting {
    /// The subtransaction that made the row, or the one that has taken over from it: the row must be inserted there
    /// and nowhere deeper, so that a rollback undoes both.
    made_by: pg_sys::SubTransactionId,
    /// The command that made the change: rows are inserted in the order of commands.
    command: pg_sys::CommandId,
    relation: pg_sys::Oid,
    tuple: pg_sys::HeapTuple,
}

/// Rows on their way into our tables. Their tuples live in memory of their own, which is emptied with the transaction:
/// making it anew for each would cost as much as forming the tuple.
pub struct Pending {
    memory: pg_sys::MemoryContext,
    rows: Vec<Waiting>,
    bytes: usize,
    /// The partition that this transaction has locked already.
    locked: pg_sys::Oid,
}

/// When so many rows or bytes wait, those of the oldest command are inserted.
const ENOUGH_ROWS: usize = 500;
const ENOUGH_BYTES: usize = 1 << 20;
/// When so many wait, all are inserted: memory comes before the order of nested statements.
const MOST_BYTES: usize = 64 << 20;

impl Pending {
    pub const fn new() -> Self {
        Pending { memory: std::ptr::null_mut(), rows: Vec::new(), bytes: 0, locked: pg_sys::InvalidOid }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row of `table`. False if the table does not exist.
    pub fn add<const N: usize>(
        &mut self,
        table: &'static str,
        at: Micros,
        command: pg_sys::CommandId,
        row: [Cell; N],
    ) -> bool {
        let Some(leaf) = self.locked_leaf(table, at) else { return false };
        // SAFETY: the context is made once for the process and emptied with each transaction, see `forget`.
        unsafe {
            if self.memory.is_null() {
                self.memory = pg_sys::AllocSetContextCreateExtended(
                    pg_sys::TopMemoryContext,
                    c"automation_engine pending events".as_ptr(),
                    pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                    pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                    pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
                );
            }
            let previous = pg_sys::MemoryContextSwitchTo(self.memory);
            let tuple = form(leaf.descriptor, row);
            pg_sys::MemoryContextSwitchTo(previous);
            self.bytes += (*tuple).t_len as usize;
            let made_by = unguarded::GetCurrentSubTransactionId();
            self.rows.push(Waiting { made_by, command, relation: leaf.relation, tuple });
        }
        if self.bytes >= MOST_BYTES {
            self.insert(|_| true, false);
        } else if self.rows.len() >= ENOUGH_ROWS || self.bytes >= ENOUGH_BYTES {
            let oldest = self.rows.iter().map(|row| row.command).min().unwrap_or_default();
            // Not worth it while most of the waiting rows must go on waiting.
            if self.rows.iter().filter(|row| row.command == oldest).count() * 2 >= self.rows.len() {
                self.insert(|row| row.command == oldest, false);
            }
        }
        true
    }

    /// Inserts everything that waits of the current subtransaction.
    /// `ends` if the transaction ends with the statement under way.
    pub fn insert_all(&mut self, ends: bool) {
        self.insert(|_| true, ends);
    }

    /// The partition for rows of `at`, under the lock that inserting will need: from the first row on no session can
    /// drop it.
    fn locked_leaf(&mut self, table: &'static str, at: Micros) -> Option<Leaf> {
        loop {
            let leaf = leaf(table, at)?;
            if self.locked == leaf.relation {
                return Some(leaf);
            }
            // SAFETY: as table_open would lock it. Changes made to the partition while we waited for the lock are known
            // afterwards.
            unsafe { pg_sys::LockRelationOid(leaf.relation, pg_sys::RowExclusiveLock as i32) };
            self.locked = leaf.relation;
        }
    }

    /// Rows that an outer subtransaction has waiting are not inserted by an inner one, whose rollback would undo the
    /// insertion.
    fn insert(&mut self, wanted: impl Fn(&Waiting) -> bool, ends: bool) {
        // SAFETY: reads state of the current transaction.
        let current = unsafe { unguarded::GetCurrentSubTransactionId() };
        let mut mine = std::mem::take(&mut self.rows);
        if !mine.iter().all(|row| row.made_by == current && wanted(row)) {
            (mine, self.rows) = mine.into_iter().partition(|row| row.made_by == current && wanted(row));
        }
        // Stable: within a command the order stays that in which the rows came.
        if mine.len() > 1 {
            mine.sort_by_key(|row| row.command);
        }
        draw_ids(&mine, ends);
        while let Some(relation) = mine.first().map(|row| row.relation) {
            let tuples: Vec<pg_sys::HeapTuple> =
                mine.iter().filter(|row| row.relation == relation).map(|row| row.tuple).collect();
            mine.retain(|row| row.relation != relation);
            // SAFETY: the tuples were formed with this relation's descriptor in this transaction.
            unsafe {
                insert_tuples(relation, &tuples, leads_group);
                if !self.rows.is_empty() {
                    tuples.into_iter().for_each(|tuple| pg_sys::heap_freetuple(tuple));
                }
            }
        }
        if self.rows.is_empty() {
            // its memory is good for the next ones
            self.rows = mine;
        }
        if self.rows.is_empty() && !self.memory.is_null() {
            // SAFETY: no tuple is left in it. Raises nothing.
            unsafe { unguarded::MemoryContextReset(self.memory) };
        }
        self.count();
    }

    /// A subtransaction was rolled back: the rows that it added are dropped.
    pub fn discard(&mut self, subtransaction: pg_sys::SubTransactionId) {
        self.rows.retain(|row| row.made_by != subtransaction);
        self.count();
        // The lock may have gone with it.
        self.locked = pg_sys::InvalidOid;
    }

    /// A subtransaction has ended well: the rows that it added now belong to the one around it.
    pub fn hand_over(&mut self, subtransaction: pg_sys::SubTransactionId, parent: pg_sys::SubTransactionId) {
        for row in self.rows.iter_mut().filter(|row| row.made_by == subtransaction) {
            row.made_by = parent;
        }
    }

    fn count(&mut self) {
        // SAFETY: the tuples that wait are alive.
        self.bytes = self.rows.iter().map(|row| unsafe { (*row.tuple).t_len } as usize).sum();
    }

    /// The transaction is over, and its waiting rows are dropped.
    pub fn forget(&mut self) {
        self.rows.clear();
        if !self.memory.is_null() {
            // SAFETY: a context of ours; no pointer to a tuple in it is left. Raises nothing.
            unsafe { unguarded::MemoryContextReset(self.memory) };
        }
        self.bytes = 0;
        self.locked = pg_sys::InvalidOid;
    }
}

/// Where `id` and `group_span` of an event stand behind the tuple's header: the columns up to there are not null and
/// of fixed width.
const ID_AT: usize = 0;
const GROUP_SPAN_AT: usize = 24;

/// A fixed-width field of an event's tuple.
unsafe fn field<T>(tuple: pg_sys::HeapTuple, at: usize) -> *mut T {
    // SAFETY: t_hoff is aligned for every type, and so is the place behind it.
    unsafe {
        let header = (*tuple).t_data;
        header.cast::<u8>().add((*header).t_hoff as usize + at).cast()
    }
}

/// Draws the ids of events that are inserted as a group, and notes in the first how far the group reaches: the index on
/// (xid, id) holds that one only. A single event of a transaction that is about to end need not be in that index. Drawn
/// as late as this so that ids rise with the commands that made the changes, and while the rows are still locked.
fn draw_ids(rows: &[Waiting], ends: bool) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    let stands_by = ends && rows.len() == 1 && ids::stand_by();
    // SAFETY: tuples formed by us.
    unsafe {
        ids::draw(rows.len(), |place, id| *field::<i64>(rows[place].tuple, ID_AT) = id);
        let (from, to) = (*field::<i64>(first.tuple, ID_AT), *field::<i64>(last.tuple, ID_AT));
        LAST_ID.set(to);
        if stands_by {
            ids::note_own(to);
        } else {
            *field::<i32>(first.tuple, GROUP_SPAN_AT) = i32::try_from(to - from + 1).unwrap_or(i32::MAX);
        }
    }
}

/// Is this event the first of its group?
fn leads_group(tuple: pg_sys::HeapTuple) -> bool {
    // SAFETY: the tuple of an event.
    unsafe { *field::<i32>(tuple, GROUP_SPAN_AT) > 0 }
}

thread_local!(static LAST_ID: ThreadCell<i64> = const { ThreadCell::new(0) });

/// The id that this process has drawn last for an event.
pub fn last_id() -> i64 {
    LAST_ID.get()
}
