//! Load beside a test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs `body` while `count` threads repeat `work`; returns when all have ended, also if `body` panics.
pub fn in_background<T>(count: usize, work: impl Fn() + Sync, body: impl FnOnce() -> T) -> T {
    struct StopAtEnd<'a>(&'a AtomicBool);
    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for _ in 0..count {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        body()
    })
}
