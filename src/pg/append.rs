//! Appending rows to our own time-partitioned tables without going through the executor.
//!
//! The capture trigger runs inside the user's statement, and a run's history is written by a process that has only
//! the owner's rights. Forming the tuple and inserting it ourselves costs about a third of an SPI INSERT and needs no
//! change of identity, because no statement of anybody's is run. Only for tables whose indexes are plain columns and
//! which have no triggers, generated columns or foreign keys.
use std::cell::RefCell;
use std::collections::HashMap;

use pgrx::pg_sys;

use super::catch::PgError;
use super::clock::{self, Micros};
use super::insert::{InPartialIndex, every_row, insert_tuples, no_row};
use super::names;
use super::raw::unguarded;
use super::server_text;
use crate::store::event_ids;

/// A column value ready for `heap_form_tuple`.
pub type Cell = Option<pg_sys::Datum>;

/// A partition, and a copy of its descriptor that outlives transactions.
#[derive(Clone, Copy)]
struct Leaf {
    generation: u64,
    day: i64,
    relation: pg_sys::Oid,
    descriptor: pg_sys::TupleDesc,
}

thread_local! {
    static LEAVES: RefCell<HashMap<&'static str, Leaf>> = RefCell::new(HashMap::new());
}

/// Name of the partition of `table` for a day, counted from 2000-01-01 UTC.
pub fn partition_name(table: &str, day: i64) -> String {
    format!("{table}_d{day}")
}

/// The partition that rows of `at` belong to: the day's own, or the default one while there is none.
fn leaf(table: &'static str, at: Micros) -> Option<Leaf> {
    let day = clock::day(at);
    let generation = names::catalog_generation();
    if let Some(leaf) = LEAVES.with(|leaves| leaves.borrow().get(table).copied())
        && leaf.day == day
        && leaf.generation == generation
    {
        return Some(leaf);
    }
    let relation = names::internal_relation(&partition_name(table, day))
        .or_else(|| names::internal_relation(&format!("{table}_default")))?;
    // SAFETY: opened under the lock that an INSERT will take; the copy goes to memory that lives as long as the process.
    let (descriptor, generation) = unsafe {
        let opened = pg_sys::try_relation_open(relation, pg_sys::RowExclusiveLock as i32);
        if opened.is_null() {
            return None;
        }
        let generation = names::catalog_generation();
        let previous = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let descriptor = pg_sys::CreateTupleDescCopy((*opened).rd_att);
        pg_sys::MemoryContextSwitchTo(previous);
        pg_sys::relation_close(opened, pg_sys::NoLock as i32);
        (descriptor, generation)
    };
    let leaf = Leaf { generation, day, relation, descriptor };
    if let Some(old) = LEAVES.with(|leaves| leaves.borrow_mut().insert(table, leaf)) {
        // SAFETY: a copy of ours that nothing points to any more.
        unsafe { pg_sys::FreeTupleDesc(old.descriptor) };
    }
    Some(leaf)
}

/// Appends rows to the partition of `table` that `at` falls into. Returns false if the table does not exist.
pub fn append<const N: usize>(table: &'static str, at: Micros, rows: impl Iterator<Item = [Cell; N]>) -> bool {
    match leaf(table, at) {
        Some(leaf) => {
            append_to(leaf.relation, rows, every_row);
            true
        }
        None => false,
    }
}

/// Appends rows to a plain table of ours; they are in every index of it.
pub fn append_plain<const N: usize>(table: &str, rows: impl Iterator<Item = [Cell; N]>) -> bool {
    append_by_name(table, rows, every_row)
}

/// Appends rows to a plain table of ours that belong in none of its partial indexes.
pub fn append_outside_partial<const N: usize>(table: &str, rows: impl Iterator<Item = [Cell; N]>) -> bool {
    append_by_name(table, rows, no_row)
}

fn append_by_name<const N: usize>(
    table: &str,
    rows: impl Iterator<Item = [Cell; N]>,
    in_partial: InPartialIndex,
) -> bool {
    match names::internal_relation(table) {
        Some(relation) => {
            append_to(relation, rows, in_partial);
            true
        }
        None => false,
    }
}

fn append_to<const N: usize>(relation: pg_sys::Oid, rows: impl Iterator<Item = [Cell; N]>, in_partial: InPartialIndex) {
    // SAFETY: the relation is one of ours, opened with the lock an INSERT takes and kept until commit; the tuples are
    // formed with its own descriptor.
    unsafe {
        let opened = pg_sys::table_open(relation, pg_sys::RowExclusiveLock as i32);
        let tuples: Vec<pg_sys::HeapTuple> = rows.map(|row| form((*opened).rd_att, row)).collect();
        insert_tuples(relation, &tuples, in_partial);
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
            // Not worth it while most of what waits must go on waiting.
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

    /// The partition for rows of `at`, under the lock that inserting will need: from the first row on nobody drops it.
    fn locked_leaf(&mut self, table: &'static str, at: Micros) -> Option<Leaf> {
        loop {
            let leaf = leaf(table, at)?;
            if self.locked == leaf.relation {
                return Some(leaf);
            }
            // SAFETY: as table_open would lock it. What changed while we waited for it is known afterwards.
            unsafe { pg_sys::LockRelationOid(leaf.relation, pg_sys::RowExclusiveLock as i32) };
            self.locked = leaf.relation;
        }
    }

    /// What an outer subtransaction has waiting is not inserted by an inner one, whose rollback would take it along.
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

    /// A subtransaction was rolled back: what it added never happened.
    pub fn discard(&mut self, subtransaction: pg_sys::SubTransactionId) {
        self.rows.retain(|row| row.made_by != subtransaction);
        self.count();
        // The lock may have gone with it.
        self.locked = pg_sys::InvalidOid;
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

    /// The transaction is over, and what waited with it.
    pub fn forget(&mut self) {
        self.rows.clear();
        if !self.memory.is_null() {
            // SAFETY: a context of ours; no tuple in it is known to anybody any more. Raises nothing.
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
/// (xid, id) holds that one only. A single one of a transaction that is about to end need not be in it. Drawn as late as
/// this so that ids rise with the commands that made the changes, and while the rows are still locked.
fn draw_ids(rows: &[Waiting], ends: bool) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    let stands_by = ends && rows.len() == 1 && event_ids::stand_by();
    // SAFETY: tuples formed by us.
    unsafe {
        event_ids::draw(rows.len(), |place, id| *field::<i64>(rows[place].tuple, ID_AT) = id);
        let (from, to) = (*field::<i64>(first.tuple, ID_AT), *field::<i64>(last.tuple, ID_AT));
        LAST_ID.set(to);
        if stands_by {
            event_ids::note_own(to);
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

/// Texts as varlena datums, in one piece of memory: they are copied into a tuple and forgotten.
pub struct Texts<const N: usize> {
    pub datums: [Cell; N],
    _memory: Vec<u64>,
}

impl<const N: usize> Texts<N> {
    pub fn with_room_for(texts: &[Option<&[u8]>; N]) -> Self {
        const HEADER: usize = pg_sys::VARHDRSZ;
        let words = |bytes: &[u8]| (HEADER + bytes.len()).div_ceil(8);
        let mut memory = vec![0u64; texts.iter().flatten().map(|bytes| words(bytes)).sum()];
        let mut rest = &mut memory[..];
        let datums = texts.map(|text| {
            let bytes = text?;
            let (mine, others) = std::mem::take(&mut rest).split_at_mut(words(bytes));
            rest = others;
            let place = mine.as_mut_ptr();
            let size = varlena_size(bytes.len()).unwrap_or_else(|error| error.raise());
            // SAFETY: the place has room for header and bytes, and is aligned for the header.
            unsafe {
                pgrx::set_varsize_4b(place.cast(), size);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast::<u8>().add(HEADER), bytes.len());
            }
            Some(pg_sys::Datum::from(place))
        });
        Texts { datums, _memory: memory }
    }
}

/// Most bytes of one text in a row of ours: several of them must fit into a tuple, which Postgres limits to 1 GB.
const MOST_TEXT: usize = 256 << 20;

/// Size of a varlena with so many bytes behind its header. What the header cannot hold is an error, never a wrong length.
fn varlena_size(bytes: usize) -> Result<i32, PgError> {
    let size = i32::try_from(bytes.saturating_add(pg_sys::VARHDRSZ)).ok();
    size.filter(|_| bytes <= MOST_TEXT).ok_or_else(|| PgError {
        detail: Some(format!("It has {bytes} bytes, and can have {MOST_TEXT}.")),
        ..PgError::new("54000", "a text is too long to be kept")
    })
}

/// A text, json or other plain varlena datum in the current memory context.
pub fn varlena(bytes: &[u8]) -> pg_sys::Datum {
    let size = varlena_size(bytes.len()).unwrap_or_else(|error| error.raise());
    // SAFETY: copies the bytes into a palloc'd varlena.
    unsafe {
        let length = size - pg_sys::VARHDRSZ as i32;
        pg_sys::Datum::from(pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), length))
    }
}

/// A text or json datum of a Rust text, in the database's encoding. A letter that the encoding lacks is written as its number.
pub fn text_varlena(text: &str) -> pg_sys::Datum {
    varlena(&server_text::write(text))
}

/// A json datum that only the engine reads: a letter that the database's encoding lacks is kept, as an escape of JSON.
pub fn kept_json(text: &str) -> pg_sys::Datum {
    varlena(&server_text::write_json(text))
}

thread_local!(static LAST_ID: std::cell::Cell<i64> = const { std::cell::Cell::new(0) });

/// The id that was drawn last.
pub fn last_id() -> i64 {
    LAST_ID.get()
}

/// The value that was drawn last from one of our sequences by anybody, 0 if none was. The current user must be allowed to
/// ask. None if it is gone.
pub fn last_drawn(sequence: &str) -> Option<i64> {
    let oid = names::internal_relation(sequence)?;
    // SAFETY: a built-in function and the oid of a sequence.
    let last = unsafe { pgrx::direct_function_call::<i64>(pg_sys::pg_sequence_last_value, &[Some(oid.into())]) };
    Some(last.unwrap_or(0))
}

/// Makes a sequence of ours go on behind `value`. Not undone by a rollback.
pub fn skip_ids(sequence: &str, value: i64) {
    if let Some(oid) = names::internal_relation(sequence) {
        let arguments = [Some(pg_sys::Datum::from(oid)), Some(pg_sys::Datum::from(value))];
        // SAFETY: a sequence of ours and a number; whoever calls this has the rights of the extension's owner.
        unsafe { pgrx::direct_function_call_as_datum(pg_sys::setval_oid, &arguments) };
    }
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

#[cfg(test)]
mod tests {
    use super::{MOST_TEXT, varlena_size};

    #[test]
    fn a_length_that_a_header_cannot_hold_is_an_error_and_never_another_length() {
        assert_eq!(varlena_size(0).ok(), Some(4));
        assert_eq!(varlena_size(MOST_TEXT).ok(), Some(MOST_TEXT as i32 + 4));
        // one more; 2^30, where the two bits of the header begin; 2^31 and 2^32, where an i32 would wrap
        for bytes in
            [MOST_TEXT + 1, (1 << 30) - 4, 1 << 30, (1 << 31) - 4, 1 << 31, 1 << 32, (1 << 32) + 10, usize::MAX]
        {
            assert!(varlena_size(bytes).is_err_and(|error| error.sqlstate == "54000"), "{bytes}");
        }
    }
}
