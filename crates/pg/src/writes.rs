//! Which tables a statement writes, as its analysed and rewritten query says: views are resolved to their tables, and
//! statements inside WITH are found.
use std::ffi::CStr;

use pgrx::{PgList, pg_sys};

/// A table that a statement writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub relation: pg_sys::Oid,
    /// The last word of the topic of the change: created, updated or deleted.
    pub verb: &'static str,
    /// The columns that an update sets.
    pub columns: Vec<String>,
}

/// The tables that a plan writes.
///
/// # Safety
/// A valid plan of SPI's.
pub unsafe fn of_plan(plan: pg_sys::SPIPlanPtr) -> Vec<Write> {
    let mut found = Vec::new();
    // SAFETY: the plan's sources, and the queries in them, live as long as the plan; the lists belong to it.
    unsafe {
        for source in pointers::<pg_sys::CachedPlanSource>(pg_sys::SPI_plan_get_plan_sources(plan)) {
            for query in pointers::<pg_sys::Query>((*source).query_list) {
                of_query(query, &mut found);
            }
        }
    }
    found
}

/// The pointers of a list that this code does not own.
unsafe fn pointers<T>(list: *mut pg_sys::List) -> Vec<*mut T> {
    // SAFETY: as demanded of the caller, a list of such pointers, or null.
    let list = unsafe { PgList::<T>::from_pg(list) };
    let pointers = list.iter_ptr().collect();
    std::mem::forget(list);
    pointers
}

unsafe fn of_query(query: *mut pg_sys::Query, found: &mut Vec<Write>) {
    // SAFETY: an analysed query; a node is read as the type that its tag names.
    unsafe {
        for cte in pointers::<pg_sys::CommonTableExpr>((*query).cteList) {
            let inner = (*cte).ctequery;
            if !inner.is_null() && (*inner).type_ == pg_sys::NodeTag::T_Query {
                of_query(inner.cast(), found);
            }
        }
        let Some(relation) = target(query) else { return };
        let mut write = |command: pg_sys::CmdType::Type, targets: *mut pg_sys::List| {
            let (verb, columns) = match command {
                pg_sys::CmdType::CMD_INSERT => ("created", Vec::new()),
                pg_sys::CmdType::CMD_UPDATE => ("updated", columns(targets)),
                pg_sys::CmdType::CMD_DELETE => ("deleted", Vec::new()),
                _ => return,
            };
            found.push(Write { relation, verb, columns });
        };
        write((*query).commandType, (*query).targetList);
        let conflict = (*query).onConflict;
        if !conflict.is_null() && (*conflict).action == pg_sys::OnConflictAction::ONCONFLICT_UPDATE {
            write(pg_sys::CmdType::CMD_UPDATE, (*conflict).onConflictSet);
        }
        for action in pointers::<pg_sys::MergeAction>((*query).mergeActionList) {
            write((*action).commandType, (*action).targetList);
        }
    }
}

/// The table that a query writes.
unsafe fn target(query: *mut pg_sys::Query) -> Option<pg_sys::Oid> {
    // SAFETY: as above; the number of the result relation counts the range table from 1.
    unsafe {
        let place = usize::try_from((*query).resultRelation).ok()?.checked_sub(1)?;
        let entry = *pointers::<pg_sys::RangeTblEntry>((*query).rtable).get(place)?;
        ((*entry).rtekind == pg_sys::RTEKind::RTE_RELATION).then_some((*entry).relid)
    }
}

unsafe fn columns(targets: *mut pg_sys::List) -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: entries of a target list; those of an update carry the name of the column they set.
    unsafe {
        for entry in pointers::<pg_sys::TargetEntry>(targets) {
            if !(*entry).resjunk && !(*entry).resname.is_null() {
                names.push(super::server_text::read_c(CStr::from_ptr((*entry).resname)));
            }
        }
    }
    names
}
