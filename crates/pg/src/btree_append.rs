//! Appends many rising entries at the right end of a btree at once.
//!
//! Ids only rise, so the entries of a group of rows nearly always belong behind the last one of the index. Postgres
//! enters them one by one, each with a way down the tree, a lock, a search in the page and a WAL record of its own.
//! Here the last page is locked once, filled, and logged once as a whole, which is also less WAL than as many records;
//! when it is full, one entry takes the ordinary way and splits it.
use pgrx::pg_sys;

use super::raw::unguarded;

/// From so many entries on an image of the page is no more WAL than their own records would be.
pub const WORTH_IT: usize = 100;

/// An entry as it stands on a leaf page: an index tuple with one bigint.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Entry {
    place: pg_sys::ItemPointerData,
    info: u16,
    key: i64,
}

const SIZE: usize = std::mem::size_of::<Entry>();

impl Entry {
    pub fn new(key: i64, place: pg_sys::ItemPointerData) -> Self {
        // The size is all that there is to say: no nulls, nothing of variable width.
        Entry { place, info: SIZE as u16, key }
    }
}

/// The special space at the end of every page of a btree.
#[repr(C)]
struct Opaque {
    previous: pg_sys::BlockNumber,
    next: pg_sys::BlockNumber,
    level: u32,
    flags: u16,
    cycle: u16,
}

const NO_PAGE: pg_sys::BlockNumber = 0;
const LEAF: u16 = 1 << 0;
const ROOT: u16 = 1 << 1;
const HAS_GARBAGE: u16 = 1 << 6;

/// Does the index hold one bigint for each row, in rising order and never null, and may it be written to like this?
///
/// # Safety
/// An open index, and its open table.
pub unsafe fn is_of_rising_bigints(index: pg_sys::Relation, table: pg_sys::Relation) -> bool {
    // SAFETY: as demanded of the caller; an index has at least one column.
    unsafe {
        let (class, form) = (&*(*index).rd_rel, (*index).rd_index);
        let column = *(*form).indkey.values.as_ptr();
        (*form).indnatts == 1
            && column > 0
            // Nulls stand behind all numbers.
            && (*super::raw::attribute((*table).rd_att, column as usize - 1)).attnotnull
            && class.relam == pg_sys::BTREE_AM_OID
            && (*super::raw::attribute((*index).rd_att, 0)).atttypid == pg_sys::INT8OID
            && *(*index).rd_indoption == 0
            // A relation that is not WAL-logged, for good or until its transaction ends, must not be logged in parts.
            && class.relpersistence == pg_sys::RELPERSISTENCE_PERMANENT as std::ffi::c_char
            && pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32
    }
}

/// Enters as many of the entries as fit on the last page and belong there; returns how many. The keys must rise. They
/// are above all others then, so that a unique index has nothing to ask.
///
/// # Safety
/// An index for which `is_of_rising_bigints` holds, of a table locked for inserting, whose rows the entries point to.
/// To be called inside a guard.
pub unsafe fn append(index: pg_sys::Relation, entries: &[Entry]) -> usize {
    // SAFETY: as demanded of the caller. The page is locked exclusively while it is looked at and changed, and nothing
    // can fail between the change and its WAL record.
    unsafe {
        let buffer = unguarded::_bt_get_endpoint(
            index,
            0,
            true,
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            std::ptr::null_mut(),
        );
        if buffer == pg_sys::InvalidBuffer as i32 {
            return 0;
        }
        unguarded::LockBuffer(buffer, pg_sys::BUFFER_LOCK_UNLOCK as i32);
        unguarded::LockBuffer(buffer, pg_sys::BUFFER_LOCK_EXCLUSIVE as i32);
        let page = pg_sys::BufferGetPage(buffer);
        let count = match belongs_behind(page, entries) {
            true => entries.len().min(unguarded::PageGetExactFreeSpace(page) / (SIZE + LINE)),
            false => 0,
        };
        if count > 0 {
            let block = unguarded::BufferGetBlockNumber(buffer);
            unguarded::CheckForSerializableConflictIn(index, std::ptr::null_mut(), block);
            pg_sys::CritSectionCount += 1;
            let first = pg_sys::PageGetMaxOffsetNumber(page) + 1;
            for (entry, at) in entries[..count].iter().zip(first..) {
                let item = (&raw const *entry).cast_mut().cast();
                unguarded::PageAddItemExtended(page, item, SIZE, at, 0);
            }
            unguarded::MarkBufferDirty(buffer);
            unguarded::log_newpage_buffer(buffer, true);
            pg_sys::CritSectionCount -= 1;
        }
        unguarded::UnlockReleaseBuffer(buffer);
        count
    }
}

/// Room that an item's pointer takes.
const LINE: usize = std::mem::size_of::<pg_sys::ItemIdData>();

/// Is this the last leaf, whole, and are the entries above everything on it?
unsafe fn belongs_behind(page: pg_sys::Page, entries: &[Entry]) -> bool {
    // SAFETY: a page of a btree, locked; an item of a leaf is an entry, regardless of the other bits of its header.
    unsafe {
        let opaque = &*pg_sys::PageGetSpecialPointer(page).cast::<Opaque>();
        // Neither deleted, nor half split, nor anything else that has a flag of its own.
        if opaque.next != NO_PAGE || opaque.flags & LEAF == 0 || opaque.flags & !(LEAF | ROOT | HAS_GARBAGE) != 0 {
            return false;
        }
        match pg_sys::PageGetMaxOffsetNumber(page) {
            // An empty page does not tell where it begins, unless it is the only one.
            0 => opaque.previous == NO_PAGE,
            last => {
                let item = pg_sys::PageGetItem(page, pg_sys::PageGetItemId(page, last));
                entries.first().is_some_and(|first| (*item.cast::<Entry>()).key < first.key)
            }
        }
    }
}
