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
    // formed with its own descriptor. CatalogTupleInsertWithInfo is simple_heap_insert plus the index entries, and
    // demands just what our tables give: plain heap, plain index columns.
    unsafe {
        let opened = pg_sys::table_open(relation, pg_sys::RowExclusiveLock as i32);
        let descriptor = (*opened).rd_att;
        debug_assert_eq!((*descriptor).natts as usize, N);
        let indexes = pg_sys::CatalogOpenIndexes(opened);
        for row in rows {
            let mut values = [pg_sys::Datum::from(0usize); N];
            let mut nulls = [true; N];
            for (i, cell) in row.into_iter().enumerate() {
                if let Some(datum) = cell {
                    values[i] = datum;
                    nulls[i] = false;
                }
            }
            let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::CatalogTupleInsertWithInfo(opened, tuple, indexes);
            pg_sys::heap_freetuple(tuple);
        }
        pg_sys::CatalogCloseIndexes(indexes);
        pg_sys::table_close(opened, pg_sys::NoLock as i32);
    }
}

/// A text, json or other plain varlena datum in the current memory context.
pub fn varlena(bytes: &[u8]) -> pg_sys::Datum {
    // SAFETY: copies the bytes into a palloc'd varlena.
    unsafe { pg_sys::Datum::from(pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32)) }
}

/// The next value of one of our sequences, whatever rights the current user has.
pub fn next_id(sequence: &str) -> i64 {
    match names::internal_relation(sequence) {
        // SAFETY: the oid is that of a sequence of ours.
        Some(oid) => unsafe { super::raw::nextval_internal(oid, false) },
        None => 0,
    }
}
