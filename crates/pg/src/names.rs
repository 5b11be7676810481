//! Names and oids of our own objects, looked up once and forgotten when the catalog changes.
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::server_text;

pub const INTERNAL: &CStr = c"automation_internal";

thread_local! {
    static RELATIONS: RefCell<HashMap<String, pg_sys::Oid>> = RefCell::new(HashMap::new());
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    static GENERATION: Cell<u64> = const { Cell::new(1) };
}

/// Counts catalog invalidations in this process; a cache that remembers the number knows when to look again.
pub fn catalog_generation() -> u64 {
    watch_catalog();
    GENERATION.get()
}

fn watch_catalog() {
    if !REGISTERED.replace(true) {
        // SAFETY: registers a plain function for the life of the process; it touches only thread-locals.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_relcache_change), pg_sys::Datum::from(0)) };
    }
}

unsafe extern "C-unwind" fn on_relcache_change(_arg: pg_sys::Datum, _relation: pg_sys::Oid) {
    GENERATION.set(GENERATION.get() + 1);
    // Invalidation can arrive while the map is borrowed; the generation then makes the next look-up start afresh.
    RELATIONS.with(|map| {
        if let Ok(mut map) = map.try_borrow_mut() {
            map.clear();
        }
    });
}

/// Oid of `automation_internal.<name>`, or None if it (or the extension) is not there.
pub fn internal_relation(name: &str) -> Option<pg_sys::Oid> {
    watch_catalog();
    if let Some(oid) = RELATIONS.with(|map| map.borrow().get(name).copied()) {
        return Some(oid);
    }
    let text = server_text::c_string(name).ok()?;
    // SAFETY: catalog look-ups inside a transaction, with NUL-terminated names.
    let oid = unsafe {
        let namespace = pg_sys::get_namespace_oid(INTERNAL.as_ptr(), true);
        if namespace == pg_sys::InvalidOid {
            return None;
        }
        pg_sys::get_relname_relid(text.as_ptr(), namespace)
    };
    if oid == pg_sys::InvalidOid {
        return None;
    }
    RELATIONS.with(|map| map.borrow_mut().insert(name.to_owned(), oid));
    Some(oid)
}

/// Is the extension installed in this database, as this transaction sees it?
pub fn extension_installed() -> bool {
    // Dropping the extension drops tables, which every process hears of.
    thread_local!(static KNOWN: Cell<u64> = const { Cell::new(0) });
    if KNOWN.get() == catalog_generation() {
        return true;
    }
    // SAFETY: a catalog look-up inside a transaction.
    let installed = unsafe { pg_sys::get_extension_oid(c"automation_engine".as_ptr(), true) != pg_sys::InvalidOid };
    KNOWN.set(if installed { catalog_generation() } else { 0 });
    installed
}

/// Owner of the extension's tables: the role that engine statements are raised to.
pub fn engine_owner() -> pg_sys::Oid {
    thread_local!(static OWNER: Cell<(u64, pg_sys::Oid)> = const { Cell::new((0, pg_sys::InvalidOid)) });
    let generation = catalog_generation();
    if OWNER.get().0 == generation {
        return OWNER.get().1;
    }
    let Some(relation) = internal_relation("dispatch") else { return pg_sys::Oid::from(10) };
    // SAFETY: opens a table of ours for reading its catalog entry only.
    let owner = unsafe {
        let opened = pg_sys::RelationIdGetRelation(relation);
        if opened.is_null() {
            return pg_sys::Oid::from(10);
        }
        let owner = (*(*opened).rd_rel).relowner;
        pg_sys::RelationClose(opened);
        owner
    };
    OWNER.set((catalog_generation(), owner));
    owner
}

/// Name of a role, None if it does not exist any more.
pub fn role_name(role: pg_sys::Oid) -> Option<String> {
    // SAFETY: a catalog look-up that returns a palloc'd string or null.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        (!name.is_null()).then(|| server_text::read_c(CStr::from_ptr(name)))
    }
}

/// The name of a database, or its oid if it is gone.
pub fn database_name(oid: pg_sys::Oid) -> String {
    // SAFETY: a catalog look-up inside a transaction.
    unsafe {
        let name = pg_sys::get_database_name(oid);
        if name.is_null() { oid.to_u32().to_string() } else { server_text::read_c(CStr::from_ptr(name)) }
    }
}

/// Name of the encoding in which this database keeps its texts. It never changes.
pub fn database_encoding() -> String {
    // SAFETY: returns a constant of the server, ASCII and NUL-terminated.
    unsafe { CStr::from_ptr(pg_sys::GetDatabaseEncodingName()) }.to_string_lossy().into_owned()
}

pub fn quote_identifier(name: &str) -> String {
    spi::quote_identifier(name)
}

/// schema.table of a relation, quoted where needed.
pub fn relation_name(relation: pg_sys::Oid) -> Option<String> {
    // SAFETY: look-ups that return palloc'd strings or null.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        let namespace = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        if name.is_null() || namespace.is_null() {
            return None;
        }
        Some(format!(
            "{}.{}",
            quote_identifier(&server_text::read_c(CStr::from_ptr(namespace))),
            quote_identifier(&server_text::read_c(CStr::from_ptr(name)))
        ))
    }
}

/// The schema of a relation, quoted where needed.
pub fn schema_of(relation: pg_sys::Oid) -> Option<String> {
    // SAFETY: look-ups that return a palloc'd string or null.
    unsafe {
        let namespace = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        (!namespace.is_null()).then(|| quote_identifier(&server_text::read_c(CStr::from_ptr(namespace))))
    }
}

/// Is a CREATE or ALTER EXTENSION script running? Then Postgres makes the objects that it creates members of the
/// extension.
pub fn creating_extension() -> bool {
    // SAFETY: reads a process global.
    unsafe { pg_sys::creating_extension }
}

/// Does the schema belong to this role?
pub fn owns_schema(name: &CStr, role: pg_sys::Oid) -> bool {
    // SAFETY: catalog look-ups; the tuple is released again.
    unsafe {
        let oid = pg_sys::get_namespace_oid(name.as_ptr(), true);
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::NAMESPACEOID as i32, pg_sys::Datum::from(oid));
        if tuple.is_null() {
            return false;
        }
        let owner = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_namespace>()).nspowner;
        pg_sys::ReleaseSysCache(tuple);
        owner == role
    }
}
