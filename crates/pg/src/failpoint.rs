//! Named points at which a test can stop, fail or kill the process (feature `failpoints`; nothing otherwise).

#[cfg(feature = "failpoints")]
use std::ffi::CString;

#[cfg(feature = "failpoints")]
use pgrx::GucSetting;

/// The setting `automation_engine.failpoint`, registered with all others by the extension.
#[cfg(feature = "failpoints")]
pub static SETTING: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

#[cfg(feature = "failpoints")]
fn setting() -> Option<String> {
    SETTING.get().map(|text| text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

/// Performs the action that `automation_engine.failpoint` sets for `name`, e.g. `after_claim=kill` or
/// `before_commit/3=error`.
#[cfg(feature = "failpoints")]
pub fn failpoint(name: &str) {
    use std::cell::RefCell;
    use std::collections::HashMap;

    thread_local!(static PASSES: RefCell<HashMap<String, u32>> = RefCell::new(HashMap::new()));
    let Some(setting) = setting() else { return };
    for entry in setting.split(',') {
        let Some((point, action)) = entry.trim().split_once('=') else { continue };
        let (point, skip) = match point.split_once('/') {
            Some((point, count)) => (point, count.parse().unwrap_or(0)),
            None => (point, 0u32),
        };
        if point != name {
            continue;
        }
        let passed = PASSES.with(|passes| {
            let mut passes = passes.borrow_mut();
            let count = passes.entry(entry.to_owned()).or_insert(0);
            *count += 1;
            *count
        });
        if passed <= skip {
            continue;
        }
        match action.split_once(':') {
            None if action == "kill" => {
                // SAFETY: that is the point: the process vanishes as if the kernel had killed it.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            None if action == "exit" => std::process::exit(1),
            None if action == "error" => pgrx::error!("failpoint \"{name}\""),
            Some(("sleep", ms)) => {
                for _ in 0..ms.parse::<u64>().unwrap_or(0) / 10 {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    pgrx::check_for_interrupts!();
                }
            }
            _ => {}
        }
    }
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn failpoint(_name: &str) {}

/// Is the guard of this name to be left out, as in `key_lock=skip`? So a test can show the fault that the guard
/// prevents.
#[cfg(feature = "failpoints")]
pub fn skips(name: &str) -> bool {
    let Some(setting) = setting() else { return false };
    setting.split(',').any(|entry| entry.trim().split_once('=') == Some((name, "skip")))
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn skips(_name: &str) -> bool {
    false
}

/// By how many microseconds the clock on the wall is ahead for this process, as `clock=ahead:86400` says in seconds.
#[cfg(feature = "failpoints")]
pub fn clock_is_ahead_by() -> i64 {
    let Some(setting) = setting() else { return 0 };
    let seconds = setting.split(',').find_map(|entry| entry.trim().strip_prefix("clock=ahead:")?.parse::<i64>().ok());
    seconds.unwrap_or(0).saturating_mul(1_000_000)
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn clock_is_ahead_by() -> i64 {
    0
}
