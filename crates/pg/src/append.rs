//! Appending rows to time-partitioned tables of the engine without going through the executor.
//!
//! The capture trigger runs inside the user's statement, and a run's history is written by a process that has only
//! the owner's rights. Forming the tuple and inserting it ourselves costs about a third of an SPI INSERT and needs no
//! change of identity, because no SQL statement is run. Only for tables whose indexes are plain columns and which
//! have no triggers, generated columns or foreign keys.
use std::cell::RefCell;
use std::collections::HashMap;

use pgrx::pg_sys;

use super::catch::PgError;
use super::clock::{self, Micros};
use super::insert::{InPartialIndex, every_row, insert_tuples, no_row};
use super::names;
use super::server_text;

/// A column value ready for `heap_form_tuple`.
pub type Cell = Option<pg_sys::Datum>;

/// A partition, and a copy of its descriptor that outlives transactions.
#[derive(Clone, Copy)]
pub struct Leaf {
    generation: u64,
    day: i64,
    pub relation: pg_sys::Oid,
    pub descriptor: pg_sys::TupleDesc,
}

thread_local! {
    static LEAVES: RefCell<HashMap<&'static str, Leaf>> = RefCell::new(HashMap::new());
}

/// Name of the partition of `table` for a day, counted from 2000-01-01 UTC.
pub fn partition_name(table: &str, day: i64) -> String {
    format!("{table}_d{day}")
}

/// The partition that rows of `at` belong to: the day's own, or the default one while there is none.
pub fn leaf(table: &'static str, at: Micros) -> Option<Leaf> {
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
    // SAFETY: opened under the lock that an INSERT will take; the copy goes to memory that lives as long as the
    // process.
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

/// A tuple of these values.
///
/// # Safety
/// The descriptor is that of a table with N columns of the values' types.
pub unsafe fn form<const N: usize>(descriptor: pg_sys::TupleDesc, row: [Cell; N]) -> pg_sys::HeapTuple {
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

/// Size of a varlena with so many bytes behind its header. A size that the header cannot hold is an error, never a
/// wrong length.
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

/// A text or json datum of a Rust text, in the database's encoding. A letter that the encoding lacks is written as its
/// number.
pub fn text_varlena(text: &str) -> pg_sys::Datum {
    varlena(&server_text::write(text))
}

/// A json datum that only the engine reads: a letter that the database's encoding lacks is kept, as an escape of JSON.
pub fn kept_json(text: &str) -> pg_sys::Datum {
    varlena(&server_text::write_json(text))
}

/// The value that was drawn last, by any session, from one of our sequences, 0 if none was. The current user must be
/// allowed to read it. None if the sequence is gone.
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
        // SAFETY: a sequence of ours and a number; the caller has the rights of the extension's owner.
        unsafe { pgrx::direct_function_call_as_datum(pg_sys::setval_oid, &arguments) };
    }
}

/// The next value of one of our sequences, without a check of the current user's rights.
pub fn next_id(sequence: &str) -> i64 {
    match names::internal_relation(sequence) {
        // SAFETY: the oid is that of a sequence of ours.
        Some(oid) => unsafe { super::raw::nextval_internal(oid, false) },
        None => 0,
    }
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
