//! Setting a GUC for a while.
use std::ffi::{CStr, CString};

use pgrx::pg_sys;

const ENGINE_PATH: &CStr = c"pg_catalog, pg_temp";

/// A GUC nest level: settings made above it are undone when it is dropped.
pub struct Pinned {
    level: i32,
}

impl Pinned {
    pub fn open() -> Self {
        // SAFETY: opens a nest level inside the current transaction; Drop closes it. If the transaction is aborted
        // first, Postgres has closed it already and Drop finds nothing above the level.
        Pinned { level: unsafe { pg_sys::NewGUCNestLevel() } }
    }

    /// The search path under which engine statements run, independent of the session's settings.
    pub fn engine() -> Option<Self> {
        if current(c"search_path").is_some_and(|path| path.as_c_str() == ENGINE_PATH) {
            return None;
        }
        let pinned = Self::open();
        pinned.set(c"search_path", ENGINE_PATH);
        Some(pinned)
    }

    /// The settings under which values become text in events, independent of the session's settings. None if they are
    /// in force.
    pub fn canonical_output() -> Option<Self> {
        const OUTPUT: [(&CStr, &CStr); 5] = [
            (c"TimeZone", c"UTC"),
            (c"DateStyle", c"ISO, YMD"),
            (c"IntervalStyle", c"postgres"),
            (c"bytea_output", c"hex"),
            (c"extra_float_digits", c"1"),
        ];
        let differs = |name: &CStr, wanted: &CStr| match current(name) {
            // The order of day and month matters for reading only.
            Some(value) if name == c"DateStyle" => !value.to_bytes().starts_with(b"ISO"),
            Some(value) if name == c"TimeZone" => !matches!(value.to_bytes(), b"UTC" | b"Etc/UTC" | b"GMT"),
            Some(value) => value.as_c_str() != wanted,
            None => true,
        };
        if !OUTPUT.iter().any(|(name, wanted)| differs(name, wanted)) {
            return None;
        }
        let pinned = Self::open();
        for (name, wanted) in OUTPUT {
            pinned.set(name, wanted);
        }
        Some(pinned)
    }

    /// Sets `name` until this level is dropped.
    pub fn set(&self, name: &CStr, value: &CStr) {
        set(name, value, pg_sys::GucAction::GUC_ACTION_SAVE);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: undoes the settings made at or above our own level.
        unsafe { pg_sys::AtEOXact_GUC(false, self.level) }
    }
}

/// The settings under which engine statements are planned and executed: each statement has an index made for it, the
/// tables may have no statistics yet, and compiling a statement that reads a few rows takes longer than running it.
///
/// Postgres may plan a kept statement anew at any execution, for example after autovacuum has analyzed a partition, so
/// this is in force during every one. It sets the variables behind the settings directly, because the way through the
/// settings' names costs more than most of the statements. An engine statement runs no code of users, so no session can
/// see or change the settings meanwhile.
pub struct PlannerSettings([bool; 7]);

/// The variables behind enable_seqscan, enable_bitmapscan, enable_hashjoin, enable_mergejoin, enable_sort,
/// enable_material and jit.
fn planner_variables() -> [*mut bool; 7] {
    [
        &raw mut pg_sys::enable_seqscan,
        &raw mut pg_sys::enable_bitmapscan,
        &raw mut pg_sys::enable_hashjoin,
        &raw mut pg_sys::enable_mergejoin,
        &raw mut pg_sys::enable_sort,
        &raw mut pg_sys::enable_material,
        &raw mut pg_sys::jit_enabled,
    ]
}

impl PlannerSettings {
    /// Switches them all off until the value is dropped.
    pub fn pin() -> Self {
        // SAFETY: process globals of a process with one thread that runs Postgres' code.
        PlannerSettings(planner_variables().map(|variable| unsafe { std::ptr::replace(variable, false) }))
    }
}

impl Drop for PlannerSettings {
    fn drop(&mut self) {
        for (variable, before) in planner_variables().into_iter().zip(self.0) {
            // SAFETY: the same globals as in `pin`.
            unsafe { *variable = before };
        }
    }
}

/// Sets `name` for the session; undone if the transaction aborts.
pub fn set_session(name: &CStr, value: &CStr) {
    set(name, value, pg_sys::GucAction::GUC_ACTION_SET);
}

fn set(name: &CStr, value: &CStr, action: pg_sys::GucAction::Type) {
    // SAFETY: NUL-terminated strings that live during the call; an invalid value raises an ERROR.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            action,
            true,
            0,
            false,
        );
    }
}

/// How long a statement of this session may wait for a lock; None if for ever.
pub fn lock_timeout() -> Option<std::time::Duration> {
    // SAFETY: reads a setting of this session.
    let milliseconds = unsafe { pg_sys::LockTimeout };
    u64::try_from(milliseconds).ok().filter(|limit| *limit > 0).map(std::time::Duration::from_millis)
}

/// Current value of a setting.
pub fn current(name: &CStr) -> Option<CString> {
    // SAFETY: the returned string belongs to the GUC machinery and is copied at once.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        (!value.is_null()).then(|| CStr::from_ptr(value).to_owned())
    }
}
