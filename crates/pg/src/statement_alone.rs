//! Tells whether the statement under way is the only one of its transaction, so that the transaction ends with it.
#![allow(unsafe_code)]
use pgrx::pg_sys;

use super::ordinary_insert::fast_append;
use super::raw::unguarded;

/// Does the transaction end with the statement under way? Asked at its end; yes only if nothing of the client's or of a
/// function's can come in between. Always no with `automation_engine.fast_append = off`.
pub fn transaction_ends() -> bool {
    fast_append() && is_alone()
}

fn is_alone() -> bool {
    // SAFETY: reads state of the current process, and bytes that have arrived from the client already.
    unsafe {
        pg_sys::MyBackendType == pg_sys::BackendType::B_BACKEND
            && !unguarded::IsTransactionBlock()
            && returns_nothing()
            && (is_simple_query() || is_last_of_protocol())
    }
}

/// Does the statement return no rows? Rows are sent before the transaction ends, however long the client takes to read
/// them.
unsafe fn returns_nothing() -> bool {
    // SAFETY: reads a process global, which points to the portal that is being run.
    unsafe {
        let portal = pg_sys::ActivePortal;
        !portal.is_null() && (*portal).strategy == pg_sys::PortalStrategy::PORTAL_MULTI_QUERY
    }
}

/// Is the statement a query sent as text? Code that runs statements inside of others leaves an entry on the stack of
/// error callbacks; a query as text leaves none.
unsafe fn is_simple_query() -> bool {
    // SAFETY: reads a process global.
    unsafe { pg_sys::error_context_stack.is_null() }
}

/// A statement that was prepared over the protocol leaves an entry for its parameters. It is the last one if the
/// client's next message is the one that ends the transaction.
unsafe fn is_last_of_protocol() -> bool {
    const SYNC: i32 = b'S' as i32;
    // SAFETY: the stack is not empty. While a statement is executed no message is being read, so the type of the
    // next one may be looked at; that does not wait, for bytes have arrived.
    unsafe {
        let note = &*pg_sys::error_context_stack;
        let of_parameters = unguarded::ParamsErrorCallback as unsafe extern "C-unwind" fn(_);
        if !note.previous.is_null() || !note.callback.is_some_and(|of| std::ptr::fn_addr_eq(of, of_parameters)) {
            return false;
        }
        if !unguarded::has_unread_message() {
            return false;
        }
        unguarded::pq_startmsgread();
        let next = unguarded::pq_peekbyte();
        unguarded::pq_endmsgread();
        next == SYNC
    }
}
