//! Appending rows to our own time-partitioned tables without going through the executor.
//!
//! The capture trigger runs inside the user's statement, and a run's history is written by a process that has only
//! the owner's rights. Forming the tuple and inserting it ourselves costs about a third of an SPI INSERT and needs no
//! change of identity, because no statement of anybody's is run. Only for tables whose indexes are plain columns and
//! which have no triggers, generated columns or foreign keys.
use std::cell::RefCell;
use std::collections::HashMap;

use pgrx::pg_sys;

use super::clock::{self, Micros};
use super::names;

/// A column value ready for `heap_form_tuple`.
pub type Cell = Option<pg_sys::Datum>;

#[derive(Clone, Copy)]
struct Leaf {
    generation: u64,
    day: i64,
    relation: pg_sys::Oid,
}

thread_local! {
    static LEAVES: RefCell<HashMap<&'static str, Leaf>> = RefCell::new(HashMap::new());
}

/// Name of the partition of `table` for a day, counted from 2000-01-01 UTC.
pub fn partition_name(table: &str, day: i64) -> String {
    format!("{table}_d{day}")
}

/// The partition that rows of `at` belong to: the day's own, or the default one while there is none.
fn leaf(table: &'static str, at: Micros) -> Option<pg_sys::Oid> {
    let day = clock::day(at);
    let generation = names::catalog_generation();
    if let Some(leaf) = LEAVES.with(|leaves| leaves.borrow().get(table).copied())
        && leaf.day == day
        && leaf.generation == generation
    {
        return Some(leaf.relation);
    }
    let relation = names::internal_relation(&partition_name(table, day))
        .or_else(|| names::internal_relation(&format!("{table}_default")))?;
    let leaf = Leaf { generation: names::catalog_generation(), day, relation };
    LEAVES.with(|leaves| leaves.borrow_mut().insert(table, leaf));
    Some(relation)
}

/// Appends rows to the partition of `table` that `at` falls into. Returns false if the table does not exist.
pub fn append<const N: usize>(table: &'static str, at: Micros, rows: impl Iterator<Item = [Cell; N]>) -> bool {
    match leaf(table, at) {
        Some(relation) => {
            append_to(relation, rows);
            true
        }
        None => false,
    }
}

/// Appends rows to a plain table of ours.
pub fn append_plain<const N: usize>(table: &str, rows: impl Iterator<Item = [Cell; N]>) -> bool {
    match names::internal_relation(table) {
        Some(relation) => {
            append_to(relation, rows);
            true
        }
        None => false,
    }
}

fn append_to<const N: usize>(relation: pg_sys::Oid, rows: impl Iterator<Item = [Cell; N]>) {
    // SAFETY: the relation is one of ours, opened with the lock an INSERT takes and kept until commit; the tuples are
    // formed with its own descriptor.
    unsafe {
        let opened = pg_sys::table_open(relation, pg_sys::RowExclusiveLock as i32);
        let tuples: Vec<pg_sys::HeapTuple> = rows.map(|row| form((*opened).rd_att, row)).collect();
        insert_tuples(opened, &tuples);
        for tuple in tuples {
            pg_sys::heap_freetuple(tuple);
        }
        pg_sys::table_close(opened, pg_sys::NoLock as i32);
    }
}

unsafe fn form<const N: usize>(descriptor: pg_sys::TupleDesc, row: [Cell; N]) -> pg_sys::HeapTuple {
    let mut values = [pg_sys::Datum::from(0usize); N];
    let mut nulls = [true; N];
    for (i, cell) in row.into_iter().enumerate() {
        if let Some(datum) = cell {
            values[i] = datum;
            nulls[i] = false;
        }
    }
    // SAFETY: the arrays are as wide as the descriptor.
    unsafe {
        debug_assert_eq!((*descriptor).natts as usize, N);
        pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr())
    }
}

/// Below the size from which Postgres thinks about toasting a tuple (a quarter of a page).
const TOAST_FROM: u32 = 1900;

/// Most tuples handed to the heap at once.
const CHUNK: usize = 100;

/// Inserts tuples and their index entries. The catalog's own routines for this demand just what our tables give: a
/// plain heap, plain index columns. Several tuples share a page's lock and a WAL record.
unsafe fn insert_tuples(relation: pg_sys::Relation, tuples: &[pg_sys::HeapTuple]) {
    // SAFETY: an open relation of ours and tuples formed with its descriptor; slots are freed again.
    unsafe {
        let indexes = pg_sys::CatalogOpenIndexes(relation);
        // A tuple that must be toasted is inserted as a copy, and the grouped insert would index the original, which has
        // no place in the heap: those go one by one.
        let (single, grouped): (Vec<pg_sys::HeapTuple>, Vec<pg_sys::HeapTuple>) =
            tuples.iter().partition(|tuple| tuples.len() == 1 || (***tuple).t_len > TOAST_FROM);
        for tuple in single {
            pg_sys::CatalogTupleInsertWithInfo(relation, tuple, indexes);
        }
        match &grouped[..] {
            [] => {}
            many => {
                let width = many.len().min(CHUNK);
                let mut slots: Vec<*mut pg_sys::TupleTableSlot> = (0..width)
                    .map(|_| pg_sys::MakeSingleTupleTableSlot((*relation).rd_att, &raw const pg_sys::TTSOpsHeapTuple))
                    .collect();
                for chunk in many.chunks(CHUNK) {
                    for (tuple, slot) in chunk.iter().zip(&slots) {
                        pg_sys::ExecStoreHeapTuple(*tuple, *slot, false);
                    }
                    let count = chunk.len() as i32;
                    pg_sys::CatalogTuplesMultiInsertWithInfo(relation, slots.as_mut_ptr(), count, indexes);
                }
                for slot in slots {
                    pg_sys::ExecDropSingleTupleTableSlot(slot);
                }
            }
        }
        pg_sys::CatalogCloseIndexes(indexes);
    }
}

/// A row that was formed but not inserted yet.
struct Waiting {
    /// The subtransaction that made it, or the one that has taken over from it: it must be inserted there and nowhere
    /// deeper, so that they share their fate.
    made_by: pg_sys::SubTransactionId,
    /// The command that made the change: rows are inserted in the order of commands.
    command: pg_sys::CommandId,
    relation: pg_sys::Oid,
    tuple: pg_sys::HeapTuple,
}

/// Rows on their way into our tables. Their tuples live in memory of their own that goes with the transaction.
pub struct Pending {
    memory: pg_sys::MemoryContext,
    rows: Vec<Waiting>,
    bytes: usize,
}

/// When so many rows or bytes wait, those of the oldest command are inserted.
const ENOUGH_ROWS: usize = 500;
const ENOUGH_BYTES: usize = 1 << 20;
/// When so many wait, all are inserted: memory comes before the order of nested statements.
const MOST_BYTES: usize = 64 << 20;

impl Pending {
    pub const fn new() -> Self {
        Pending { memory: std::ptr::null_mut(), rows: Vec::new(), bytes: 0 }
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
        let Some(relation) = leaf(table, at) else { return false };
        // SAFETY: the context is made in the transaction's own memory and forgotten with it, see `forget`.
        unsafe {
            if self.memory.is_null() {
                self.memory = pg_sys::AllocSetContextCreateExtended(
                    pg_sys::TopTransactionContext,
                    c"automation_engine pending events".as_ptr(),
                    pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                    pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                    pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
                );
            }
            let opened = pg_sys::table_open(relation, pg_sys::RowExclusiveLock as i32);
            let previous = pg_sys::MemoryContextSwitchTo(self.memory);
            let tuple = form((*opened).rd_att, row);
            pg_sys::MemoryContextSwitchTo(previous);
            pg_sys::table_close(opened, pg_sys::NoLock as i32);
            self.bytes += (*tuple).t_len as usize;
            self.rows.push(Waiting { made_by: pg_sys::GetCurrentSubTransactionId(), command, relation, tuple });
        }
        if self.bytes >= MOST_BYTES {
            self.insert(|_| true);
        } else if self.rows.len() >= ENOUGH_ROWS || self.bytes >= ENOUGH_BYTES {
            let oldest = self.rows.iter().map(|row| row.command).min().unwrap_or_default();
            // Not worth it while most of what waits must go on waiting.
            if self.rows.iter().filter(|row| row.command == oldest).count() * 2 >= self.rows.len() {
                self.insert(|row| row.command == oldest);
            }
        }
        true
    }

    /// Inserts everything that waits of the current subtransaction.
    pub fn insert_all(&mut self) {
        self.insert(|_| true);
    }

    /// What an outer subtransaction has waiting is not inserted by an inner one, whose rollback would take it along.
    fn insert(&mut self, wanted: impl Fn(&Waiting) -> bool) {
        // SAFETY: reads state of the current transaction.
        let current = unsafe { pg_sys::GetCurrentSubTransactionId() };
        let (mut mine, others): (Vec<Waiting>, Vec<Waiting>) =
            std::mem::take(&mut self.rows).into_iter().partition(|row| row.made_by == current && wanted(row));
        self.rows = others;
        // Stable: within a command the order stays that in which the rows came.
        mine.sort_by_key(|row| row.command);
        for row in &mine {
            set_id(row.tuple);
        }
        while let Some(relation) = mine.first().map(|row| row.relation) {
            let (same, rest): (Vec<Waiting>, Vec<Waiting>) = mine.into_iter().partition(|row| row.relation == relation);
            mine = rest;
            let tuples: Vec<pg_sys::HeapTuple> = same.iter().map(|row| row.tuple).collect();
            // SAFETY: the tuples were formed with this relation's descriptor in this transaction.
            unsafe {
                let opened = pg_sys::table_open(relation, pg_sys::RowExclusiveLock as i32);
                insert_tuples(opened, &tuples);
                pg_sys::table_close(opened, pg_sys::NoLock as i32);
                if !self.rows.is_empty() {
                    tuples.into_iter().for_each(|tuple| pg_sys::heap_freetuple(tuple));
                }
            }
        }
        if self.rows.is_empty() && !self.memory.is_null() {
            // SAFETY: no tuple is left in it.
            unsafe { pg_sys::MemoryContextReset(self.memory) };
        }
        self.count();
    }

    /// A subtransaction was rolled back: what it added never happened.
    pub fn discard(&mut self, subtransaction: pg_sys::SubTransactionId) {
        self.rows.retain(|row| row.made_by != subtransaction);
        self.count();
    }

    /// A subtransaction has ended well: what it added now belongs to the one around it.
    pub fn hand_over(&mut self, subtransaction: pg_sys::SubTransactionId, parent: pg_sys::SubTransactionId) {
        for row in self.rows.iter_mut().filter(|row| row.made_by == subtransaction) {
            row.made_by = parent;
        }
    }

    fn count(&mut self) {
        // SAFETY: the tuples that wait are alive.
        self.bytes = self.rows.iter().map(|row| unsafe { (*row.tuple).t_len } as usize).sum();
    }

    /// The transaction is over, and the memory with it.
    pub fn forget(&mut self) {
        self.rows.clear();
        self.bytes = 0;
        self.memory = std::ptr::null_mut();
    }
}

/// Draws the id of an event. It is the first column, not null and eight bytes wide, so it stands right behind the
/// tuple's header. Drawn as late as this so that ids rise with the commands that made the changes, and while the rows are
/// still locked.
fn set_id(tuple: pg_sys::HeapTuple) {
    let id = next_id("event_id_seq");
    // SAFETY: a tuple formed by us, whose first column is a bigint; t_hoff is aligned for it.
    unsafe {
        let header = (*tuple).t_data;
        header.cast::<u8>().add((*header).t_hoff as usize).cast::<i64>().write(id);
    }
}

/// A text, json or other plain varlena datum in the current memory context.
pub fn varlena(bytes: &[u8]) -> pg_sys::Datum {
    // SAFETY: copies the bytes into a palloc'd varlena.
    unsafe { pg_sys::Datum::from(pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32)) }
}

thread_local!(static LAST_ID: std::cell::Cell<i64> = const { std::cell::Cell::new(0) });

/// The id that was drawn last.
pub fn last_id() -> i64 {
    LAST_ID.get()
}

/// The next value of one of our sequences, whatever rights the current user has.
pub fn next_id(sequence: &str) -> i64 {
    let id = match names::internal_relation(sequence) {
        // SAFETY: the oid is that of a sequence of ours.
        Some(oid) => unsafe { super::raw::nextval_internal(oid, false) },
        None => 0,
    };
    LAST_ID.set(id);
    id
}
