//! Making way for commands that need a database, or our tables, to themselves: DROP DATABASE, ALTER DATABASE RENAME and
//! SET TABLESPACE, CREATE DATABASE TEMPLATE, DROP EXTENSION, ALTER EXTENSION UPDATE. The session that runs one asks the
//! workers of that database to leave, waits until they have, and lets them return when its transaction ends.
#![allow(unsafe_code)]
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::Ordering;

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::capture::end_of_statement;
use crate::pg::raw::unguarded;
use crate::signal::shmem::{DatabaseSlot, STATE_ABSENT, STATE_UNKNOWN, shared};
use crate::store::kinds;

/// Most milliseconds to wait for workers to leave; then the command goes on, and Postgres reports any worker that is
/// still in its way.
const PATIENCE_MS: i64 = 10_000;

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

thread_local! {
    /// Databases this session holds.
    static HELD: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Called from _PG_init.
pub fn install_hook() {
    // SAFETY: hooks are chained when the library is loaded.
    unsafe {
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// Every utility statement of every session passes here, also of applications that do not use the engine. Postgres' own
/// work has no guard around it: a guard would raise its errors again without their SQLSTATE, context, position and
/// names.
#[allow(clippy::too_many_arguments)]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    query: *const std::ffi::c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    destination: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the arguments are passed on as they came; no value with a destructor is alive while Postgres works, so an
    // error may jump over this frame.
    unsafe {
        let tag = (*(*statement).utilityStmt).type_;
        if may_need_quiet(tag) {
            make_way((*statement).utilityStmt);
        }
        match PREVIOUS {
            Some(previous) => {
                previous(statement, query, read_only_tree, context, params, environment, destination, completion);
            }
            None => unguarded::standard_ProcessUtility(
                statement,
                query,
                read_only_tree,
                context,
                params,
                environment,
                destination,
                completion,
            ),
        }
        if tag == pg_sys::NodeTag::T_CopyStmt {
            after_copy();
        }
    }
}

/// Is this a kind of statement that `database_needed` looks into? All others go straight to Postgres.
fn may_need_quiet(tag: pg_sys::NodeTag) -> bool {
    matches!(
        tag,
        pg_sys::NodeTag::T_DropdbStmt
            | pg_sys::NodeTag::T_RenameStmt
            | pg_sys::NodeTag::T_AlterDatabaseStmt
            | pg_sys::NodeTag::T_CreatedbStmt
            | pg_sys::NodeTag::T_DropStmt
            | pg_sys::NodeTag::T_AlterExtensionStmt
    )
}

/// Asks the workers to leave the database that the statement needs, if it needs one.
#[pg_guard]
unsafe extern "C-unwind" fn make_way(statement: *mut pg_sys::Node) {
    // SAFETY: a node of the parse tree.
    unsafe {
        if let Some(database) = database_needed(statement) {
            hold(database);
            if (*statement).type_ == pg_sys::NodeTag::T_DropStmt {
                lock_watched_tables();
            }
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn after_copy() {
    end_of_statement::after_copy();
}

/// The database that the statement needs without our workers, if the caller has the right to ask for that.
unsafe fn database_needed(statement: *mut pg_sys::Node) -> Option<pg_sys::Oid> {
    // SAFETY: nodes are cast only after their tag was checked.
    unsafe {
        match (*statement).type_ {
            pg_sys::NodeTag::T_DropdbStmt => owned((*statement.cast::<pg_sys::DropdbStmt>()).dbname),
            pg_sys::NodeTag::T_RenameStmt => {
                let rename = statement.cast::<pg_sys::RenameStmt>();
                ((*rename).renameType == pg_sys::ObjectType::OBJECT_DATABASE)
                    .then(|| owned((*rename).subname))
                    .flatten()
            }
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let alter = statement.cast::<pg_sys::AlterDatabaseStmt>();
                // The other options, such as CONNECTION LIMIT, only change the catalog, and a transaction that does so
                // may stay open for as long as its session likes.
                option_of((*alter).options, b"tablespace").and_then(|_| owned((*alter).dbname))
            }
            pg_sys::NodeTag::T_CreatedbStmt => template_of(statement.cast()),
            pg_sys::NodeTag::T_DropStmt => {
                let drop = statement.cast::<pg_sys::DropStmt>();
                ((*drop).removeType == pg_sys::ObjectType::OBJECT_EXTENSION && names_us((*drop).objects))
                    .then(|| my_database_if_owner())
                    .flatten()
            }
            pg_sys::NodeTag::T_AlterExtensionStmt => {
                let name = (*statement.cast::<pg_sys::AlterExtensionStmt>()).extname;
                (CStr::from_ptr(name).to_bytes() == b"automation_engine").then(|| my_database_if_owner()).flatten()
            }
            _ => None,
        }
    }
}

unsafe fn owned(name: *const std::ffi::c_char) -> Option<pg_sys::Oid> {
    // SAFETY: a NUL-terminated name from the parse tree; catalog look-ups.
    unsafe {
        if name.is_null() {
            return None;
        }
        let oid = pg_sys::get_database_oid(name, true);
        (oid != pg_sys::InvalidOid && pg_sys::pg_database_ownercheck(oid, pg_sys::GetUserId())).then_some(oid)
    }
}

unsafe fn template_of(statement: *mut pg_sys::CreatedbStmt) -> Option<pg_sys::Oid> {
    // SAFETY: the options of CREATE DATABASE.
    unsafe { option_of((*statement).options, b"template").and_then(|option| owned(pg_sys::defGetString(option))) }
}

/// The option of this name.
unsafe fn option_of(options: *mut pg_sys::List, name: &[u8]) -> Option<*mut pg_sys::DefElem> {
    // SAFETY: a list of DefElem nodes.
    unsafe {
        pgrx::PgList::<pg_sys::DefElem>::from_pg(options)
            .iter_ptr()
            .find(|option| CStr::from_ptr((**option).defname).to_bytes() == name)
    }
}

unsafe fn names_us(objects: *mut pg_sys::List) -> bool {
    // SAFETY: DROP EXTENSION's list holds String nodes.
    unsafe {
        pgrx::PgList::<pg_sys::String>::from_pg(objects)
            .iter_ptr()
            .any(|name| CStr::from_ptr((*name).sval).to_bytes() == b"automation_engine")
    }
}

unsafe fn my_database_if_owner() -> Option<pg_sys::Oid> {
    // SAFETY: catalog look-ups.
    unsafe {
        let extension = pg_sys::get_extension_oid(c"automation_engine".as_ptr(), true);
        (extension != pg_sys::InvalidOid && pg_sys::pg_extension_ownercheck(extension, pg_sys::GetUserId()))
            .then_some(pg_sys::MyDatabaseId)
    }
}

/// A writer locks its own table first and our log second; dropping the extension must do it in the same order.
fn lock_watched_tables() {
    let mut tables: Vec<pg_sys::Oid> = kinds::all().into_iter().filter_map(|kind| kind.relation).collect();
    tables.sort_unstable_by_key(|oid| oid.to_u32());
    for table in tables {
        // SAFETY: opens the table if it still exists, keeps the lock until the transaction ends.
        unsafe {
            let opened = pg_sys::try_relation_open(table, pg_sys::AccessExclusiveLock as i32);
            if !opened.is_null() {
                pg_sys::relation_close(opened, pg_sys::NoLock as i32);
            }
        }
    }
}

/// Asks the workers of a database to leave and waits until they have.
fn hold(database: pg_sys::Oid) {
    // Also where no worker has been yet: none is to come while the command runs.
    let Some(slot) = shared().hold_database(database) else { return };
    register();
    let mut held = HELD.take();
    if !held.contains(&database.to_u32()) {
        held.push(database.to_u32());
    }
    HELD.set(held);
    slot.wake_conductor();
    for waited in 0..PATIENCE_MS / 5 {
        let gone = slot.conductor_pid.load(Ordering::Acquire) == 0
            && slot.state.load(Ordering::Acquire) != crate::signal::shmem::STATE_STARTING
            && slot.courier_pid.load(Ordering::Acquire) == 0
            && shared().executors_of(database).next().is_none();
        if gone {
            return;
        }
        if waited % 20 == 0 {
            slot.wake_conductor();
            stop_executors(database);
            stop_courier(slot);
        }
        sleep();
    }
}

/// In case the conductor is gone already and cannot do it.
fn stop_executors(database: pg_sys::Oid) {
    for executor in shared().executors_of(database) {
        executor.stop.store(true, Ordering::Release);
        let pid = executor.pid.load(Ordering::Acquire);
        if pid != 0 {
            // SAFETY: SIGTERM to a worker of ours, as pg_terminate_backend would send it.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        } else if executor.registered_at.load(Ordering::Acquire) < crate::pg::clock::now() - 5_000_000 {
            executor.release();
        }
    }
}

fn stop_courier(slot: &DatabaseSlot) {
    slot.stop_courier();
    let pid = slot.courier_pid.load(Ordering::Acquire);
    if pid != 0 {
        // SAFETY: SIGTERM to a worker of ours, as pg_terminate_backend would send it.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

fn sleep() {
    // SAFETY: waits a little on our own latch, then serves interrupts.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as i32,
            5,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pgrx::check_for_interrupts!();
}

fn register() {
    if !REGISTERED.replace(true) {
        // SAFETY: a plain function, registered once for the life of the process.
        unsafe { pg_sys::RegisterXactCallback(Some(on_transaction_end), std::ptr::null_mut()) }
    }
}

unsafe extern "C-unwind" fn on_transaction_end(event: pg_sys::XactEvent::Type, _argument: *mut std::ffi::c_void) {
    let ended = matches!(
        event,
        pg_sys::XactEvent::XACT_EVENT_COMMIT
            | pg_sys::XactEvent::XACT_EVENT_ABORT
            | pg_sys::XactEvent::XACT_EVENT_PREPARE
    );
    if !ended {
        return;
    }
    let held = HELD.take();
    if held.is_empty() {
        return;
    }
    for database in held {
        if let Some(slot) = shared().database(pg_sys::Oid::from(database)) {
            slot.quiesced_by.store(0, Ordering::Release);
            if slot.state.load(Ordering::Acquire) == STATE_ABSENT {
                slot.state.store(STATE_UNKNOWN, Ordering::Release);
            }
        }
    }
    shared().wake_launcher();
}
