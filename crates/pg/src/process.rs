//! Registering processes with the postmaster, and the first acts of every process.
use std::ffi::CStr;
use std::time::Duration;

use pgrx::pg_sys;

use super::raw::unguarded;
use super::server_text;

/// A process to be started.
pub struct Process<'a> {
    pub name: &'a str,
    pub kind: &'a CStr,
    pub function: &'a CStr,
    pub argument: usize,
    /// Seconds until the postmaster starts it again after a crash of its own; None leaves that to us.
    pub restart_after: Option<i32>,
}

fn describe(process: &Process<'_>) -> pg_sys::BackgroundWorker {
    let mut flags = pg_sys::BGWORKER_SHMEM_ACCESS as i32;
    flags |= pg_sys::BGWORKER_BACKEND_DATABASE_CONNECTION as i32;
    let mut worker = pg_sys::BackgroundWorker {
        bgw_flags: flags,
        // Not on a standby: there the process waits for promotion.
        bgw_start_time: pg_sys::BgWorkerStartTime::BgWorkerStart_RecoveryFinished,
        bgw_restart_time: process.restart_after.unwrap_or(-1),
        bgw_main_arg: pg_sys::Datum::from(process.argument),
        // SAFETY: reads a process global; 0 in the postmaster.
        bgw_notify_pid: unsafe { pg_sys::MyProcPid },
        ..Default::default()
    };
    copy(&mut worker.bgw_name, &server_text::write(process.name));
    copy(&mut worker.bgw_type, process.kind.to_bytes());
    copy(&mut worker.bgw_library_name, b"automation_engine");
    copy(&mut worker.bgw_function_name, process.function.to_bytes());
    worker
}

fn copy(target: &mut [std::ffi::c_char; 96], text: &[u8]) {
    for (slot, byte) in target.iter_mut().zip(text.iter().take(95)) {
        *slot = *byte as std::ffi::c_char;
    }
}

/// Registers a process while the postmaster preloads us.
pub fn register_static(process: &Process<'_>) {
    let mut worker = describe(process);
    worker.bgw_notify_pid = 0;
    // SAFETY: called from _PG_init in the postmaster.
    unsafe { pg_sys::RegisterBackgroundWorker(&mut worker) }
}

/// A process that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Handle(*mut pg_sys::BackgroundWorkerHandle);

impl Handle {
    /// Has the process ended (or never come up)?
    pub fn has_ended(self) -> bool {
        let mut pid = 0;
        // SAFETY: a handle from RegisterDynamicBackgroundWorker, kept until `free`.
        let status = unsafe { pg_sys::GetBackgroundWorkerPid(self.0, &mut pid) };
        status == pg_sys::BgwHandleStatus::BGWH_STOPPED || status == pg_sys::BgwHandleStatus::BGWH_POSTMASTER_DIED
    }

    pub fn terminate(self) {
        // SAFETY: as above.
        unsafe { pg_sys::TerminateBackgroundWorker(self.0) }
    }

    pub fn free(self) {
        // SAFETY: the handle was palloc'd for us and is not used again.
        unsafe { pg_sys::pfree(self.0.cast()) }
    }
}

/// Asks the postmaster for a process. None if max_worker_processes is used up.
pub fn start(process: &Process<'_>) -> Option<Handle> {
    let mut worker = describe(process);
    let mut handle = std::ptr::null_mut();
    // SAFETY: the handle must outlive transactions, so it is allocated in the top context.
    let started = unsafe {
        let previous = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let started = pg_sys::RegisterDynamicBackgroundWorker(&mut worker, &mut handle);
        pg_sys::MemoryContextSwitchTo(previous);
        started
    };
    started.then_some(Handle(handle))
}

/// Signals: SIGTERM is answered at once, SIGHUP is noted for the loop.
pub fn attend_signals() {
    // SAFETY: a worker at its start, before signals are unblocked.
    unsafe {
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(unguarded::die));
        pg_sys::pqsignal(pg_sys::SIGHUP as i32, Some(unguarded::SignalHandlerForConfigReload));
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

/// Shows the purpose of this process in pg_stat_activity. Names and ids only, never SQL or values.
pub fn set_application_name(name: &str) {
    let Ok(text) = std::ffi::CString::new(&*server_text::write(name)) else { return };
    // SAFETY: NUL-terminated strings.
    unsafe {
        pg_sys::SetConfigOption(
            c"application_name".as_ptr(),
            text.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
        );
    }
}

/// Sleeps until the latch is set or the time is up, then serves interrupts and re-reads the configuration if asked.
/// True if the latch was set.
pub fn wait(timeout: Duration) -> bool {
    let flags = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: a worker between transactions, waiting on its own latch.
    let events = unsafe {
        let events = pg_sys::WaitLatch(
            pg_sys::MyLatch,
            flags as i32,
            timeout.as_millis().min(i32::MAX as u128) as std::ffi::c_long,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
        events
    };
    serve_interrupts();
    reload_if_asked();
    events & pg_sys::WL_LATCH_SET as i32 != 0
}

/// Lets a session sleep for a moment inside its transaction; a request to cancel it is answered.
pub fn nap(timeout: Duration) {
    let flags = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: a session waiting on its own latch.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            flags as i32,
            timeout.as_millis() as std::ffi::c_long,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pgrx::check_for_interrupts!();
}

/// Serves interrupts between transactions. A request to cancel the statement under way comes to nothing, as in a
/// session that is idle: there is none.
fn serve_interrupts() {
    // SAFETY: counts and flags of this process. While the count is not 0, a request to cancel stays pending, so that
    // none that comes in between ends the process.
    unsafe {
        let held = &raw mut pg_sys::QueryCancelHoldoffCount;
        std::ptr::write_volatile(held, std::ptr::read_volatile(held) + 1);
        pgrx::check_for_interrupts!();
        std::ptr::write_volatile(&raw mut pg_sys::QueryCancelPending, 0);
        std::ptr::write_volatile(held, std::ptr::read_volatile(held).saturating_sub(1));
    }
}

/// Why a wait ended.
pub struct Woken {
    /// The settings were read again.
    pub reloaded: bool,
}

/// As `wait`, and until the descriptor is readable.
pub fn wait_for(descriptor: i32, timeout: Duration) -> Woken {
    let flags = pg_sys::WL_LATCH_SET | pg_sys::WL_SOCKET_READABLE | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: a worker between transactions, waiting on its own latch and on a descriptor that it keeps open.
    unsafe {
        pg_sys::WaitLatchOrSocket(
            pg_sys::MyLatch,
            flags as i32,
            descriptor,
            timeout.as_millis().min(i32::MAX as u128) as std::ffi::c_long,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    serve_interrupts();
    Woken { reloaded: reload_if_asked() }
}

/// Hands in the statistics that are held back after work, as a session does when it has been idle for a second. Without
/// it they would show up much later, as if an idle process had been at work.
pub fn report_statistics() {
    // SAFETY: a worker between transactions.
    unsafe { pg_sys::pgstat_report_stat(true) };
}

fn reload_if_asked() -> bool {
    // SAFETY: between transactions, so no setting changes under work that is half done.
    unsafe {
        let asked = std::ptr::read_volatile(&raw const pg_sys::ConfigReloadPending) != 0;
        if asked {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
        asked
    }
}

/// Is the process with this pid still a backend of this server?
pub fn is_alive(pid: i32) -> bool {
    // SAFETY: scans the array of processes under its lock.
    pid != 0 && unsafe { !pg_sys::BackendPidGetProc(pid).is_null() }
}

/// Ends a process of this server as pg_terminate_backend() does, also in the middle of a statement.
pub fn terminate(pid: i32) {
    if is_alive(pid) {
        // SAFETY: a signal to a process that was a backend of this server a moment ago.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Is this process a background worker, not a session?
pub fn is_worker() -> bool {
    // SAFETY: reads a process global.
    unsafe { pg_sys::MyBackendType == pg_sys::BackendType::B_BG_WORKER }
}

pub fn exit(code: i32) -> ! {
    // SAFETY: ends this process through Postgres' own clean-up.
    unsafe { pg_sys::proc_exit(code) }
}

/// Runs `work` when this process ends, however it ends short of SIGKILL.
pub fn at_exit(work: unsafe extern "C-unwind" fn(i32, pg_sys::Datum), argument: usize) {
    // SAFETY: the callback touches only shared memory.
    unsafe { pg_sys::before_shmem_exit(Some(work), pg_sys::Datum::from(argument)) }
}

pub fn in_binary_upgrade() -> bool {
    // SAFETY: reads a process global.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// Is the postmaster loading us from shared_preload_libraries?
pub fn preloading() -> bool {
    // SAFETY: reads a process global.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// The database this process is connected to.
pub fn my_database() -> pg_sys::Oid {
    // SAFETY: reads a process global.
    unsafe { pg_sys::MyDatabaseId }
}
