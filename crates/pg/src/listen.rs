//! Where this server accepts connections.
use std::ffi::CStr;

use pgrx::pg_sys;

/// The text of `listen_addresses`, and the port.
pub fn addresses() -> (String, u16) {
    // SAFETY: reads two process globals; the string is NUL-terminated and set before any process is started.
    unsafe {
        let addresses = pg_sys::ListenAddresses;
        let text =
            if addresses.is_null() { String::new() } else { super::server_text::read_c(CStr::from_ptr(addresses)) };
        (text, u16::try_from(pg_sys::PostPortNumber).unwrap_or(0))
    }
}
