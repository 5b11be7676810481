//! Threads beside Postgres. They must not call it, and must not get its signals: a handler of Postgres that ran in one
//! of them would touch the state of a process that believes to have one thread only.
use std::io;

/// Starts a thread that gets no signals; threads that it starts itself get none either.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: plain C structures; the mask of this thread is put back as it was, even if the new thread cannot be
    // started.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = std::thread::Builder::new().name(name.to_owned()).stack_size(512 * 1024).spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started.map(|_| ())
    }
}
