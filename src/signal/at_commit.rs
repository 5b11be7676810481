//! The end of a transaction: the conductor is woken if the transaction captured changes, claims that were not kept are
//! announced, and the modules that hold rows back until then (the event log, capture) are told. The callback runs
//! inside Postgres' commit, where an error would take the server down, so it sets flags and latches and nothing more.
#![allow(unsafe_code)]
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use pgrx::pg_sys;

use super::shmem;
use crate::pg::process::{self, my_database};

/// A module that keeps rows for a transaction and must know how the transaction ends. It is told of every
/// transaction in which one of the functions below was called.
pub struct Listener {
    /// The transaction is about to commit or to be prepared; errors are allowed.
    pub before_end: fn(),
    /// The transaction has committed. Must raise nothing.
    pub committed: fn(),
    /// The transaction was rolled back or prepared. Must raise nothing.
    pub gone: fn(),
    /// A subtransaction has ended well: its work belongs to its parent.
    pub handed_over: fn(pg_sys::SubTransactionId, pg_sys::SubTransactionId),
    /// A subtransaction was rolled back.
    pub rolled_back: fn(pg_sys::SubTransactionId),
}

static LISTENERS: OnceLock<&'static [Listener]> = OnceLock::new();

/// Called once when the library is loaded. The listeners are told in this order.
pub fn set_listeners(listeners: &'static [Listener]) {
    // A second call can only come from loading the library twice, with the same listeners.
    let _ = LISTENERS.set(listeners);
}

fn listeners() -> &'static [Listener] {
    LISTENERS.get().copied().unwrap_or_default()
}

thread_local! {
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    static CAPTURED: Cell<bool> = const { Cell::new(false) };
    static CLAIMED: Cell<bool> = const { Cell::new(false) };
    /// This transaction has queued dispatches, and is not the conductor's: the conductor knows of its own.
    static QUEUED: Cell<bool> = const { Cell::new(false) };
    /// This transaction has put work before other work.
    static BELOW: Cell<bool> = const { Cell::new(false) };
    /// This transaction has put messages into the outbox.
    static OUTBOX: Cell<bool> = const { Cell::new(false) };
    static LAUNCH: Cell<bool> = const { Cell::new(false) };
    /// This session has asked executors to give up a run.
    static REQUESTED: Cell<bool> = const { Cell::new(false) };
    /// The earliest deadline that this transaction has set.
    static TIMER: Cell<i64> = const { Cell::new(i64::MAX) };
}

fn register() {
    if !REGISTERED.replace(true) {
        // SAFETY: a plain function, registered once for the life of the process.
        unsafe {
            pg_sys::RegisterXactCallback(Some(on_transaction_event), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(on_subtransaction_event), std::ptr::null_mut());
        }
    }
}

/// Wakes the conductor when this transaction commits, however many rows it changed.
pub fn conductor_at_commit() {
    if !CAPTURED.replace(true) {
        register();
    }
}

/// Tells the conductor, when this transaction commits, that a timer is due at `due_at`.
pub fn timer_at_commit(due_at: i64) {
    if TIMER.get() == i64::MAX {
        register();
    }
    TIMER.set(TIMER.get().min(due_at));
}

/// Tells the conductor, when this transaction commits, that the transaction has queued dispatches for executors.
pub fn work_at_commit(any: bool) {
    if any && !process::is_worker() && !QUEUED.replace(true) {
        register();
    }
}

/// Tells the other claimers if this transaction gives the dispatches that it claimed back.
pub fn announce_if_claims_return() {
    if !CLAIMED.replace(true) {
        register();
    }
}

/// Tells the claimers, when this transaction commits, that there are dispatches below those they have claimed.
pub fn return_claims_at_commit() {
    if !BELOW.replace(true) {
        register();
    }
}

/// Tells the conductor, when this transaction commits, that there are messages to deliver.
pub fn courier_at_commit() {
    if !OUTBOX.replace(true) {
        register();
    }
}

/// Takes back this session's requests to executors should its transaction abort; a session that is terminated in the
/// middle ends so as well.
pub fn forget_requests_at_abort() {
    if !REQUESTED.replace(true) {
        register();
    }
}

/// Makes the launcher look at this database when this transaction commits.
pub fn launcher_at_commit() {
    if !LAUNCH.replace(true) {
        register();
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_subtransaction_event(
    event: pg_sys::SubXactEvent::Type,
    subtransaction: pg_sys::SubTransactionId,
    parent: pg_sys::SubTransactionId,
    _argument: *mut std::ffi::c_void,
) {
    match event {
        pg_sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => {
            listeners().iter().for_each(|listener| (listener.handed_over)(subtransaction, parent));
        }
        pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => {
            listeners().iter().for_each(|listener| (listener.rolled_back)(subtransaction));
        }
        _ => {}
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_transaction_event(event: pg_sys::XactEvent::Type, _argument: *mut std::ffi::c_void) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT | pg_sys::XactEvent::XACT_EVENT_PRE_PREPARE => {
            listeners().iter().for_each(|listener| (listener.before_end)());
        }
        pg_sys::XactEvent::XACT_EVENT_COMMIT => {
            REQUESTED.set(false);
            listeners().iter().for_each(|listener| (listener.committed)());
            CLAIMED.set(false);
            if BELOW.replace(false) {
                shmem::shared().claims_returned.fetch_add(1, Ordering::AcqRel);
            }
            let due_at = TIMER.replace(i64::MAX);
            if due_at != i64::MAX
                && let Some(slot) = shmem::shared().database(my_database())
            {
                slot.announce_timer(due_at);
            }
            if QUEUED.replace(false)
                && let Some(slot) = shmem::shared().database(my_database())
            {
                slot.announce_work();
            }
            if CAPTURED.replace(false)
                && let Some(slot) = shmem::shared().database(my_database())
            {
                slot.announce_events();
            }
            if OUTBOX.replace(false)
                && let Some(slot) = shmem::shared().database(my_database())
            {
                slot.announce_outbox();
            }
            if LAUNCH.replace(false) {
                shmem::shared().look_at_database(my_database());
            }
        }
        pg_sys::XactEvent::XACT_EVENT_ABORT | pg_sys::XactEvent::XACT_EVENT_PREPARE => {
            listeners().iter().for_each(|listener| (listener.gone)());
            CAPTURED.set(false);
            QUEUED.set(false);
            TIMER.set(i64::MAX);
            LAUNCH.set(false);
            OUTBOX.set(false);
            BELOW.set(false);
            if REQUESTED.replace(false) {
                shmem::shared().wanted.forget_mine();
            }
            if CLAIMED.replace(false) {
                shmem::shared().claims_returned.fetch_add(1, Ordering::AcqRel);
            }
        }
        _ => {}
    }
}
