//! Errors, warnings and notices in the database's encoding.
//!
//! pgrx reports a message as the UTF-8 that Rust has. In a database of another encoding a callback on the stack of
//! error contexts, which Postgres calls while it puts an error together, replaces the texts by converted ones.
use std::ffi::{CStr, CString, c_char, c_void};

use pgrx::pg_sys;

use super::raw::unguarded;
use super::server_text;

/// The texts of a message.
#[derive(Clone, Copy)]
pub struct Texts<'a> {
    pub message: &'a str,
    pub detail: Option<&'a str>,
    pub hint: Option<&'a str>,
}

/// The texts as the database has them. `given` is the message as pgrx hands it over, by which it is known again.
#[repr(C)]
struct Converted {
    given: *const c_char,
    message: *const c_char,
    detail: *const c_char,
    hint: *const c_char,
}

/// Converts the texts of the error that is about to be raised. The callback stays on the stack of error contexts; the
/// code that catches the error takes it off, as `PG_TRY` and `ErrorContexts` do.
pub fn convert_next_error(texts: Texts<'_>) {
    if needs_conversion(texts) {
        // SAFETY: the catcher of the error restores the stack.
        unsafe { push(texts) };
    }
}

/// Reports something that is no error, with its texts converted.
pub fn converted(texts: Texts<'_>, report: impl FnOnce()) {
    if !needs_conversion(texts) {
        return report();
    }
    let _contexts = ErrorContexts::keep();
    // SAFETY: the callback is taken off when `_contexts` is dropped.
    unsafe { push(texts) };
    report();
}

/// A warning of a worker, for the server's log.
pub fn warning(message: String) {
    let texts = Texts { message: &message, detail: None, hint: None };
    converted(texts, || pgrx::warning!("{message}"));
}

fn needs_conversion(texts: Texts<'_>) -> bool {
    let texts = [Some(texts.message), texts.detail, texts.hint];
    !server_text::is_utf8() && texts.into_iter().flatten().any(|text| !text.is_ascii())
}

/// Restores the stack of error contexts when dropped, also when an error unwinds.
pub struct ErrorContexts(*mut pg_sys::ErrorContextCallback);

impl ErrorContexts {
    pub fn keep() -> Self {
        // SAFETY: reads a process global.
        ErrorContexts(unsafe { pg_sys::error_context_stack })
    }
}

impl Drop for ErrorContexts {
    fn drop(&mut self) {
        // SAFETY: the entries that were on the stack when `keep` was called belong to callers that are still there.
        unsafe { pg_sys::error_context_stack = self.0 }
    }
}

/// Puts the callback on the stack.
///
/// # Safety
/// The entry must be taken off the stack before the transaction ends.
unsafe fn push(texts: Texts<'_>) {
    // SAFETY: everything the callback reads is in the memory of the transaction, or of the process if there is none:
    // both outlive the report.
    unsafe {
        let memory = match pg_sys::TopTransactionContext {
            none if none.is_null() => pg_sys::TopMemoryContext,
            transaction => transaction,
        };
        let kept = |bytes: &[u8]| {
            let text = CString::new(bytes).unwrap_or_default();
            pg_sys::MemoryContextStrdup(memory, text.as_ptr()).cast_const()
        };
        let converted = |text: Option<&str>| match text {
            Some(text) => kept(&server_text::write(text)),
            None => std::ptr::null(),
        };
        let argument = pg_sys::MemoryContextAllocZero(memory, size_of::<Converted>()).cast::<Converted>();
        *argument = Converted {
            given: kept(texts.message.as_bytes()),
            message: converted(Some(texts.message)),
            detail: converted(texts.detail),
            hint: converted(texts.hint),
        };
        let callback = pg_sys::MemoryContextAllocZero(memory, size_of::<pg_sys::ErrorContextCallback>())
            .cast::<pg_sys::ErrorContextCallback>();
        (*callback).previous = pg_sys::error_context_stack;
        (*callback).callback = Some(replace_texts);
        (*callback).arg = argument.cast();
        pg_sys::error_context_stack = callback;
    }
}

unsafe extern "C-unwind" fn replace_texts(argument: *mut c_void) {
    // SAFETY: `argument` is the value that `push` put there. The functions only set fields of the message being put
    // together, which is looked at as a copy: another one, of code that runs while the error unwinds, must keep its own
    // texts.
    unsafe {
        let texts = &*argument.cast::<Converted>();
        let memory = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let current = unguarded::CopyErrorData();
        let is_meant =
            !(*current).message.is_null() && CStr::from_ptr((*current).message) == CStr::from_ptr(texts.given);
        unguarded::FreeErrorData(current);
        pg_sys::MemoryContextSwitchTo(memory);
        if !is_meant {
            return;
        }
        unguarded::errmsg_internal(c"%s".as_ptr(), texts.message);
        if !texts.detail.is_null() {
            unguarded::errdetail_internal(c"%s".as_ptr(), texts.detail);
        }
        if !texts.hint.is_null() {
            unguarded::errhint(c"%s".as_ptr(), texts.hint);
        }
    }
}
