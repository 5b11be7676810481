//! Notifications, sent when the transaction commits.
use std::ffi::CString;

use pgrx::pg_sys;

use super::{raw, server_text};

/// How full the server's queue of notifications is, from 0 to 1.
pub fn queue_usage() -> f64 {
    // SAFETY: a function without arguments that reads shared memory.
    let usage = unsafe { pgrx::direct_function_call::<f64>(pg_sys::pg_notification_queue_usage, &[]) };
    usage.unwrap_or_default()
}

/// Sends one notification. A text with a zero byte cannot be sent, and no text of the server's has one.
pub fn send(channel: &str, payload: &str) {
    let c_string = |text: &str| CString::new(&*server_text::write(text));
    let (Ok(channel), Ok(payload)) = (c_string(channel), c_string(payload)) else { return };
    // SAFETY: inside a transaction, with C strings that are copied.
    unsafe { raw::Async_Notify(channel.as_ptr(), payload.as_ptr()) }
}
