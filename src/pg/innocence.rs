//! Telling a run that crashed the server from one that was only there when something else did.
//!
//! When a process dies, the postmaster sends SIGQUIT to all others; the one that died gets none. So an executor that is
//! told to quit while it tries a suspicious dispatch leaves a file behind that says so, and whoever tries the dispatch
//! next does not count that attempt. Everything in the signal handler is async-signal-safe.
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::pg_sys;

const LENGTH: usize = 96;

/// Path of the file to leave behind, NUL-terminated, relative to the data directory.
static mut PATH: [u8; LENGTH] = [0; LENGTH];
static PROTESTING: AtomicBool = AtomicBool::new(false);

fn path_of(dispatch: i64) -> String {
    // SAFETY: reads a process global.
    let database = unsafe { pg_sys::MyDatabaseId };
    // pg_stat survives a crash, unlike the folders for temporary files.
    format!("pg_stat/automation_engine.{}.{dispatch}", database.to_u32())
}

unsafe extern "C-unwind" fn on_quit(_signal: c_int) {
    // SAFETY: open and _exit are async-signal-safe; the path does not change while PROTESTING is set.
    unsafe {
        if PROTESTING.load(Ordering::Acquire) {
            libc::open((&raw const PATH).cast(), libc::O_CREAT | libc::O_WRONLY, 0o600);
        }
        libc::_exit(2);
    }
}

/// Makes this process leave word when it must quit because another one crashed.
pub fn attend_crashes() {
    // SAFETY: a worker at its start; the handler ends the process just as Postgres' own would.
    unsafe { pg_sys::pqsignal(libc::SIGQUIT, Some(on_quit)) };
}

/// From now on, until `protest_no_more`, this dispatch is what the process tries.
pub fn protest_for(dispatch: i64) {
    PROTESTING.store(false, Ordering::Release);
    let path = path_of(dispatch);
    // SAFETY: single-threaded, and the handler does not look while PROTESTING is not set.
    unsafe {
        let target = (&raw mut PATH).cast::<u8>();
        let length = path.len().min(LENGTH - 1);
        std::ptr::copy_nonoverlapping(path.as_ptr(), target, length);
        target.add(length).write(0);
    }
    PROTESTING.store(true, Ordering::Release);
}

pub fn protest_no_more() {
    PROTESTING.store(false, Ordering::Release);
}

/// Did the last process that tried this dispatch have to quit because of another? Takes the word it left.
pub fn was_innocent(dispatch: i64) -> bool {
    std::fs::remove_file(path_of(dispatch)).is_ok()
}
