//! Telling a run that crashed the server from a run that was only under way when something else did.
//!
//! An executor that tries a suspicious dispatch writes a file about the attempt: under which postmaster, and how the
//! process ended, which is "silent" until it can say otherwise. When a process dies, the postmaster sends SIGQUIT to
//! all other processes. So an executor that is told to quit, or leaves in an orderly way, corrects the file, and the
//! next process that tries the dispatch asks `automation_core::suspicion`. All calls of the signal handler are
//! async-signal-safe.
use std::ffi::c_int;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::report;

use automation_core::suspicion::{End, LastAttempt, judge};
use pgrx::pg_sys;

const LENGTH: usize = 96;

/// The first byte of a file.
const SILENT: u8 = b'?';
const QUIT: u8 = b'Q';
const LEFT: u8 = b'L';

/// Path of the file, NUL-terminated, relative to the data directory.
static mut PATH: [u8; LENGTH] = [0; LENGTH];
static PROTESTING: AtomicBool = AtomicBool::new(false);

fn path_of(dispatch: i64) -> String {
    // SAFETY: reads a process global.
    let database = unsafe { pg_sys::MyDatabaseId };
    // pg_stat survives a crash, unlike the folders for temporary files.
    format!("pg_stat/automation_engine.{}.{dispatch}", database.to_u32())
}

/// When the postmaster started; the same before and after a crash that it survives.
fn server() -> i64 {
    // SAFETY: reads a process global that is inherited from the postmaster.
    unsafe { pg_sys::PgStartTime }
}

/// Corrects the first byte of the file. Async-signal-safe.
fn correct(byte: u8) {
    // SAFETY: open, write and close are async-signal-safe; the path does not change while PROTESTING is set.
    unsafe {
        let file = libc::open((&raw const PATH).cast(), libc::O_WRONLY);
        if file >= 0 {
            libc::write(file, (&raw const byte).cast(), 1);
            libc::close(file);
        }
    }
}

unsafe extern "C-unwind" fn on_quit(_signal: c_int) {
    if PROTESTING.load(Ordering::Acquire) {
        correct(QUIT);
    }
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(2) }
}

/// Makes this process leave word when it must quit because another one crashed.
pub fn attend_crashes() {
    // SAFETY: a worker at its start; the handler ends the process just as Postgres' own would.
    unsafe { pg_sys::pqsignal(libc::SIGQUIT, Some(on_quit)) };
}

/// This process leaves in the middle of its work, and is able to say so. A process that leaves because the postmaster
/// is dead does not say so: the step may have killed the postmaster. `asked`: the engine itself asked the process to
/// leave.
pub fn leave(asked: bool) {
    // SAFETY: reads a process global; getppid() changes when the parent dies.
    let orphaned = unsafe { libc::getppid() != pg_sys::PostmasterPid };
    if PROTESTING.swap(false, Ordering::AcqRel) && !orphaned {
        correct(if asked { QUIT } else { LEFT });
    }
}

/// From now on, until `protest_no_more`, this dispatch is the one that the process tries. `doubtful`: see
/// `judge_last`. If the file cannot be written, the attempt does not count.
pub fn protest_for(dispatch: i64, doubtful: u32) {
    PROTESTING.store(false, Ordering::Release);
    let path = path_of(dispatch);
    // SAFETY: single-threaded, and the handler does not look while PROTESTING is not set.
    unsafe {
        let target = (&raw mut PATH).cast::<u8>();
        let length = path.len().min(LENGTH - 1);
        std::ptr::copy_nonoverlapping(path.as_ptr(), target, length);
        target.add(length).write(0);
    }
    // Not flushed: if a power cut takes the file with it, one doubtful end less is known, which seldom matters.
    let written =
        File::create(&path).and_then(|mut file| write!(file, "{} {} {doubtful}", char::from(SILENT), server()));
    if let Err(error) = written {
        report::warning(format!("automation_engine: cannot write {path}: {error}"));
    }
    PROTESTING.store(true, Ordering::Release);
}

/// The dispatch that the process tried has ended, or was not tried.
pub fn protest_no_more(dispatch: i64) {
    PROTESTING.store(false, Ordering::Release);
    // A file that is not there need not be removed.
    let _ = std::fs::remove_file(path_of(dispatch));
}

/// Does the last attempt at this dispatch count as a crash? And how many ends of processes that tried it were doubtful
/// so far. An attempt of which nothing is known does not count.
pub fn judge_last(dispatch: i64) -> (bool, u32) {
    read(dispatch).map_or((false, 0), judge)
}

fn read(dispatch: i64) -> Option<LastAttempt> {
    let mut text = String::new();
    File::open(path_of(dispatch)).ok()?.read_to_string(&mut text).ok()?;
    let mut words = text.split_whitespace();
    let end = match words.next()?.as_bytes() {
        [SILENT] => End::Silent,
        [QUIT] => End::Quit,
        [LEFT] => End::Left,
        _ => return None,
    };
    let same_server = words.next()?.parse() == Ok(server());
    Some(LastAttempt { end, same_server, doubtful: words.next()?.parse().ok()? })
}
