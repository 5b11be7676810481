//! Inserting formed tuples into a table of ours and its indexes.
//!
//! Postgres' own routine for this (that of the catalogs) makes a slot per tuple and works out every index anew; here an
//! index entry costs the entry itself. Only for plain heaps whose indexes are btrees over plain columns. Everything
//! happens inside one guard: an ERROR leaves it as a panic, once, instead of each call paying for the possibility.
//!
//! With `automation_engine.fast_append = off` none of this is used: `ordinary_insert` hands the tuples to Postgres.
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pgrx::pg_sys;

use super::btree_append::{self, Entry};
use super::catch::guard;
use super::names;
use super::ordinary_insert;
use super::raw::{attribute_of, unguarded};

/// Which rows a partial index of the table holds. Its predicate says the same in SQL; a restore goes by the predicate.
pub type InPartialIndex = fn(pg_sys::HeapTuple) -> bool;

/// For tables without partial indexes, and for rows that are in all of them.
pub fn every_row(_tuple: pg_sys::HeapTuple) -> bool {
    true
}

/// For rows that are in none of the table's partial indexes.
pub fn no_row(_tuple: pg_sys::HeapTuple) -> bool {
    false
}

/// Most tuples handed to the heap at once: they share a page's lock and a WAL record.
const CHUNK: usize = 100;

/// Most columns of an index.
const KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

/// Inserts tuples and their index entries.
///
/// # Safety
/// `relation` is a table of ours, inside a transaction that has locked it as an INSERT would, and the tuples were
/// formed with its descriptor.
pub unsafe fn insert_tuples(relation: pg_sys::Oid, tuples: &[pg_sys::HeapTuple], in_partial: InPartialIndex) {
    if !ordinary_insert::fast_append() {
        // SAFETY: as demanded of the caller.
        return unsafe { ordinary_insert::insert_tuples(relation, tuples) };
    }
    let (mut one_place, mut many_places);
    let places: &mut [pg_sys::ItemPointerData] = if tuples.len() == 1 {
        one_place = [pg_sys::ItemPointerData::default()];
        &mut one_place
    } else {
        many_places = vec![pg_sys::ItemPointerData::default(); tuples.len()];
        &mut many_places
    };
    let mut slots = [std::ptr::null_mut(); CHUNK];
    let many = if tuples.len() < btree_append::WORTH_IT { 0 } else { tuples.len() };
    let mut entries = vec![Entry::default(); many];
    // SAFETY: nothing in there owns anything with a destructor; the variables that it writes to outlive it.
    unsafe {
        let indexes = indexes_of(relation);
        guard(|| {
            let opened = unguarded::table_open(relation, pg_sys::NoLock as i32);
            insert_into_heap(opened, tuples, places, &mut slots);
            insert_into_indexes(opened, tuples, places, &mut entries, &indexes, in_partial);
            unguarded::table_close(opened, pg_sys::NoLock as i32);
        });
    }
}

unsafe fn insert_into_heap(
    relation: pg_sys::Relation,
    tuples: &[pg_sys::HeapTuple],
    places: &mut [pg_sys::ItemPointerData],
    slots: &mut [*mut pg_sys::TupleTableSlot; CHUNK],
) {
    // SAFETY: see `insert_tuples`. A tuple that must be toasted is inserted as a copy; the place comes back all the
    // same.
    unsafe {
        let command = unguarded::GetCurrentCommandId(true);
        if let [tuple] = tuples {
            unguarded::heap_insert(relation, *tuple, command, 0, std::ptr::null_mut());
            places[0] = (**tuple).t_self;
            return;
        }
        let slots = &mut slots[..tuples.len().min(CHUNK)];
        for slot in slots.iter_mut() {
            *slot = unguarded::MakeSingleTupleTableSlot((*relation).rd_att, &raw const pg_sys::TTSOpsHeapTuple);
        }
        for (chunk, places) in tuples.chunks(CHUNK).zip(places.chunks_mut(CHUNK)) {
            for (tuple, slot) in chunk.iter().zip(slots.iter()) {
                unguarded::ExecStoreHeapTuple(*tuple, *slot, false);
            }
            let count = chunk.len() as i32;
            unguarded::heap_multi_insert(relation, slots.as_mut_ptr(), count, command, 0, std::ptr::null_mut());
            for (place, slot) in places.iter_mut().zip(slots.iter()) {
                *place = (**slot).tts_tid;
            }
        }
        for slot in slots.iter() {
            unguarded::ExecDropSingleTupleTableSlot(*slot);
        }
    }
}

unsafe fn insert_into_indexes(
    relation: pg_sys::Relation,
    tuples: &[pg_sys::HeapTuple],
    places: &mut [pg_sys::ItemPointerData],
    entries: &mut [Entry],
    indexes: &[Index],
    in_partial: InPartialIndex,
) {
    // SAFETY: see `insert_tuples`.
    unsafe {
        for index in indexes.iter() {
            // A partial index that none of the rows is in need not even be locked.
            if index.partial && !tuples.iter().any(|tuple| in_partial(*tuple)) {
                continue;
            }
            let opened = unguarded::index_open(index.oid, pg_sys::RowExclusiveLock as i32);
            let form = (*opened).rd_index;
            if !index.partial && !entries.is_empty() && btree_append::is_of_rising_bigints(opened, relation) {
                insert_rising(opened, relation, tuples, places, entries);
            } else {
                for (tuple, place) in tuples.iter().zip(places.iter_mut()) {
                    if !index.partial || in_partial(*tuple) {
                        insert_entry(opened, form, relation, *tuple, place);
                    }
                }
            }
            unguarded::index_close(opened, pg_sys::NoLock as i32);
        }
    }
}

/// An index that is to be filled.
struct Index {
    oid: pg_sys::Oid,
    partial: bool,
}

type Indexes = Rc<[Index]>;

thread_local! {
    /// The indexes of a table, as they were at a state of the catalog.
    static INDEXES: RefCell<HashMap<pg_sys::Oid, (u64, Indexes)>> = RefCell::new(HashMap::new());
}

/// The indexes of a table that is locked for inserting: none is added or dropped meanwhile, for a session that does so
/// waits for the locks on the table.
unsafe fn indexes_of(relation: pg_sys::Oid) -> Indexes {
    let generation = names::catalog_generation();
    let known = INDEXES.with(|known| known.borrow().get(&relation).cloned());
    if let Some((_, indexes)) = known.filter(|(known, _)| *known == generation) {
        return indexes;
    }
    let mut found = Vec::new();
    // SAFETY: a table that is locked; nothing in there owns anything with a destructor.
    unsafe { guard(|| look_up_indexes(relation, &mut found)) };
    let indexes: Indexes = found.into();
    INDEXES.with(|known| known.borrow_mut().insert(relation, (names::catalog_generation(), indexes.clone())));
    indexes
}

unsafe fn look_up_indexes(relation: pg_sys::Oid, found: &mut Vec<Index>) {
    // SAFETY: as demanded of the caller.
    unsafe {
        let opened = unguarded::table_open(relation, pg_sys::NoLock as i32);
        let list = unguarded::RelationGetIndexList(opened);
        let count = if list.is_null() { 0 } else { (*list).length as usize };
        for i in 0..count {
            let oid = (*(*list).elements.add(i)).oid_value;
            let index = unguarded::index_open(oid, pg_sys::RowExclusiveLock as i32);
            if (*(*index).rd_index).indisready {
                let predicate = pg_sys::Anum_pg_index_indpred as i32;
                let tuple = (*index).rd_indextuple;
                let partial = !unguarded::heap_attisnull(tuple, predicate, std::ptr::null_mut());
                found.push(Index { oid, partial });
            }
            unguarded::index_close(index, pg_sys::NoLock as i32);
        }
        unguarded::list_free(list);
        unguarded::table_close(opened, pg_sys::NoLock as i32);
    }
}

/// Enters rows into an index of one bigint, which usually rises from row to row: page by page as long as it does.
unsafe fn insert_rising(
    index: pg_sys::Relation,
    relation: pg_sys::Relation,
    tuples: &[pg_sys::HeapTuple],
    places: &mut [pg_sys::ItemPointerData],
    entries: &mut [Entry],
) {
    // SAFETY: see `insert_tuples`.
    unsafe {
        let form = (*index).rd_index;
        let column = i32::from(*(*form).indkey.values.as_ptr());
        let mut last = None;
        let mut rises = true;
        for ((entry, tuple), place) in entries.iter_mut().zip(tuples).zip(places.iter()) {
            let key = attribute_of(*tuple, column, (*relation).rd_att).map(|datum| datum.value() as i64);
            rises &= key.is_some() && last < key;
            last = key;
            *entry = Entry::new(key.unwrap_or_default(), *place);
        }
        let mut done = 0;
        while done < tuples.len() {
            if rises {
                let entered = btree_append::append(index, &entries[done..]);
                done += entered;
                // Behind a page that is full there is room again; if not even then, they do not belong at the end.
                rises = entered > 0 || done == 0;
            }
            if done < tuples.len() {
                insert_entry(index, form, relation, tuples[done], &mut places[done]);
                done += 1;
            }
        }
    }
}

unsafe fn insert_entry(
    index: pg_sys::Relation,
    form: pg_sys::Form_pg_index,
    relation: pg_sys::Relation,
    tuple: pg_sys::HeapTuple,
    place: &mut pg_sys::ItemPointerData,
) {
    let (mut values, mut nulls) = ([pg_sys::Datum::from(0usize); KEYS], [false; KEYS]);
    // SAFETY: see `insert_tuples`; indkey has indnatts entries, all of them plain columns.
    unsafe {
        let columns = (*form).indkey.values.as_ptr();
        for i in 0..(*form).indnatts as usize {
            match attribute_of(tuple, i32::from(*columns.add(i)), (*relation).rd_att) {
                Some(value) => values[i] = value,
                None => nulls[i] = true,
            }
        }
        let unique = if (*form).indisunique {
            pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES
        } else {
            pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO
        };
        // A btree does not look at the IndexInfo.
        let info = std::ptr::null_mut();
        unguarded::index_insert(index, values.as_mut_ptr(), nulls.as_mut_ptr(), place, relation, unique, false, info);
    }
}
