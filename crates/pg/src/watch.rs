//! Watches evaluations of expressions: the time that they take on the processor, and Postgres' interrupts. A machine
//! that is busy with other things makes no filter fail, because the time on the wall does not count.
use automation_core::expr::{Watch, watch_evaluations};

/// Has every evaluation of this process watched. `most` says how many microseconds of the processor one may take.
pub fn install(most: fn() -> u64) {
    watch_evaluations(Watch { spent, most, serve });
}

/// Microseconds that this thread has spent on the processor.
fn spent() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the structure that it is given.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0;
    if failed { 0 } else { time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000 }
}

/// Serves the interrupts that Postgres has pending: the end of the process, a cancelled statement, a barrier of all
/// processes. An error unwinds through the evaluation, as one of a state that cannot be read does, and rolls back the
/// work that the evaluation was part of.
pub fn serve() {
    pgrx::check_for_interrupts!();
}
