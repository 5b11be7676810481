//! Reading the event log along its indexes without going through the executor.
//!
//! A turn of the router reads a handful of events; setting up a statement over all partitions costs many times as
//! much as reading them. Here a partition costs opening it. No rights are checked: for the engine's own use alone.
#![allow(unsafe_code)]
use std::cell::RefCell;
use std::ops::ControlFlow;

use pgrx::pg_sys;

use crate::pg::engine_sql::Row;
use crate::pg::table_scan::StatementSnapshot;
use crate::pg::{names, raw};

/// Columns of the log that its indexes know: see sql/schema/log.sql.
const ID: i16 = 1;
const XID: i16 = 2;
const GROUP_SPAN: usize = 4;

/// A partition and its indexes on (id) and on (xid, id).
#[derive(Clone, Copy)]
struct Leaf {
    relation: pg_sys::Oid,
    by_id: pg_sys::Oid,
    by_xid: pg_sys::Oid,
}

thread_local! {
    /// The partitions as of a generation of the catalog.
    static LEAVES: RefCell<(u64, Vec<Leaf>)> = const { RefCell::new((0, Vec::new())) };
}

/// The log, open for reading in one snapshot: everything committed by now, and this transaction's own rows.
pub struct LogScan {
    leaves: Vec<OpenLeaf>,
    snapshot: StatementSnapshot,
}

/// A partition with rows. Its scans are set up when first asked for and then moved.
struct OpenLeaf {
    leaf: Leaf,
    relation: pg_sys::Relation,
    by_id: Option<IndexScan>,
    by_xid: Option<IndexScan>,
}

impl LogScan {
    /// Opens the log for events that were committed, or written by this transaction, before the call. None if there is
    /// no log: the extension is being dropped.
    pub fn open() -> Option<Self> {
        let parent = names::internal_relation("event")?;
        // SAFETY: the lock on the parent keeps its partitions; they are closed again when this is dropped.
        unsafe {
            pg_sys::LockRelationOid(parent, pg_sys::AccessShareLock as i32);
            let mut leaves = Vec::new();
            for leaf in partitions(parent) {
                let opened = pg_sys::table_open(leaf.relation, pg_sys::AccessShareLock as i32);
                if pg_sys::RelationGetNumberOfBlocksInFork(opened, pg_sys::ForkNumber::MAIN_FORKNUM) == 0 {
                    pg_sys::table_close(opened, pg_sys::NoLock as i32);
                } else {
                    leaves.push(OpenLeaf { leaf, relation: opened, by_id: None, by_xid: None });
                }
            }
            Some(LogScan { leaves, snapshot: StatementSnapshot::take() })
        }
    }

    /// Calls `found` with the events whose ids lie in the range, partition by partition, each in the order of ids,
    /// until it breaks off.
    pub fn by_id(&mut self, above: i64, up_to: i64, mut found: impl FnMut(&Row<'_>) -> ControlFlow<()>) {
        let keys = [key(1, Compare::Above, above as u64), key(1, Compare::UpTo, up_to as u64)];
        for leaf in &mut self.leaves {
            leaf.by_id(&self.snapshot).each(&keys, true, &mut found);
        }
    }

    /// The groups of a transaction that reach above an id and begin at or below another, as (first id, last id) in
    /// order. At most `limit` of those that begin above.
    pub fn groups_of(&mut self, xid: u64, above: i64, up_to: i64, limit: usize) -> Vec<(i64, i64)> {
        let mut groups = Vec::new();
        for leaf in &mut self.leaves {
            let scan = leaf.by_xid(&self.snapshot);
            let mut room = limit;
            let ahead = [
                key(1, Compare::Equal, xid),
                key(2, Compare::Above, above as u64),
                key(2, Compare::UpTo, up_to as u64),
            ];
            scan.each(&ahead, true, &mut |row| {
                groups.extend(group(row));
                room -= 1;
                if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if above > 0 {
                // The last one that begins before may reach beyond.
                let behind =
                    [key(1, Compare::Equal, xid), key(2, Compare::Above, 0), key(2, Compare::UpTo, above as u64)];
                scan.each(&behind, false, &mut |row| {
                    groups.extend(group(row).filter(|(_, last)| *last > above));
                    ControlFlow::Break(())
                });
            }
        }
        groups.sort_unstable();
        groups
    }

    /// The transactions of a range that have an event at or below an id.
    pub fn transactions(&mut self, from: u64, below: u64, up_to: i64) -> Vec<u64> {
        let mut xids = Vec::new();
        for leaf in &mut self.leaves {
            let scan = leaf.by_xid(&self.snapshot);
            let mut next = from;
            // Once a transaction has shown many groups, the scan skips to the next transaction, so that the groups of a
            // long one are not all read.
            while next < below {
                let mut seen = (0u64, 0usize);
                let mut skip = None;
                let keys =
                    [key(1, Compare::Least, next), key(1, Compare::Below, below), key(2, Compare::UpTo, up_to as u64)];
                scan.each(&keys, true, &mut |row| {
                    let xid = row.int8(XID as usize).unwrap_or_default() as u64;
                    if xid != seen.0 {
                        seen = (xid, 0);
                        xids.push(xid);
                    }
                    seen.1 += 1;
                    if seen.1 < MANY_GROUPS {
                        return ControlFlow::Continue(());
                    }
                    skip = Some(xid + 1);
                    ControlFlow::Break(())
                });
                next = skip.unwrap_or(below);
            }
        }
        xids.sort_unstable();
        xids.dedup();
        xids
    }
}

const MANY_GROUPS: usize = 50;

impl Drop for LogScan {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // An error's rollback closes the relations and scans that are open.
            return;
        }
        // SAFETY: pairs with `open`; the locks are kept until the transaction ends, as a statement's are.
        for leaf in &mut self.leaves {
            for scan in [leaf.by_id.take(), leaf.by_xid.take()].into_iter().flatten() {
                scan.end();
            }
            unsafe { pg_sys::table_close(leaf.relation, pg_sys::NoLock as i32) };
        }
    }
}

fn group(row: &Row<'_>) -> Option<(i64, i64)> {
    let first = row.int8(ID as usize)?;
    Some((first, first + i64::from(row.int4(GROUP_SPAN)?) - 1))
}

/// The partitions of the log. The caller holds a lock on it, so that they stay.
fn partitions(parent: pg_sys::Oid) -> Vec<Leaf> {
    let generation = names::catalog_generation();
    if let Some(known) = LEAVES.with(|leaves| {
        let leaves = leaves.borrow();
        (leaves.0 == generation).then(|| leaves.1.clone())
    }) {
        return known;
    }
    let lock = pg_sys::AccessShareLock as i32;
    // SAFETY: catalog look-ups; every relation that is opened is closed again.
    let found: Vec<Leaf> = unsafe {
        let children = pgrx::PgList::<std::ffi::c_void>::from_pg(raw::find_inheritance_children(parent, lock));
        (0..children.len())
            .filter_map(|i| children.get_oid(i))
            .filter_map(|relation| {
                let opened = pg_sys::table_open(relation, lock);
                let (by_id, by_xid) = (index_on(opened, ID), index_on(opened, XID));
                pg_sys::table_close(opened, pg_sys::NoLock as i32);
                Some(Leaf { relation, by_id: by_id?, by_xid: by_xid? })
            })
            .collect()
    };
    LEAVES.with(|leaves| *leaves.borrow_mut() = (generation, found.clone()));
    found
}

/// The index whose first column is this one.
unsafe fn index_on(relation: pg_sys::Relation, column: i16) -> Option<pg_sys::Oid> {
    // SAFETY: an open relation of ours.
    unsafe {
        let list = pgrx::PgList::<std::ffi::c_void>::from_pg(pg_sys::RelationGetIndexList(relation));
        (0..list.len()).filter_map(|i| list.get_oid(i)).find(|oid| {
            let index = pg_sys::index_open(*oid, pg_sys::AccessShareLock as i32);
            let first = *(*(*index).rd_index).indkey.values.as_ptr();
            pg_sys::index_close(index, pg_sys::NoLock as i32);
            first == column
        })
    }
}

#[derive(Clone, Copy)]
enum Compare {
    Equal,
    Above,
    UpTo,
    /// At or above; for transactions.
    Least,
    Below,
}

/// A condition on a column of an index: on ids (int8), or on transactions (xid8) with Equal, Least and Below.
fn key(column: i16, compare: Compare, value: u64) -> pg_sys::ScanKeyData {
    let (strategy, function) = match compare {
        Compare::Equal => (pg_sys::BTEqualStrategyNumber, pg_sys::F_XID8EQ),
        Compare::Least => (pg_sys::BTGreaterEqualStrategyNumber, pg_sys::F_XID8GE),
        Compare::Below => (pg_sys::BTLessStrategyNumber, pg_sys::F_XID8LT),
        Compare::Above => (pg_sys::BTGreaterStrategyNumber, pg_sys::F_INT8GT),
        Compare::UpTo => (pg_sys::BTLessEqualStrategyNumber, pg_sys::F_INT8LE),
    };
    let mut key = pg_sys::ScanKeyData::default();
    // SAFETY: fills in the key; the function is a built-in one of the column's type.
    unsafe {
        pg_sys::ScanKeyInit(&mut key, column, strategy as u16, pg_sys::Oid::from(function), pg_sys::Datum::from(value));
    }
    key
}

impl OpenLeaf {
    fn by_id(&mut self, snapshot: &StatementSnapshot) -> &mut IndexScan {
        let (relation, index) = (self.relation, self.leaf.by_id);
        self.by_id.get_or_insert_with(|| IndexScan::begin(relation, index, 2, snapshot))
    }

    fn by_xid(&mut self, snapshot: &StatementSnapshot) -> &mut IndexScan {
        let (relation, index) = (self.relation, self.leaf.by_xid);
        self.by_xid.get_or_insert_with(|| IndexScan::begin(relation, index, 3, snapshot))
    }
}

/// A scan along an index, to be moved from range to range.
struct IndexScan {
    relation: pg_sys::Relation,
    index: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
    scan: pg_sys::IndexScanDesc,
}

impl IndexScan {
    fn begin(relation: pg_sys::Relation, index: pg_sys::Oid, keys: i32, snapshot: &StatementSnapshot) -> Self {
        // SAFETY: the index belongs to the relation, which stays open; ended by `end`, or by an error's rollback.
        unsafe {
            let index = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
            let slot = pg_sys::table_slot_create(relation, std::ptr::null_mut());
            let scan = pg_sys::index_beginscan(relation, index, snapshot.get(), keys, 0);
            IndexScan { relation, index, slot, scan }
        }
    }

    /// Calls `found` with the rows that fit the keys until it breaks off.
    fn each(
        &mut self,
        keys: &[pg_sys::ScanKeyData],
        forward: bool,
        found: &mut impl FnMut(&Row<'_>) -> ControlFlow<()>,
    ) {
        let direction = if forward {
            pg_sys::ScanDirection::ForwardScanDirection
        } else {
            pg_sys::ScanDirection::BackwardScanDirection
        };
        // SAFETY: as many keys as the scan was begun with; a row is read before the slot moves on.
        unsafe {
            let (keys, count) = (keys.as_ptr().cast_mut(), keys.len() as i32);
            pg_sys::index_rescan(self.scan, keys, count, std::ptr::null_mut(), 0);
            while pg_sys::index_getnext_slot(self.scan, direction, self.slot) {
                let tuple = pg_sys::ExecFetchSlotHeapTuple(self.slot, false, std::ptr::null_mut());
                if found(&Row::of(tuple, (*self.relation).rd_att)).is_break() {
                    break;
                }
            }
        }
    }

    fn end(self) {
        // SAFETY: pairs with `begin`.
        unsafe {
            pg_sys::index_endscan(self.scan);
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::index_close(self.index, pg_sys::NoLock as i32);
        }
    }
}
