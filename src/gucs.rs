//! Settings: private statics, `init`, typed getters. No other file touches a `GucSetting`.
#![allow(unsafe_code)]
use std::ffi::{CStr, CString};

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum, pg_sys};

use crate::pg::server_text;

static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);
static CAPTURE: GucSetting<bool> = GucSetting::<bool>::new(true);
static ALLOW_SUPERUSER: GucSetting<bool> = GucSetting::<bool>::new(false);
static EXECUTORS: GucSetting<i32> = GucSetting::<i32>::new(4);
static BATCH_SIZE: GucSetting<i32> = GucSetting::<i32>::new(100);
static ROUTE_BATCH_SIZE: GucSetting<i32> = GucSetting::<i32>::new(1000);
static MAX_CHAIN_DEPTH: GucSetting<i32> = GucSetting::<i32>::new(16);
static MAX_VALUE_SIZE: GucSetting<i32> = GucSetting::<i32>::new(64);
static MAX_RESULT_SIZE: GucSetting<i32> = GucSetting::<i32>::new(64);
static EVENT_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(7 * 24 * 60);
static HISTORY_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(30 * 24 * 60);
static EXECUTOR_IDLE_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(60_000);
static STEP_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(0);
static ACTOR: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
static SIGNAL_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(7 * 24 * 60);
static HOT_FLOW: GucSetting<HotFlow> = GucSetting::<HotFlow>::new(HotFlow::Loops);
static MAX_EVENT_RUNS: GucSetting<i32> = GucSetting::<i32>::new(10);
static MAX_SCHEDULED_RUNS: GucSetting<i32> = GucSetting::<i32>::new(5);
static MAX_CONCURRENT_RUNS: GucSetting<i32> = GucSetting::<i32>::new(0);
static MAX_RUNS_PER_TENANT: GucSetting<i32> = GucSetting::<i32>::new(0);
static MAX_RUNS_PER_ROLE: GucSetting<i32> = GucSetting::<i32>::new(0);
static EVALUATION_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(1000);
static MAX_SUBSCRIPTIONS_PER_ROLE: GucSetting<i32> = GucSetting::<i32>::new(100);
static MAX_AUTOMATIONS_PER_ROLE: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static MAX_LOG_ROWS_PER_ROLE: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static LOG_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(30 * 24 * 60);
static AUDIT_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(400 * 24 * 60);
static HTTP: GucSetting<bool> = GucSetting::<bool>::new(true);
static HTTP_ALLOW_PLAIN: GucSetting<bool> = GucSetting::<bool>::new(false);
static HTTP_STRICT_SIGNING: GucSetting<bool> = GucSetting::<bool>::new(false);
static HTTP_PORTS: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"80,443"));
static HTTP_CA_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
static SECRET_KEY_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// Which executions the usual limits of hot flow count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum HotFlow {
    /// Executions that go back to the automation itself.
    #[name = c"loops"]
    Loops,
    #[name = c"all"]
    All,
    #[name = c"off"]
    Off,
}

pub fn init() {
    let flags = GucFlags::default();
    GucRegistry::define_bool_guc(
        c"automation_engine.enabled",
        c"Runs automations.",
        c"Off stops routing and running; changes are still captured and are worked off when it is on again.",
        &ENABLED,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"automation_engine.capture",
        c"Records changes of watched tables.",
        c"Off, for a transaction or session of a superuser, makes bulk loads silent: what they change starts nothing.",
        &CAPTURE,
        GucContext::Suset,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"automation_engine.allow_superuser_automations",
        c"Allows automations whose steps run as a superuser.",
        c"On, whoever may define automations as a superuser may do anything with every event.",
        &ALLOW_SUPERUSER,
        // A setting of the postmaster can only be made while it starts; loaded later, the configuration file decides.
        if crate::pg::process::preloading() { GucContext::Postmaster } else { GucContext::Sighup },
        flags,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.executors",
        c"Most executor processes per database.",
        c"Each takes one of max_worker_processes and a connection's memory; 0 runs nothing.",
        &EXECUTORS,
        0,
        64,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.batch_size",
        c"Most runs that share one commit.",
        c"Larger batches drain a backlog faster; a run's effects become visible when its batch commits.",
        &BATCH_SIZE,
        1,
        1000,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.route_batch_size",
        c"Most events routed in one transaction.",
        c"Larger batches route a backlog faster and hold more memory in the conductor.",
        &ROUTE_BATCH_SIZE,
        1,
        100_000,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.max_chain_depth",
        c"How many runs deep a chain of causes may go.",
        c"A change made by a run at this depth is recorded but starts nothing, which ends loops of automations.",
        &MAX_CHAIN_DEPTH,
        1,
        1000,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.max_value_size",
        c"Largest column value that an event carries.",
        c"A larger value is left out and the event is marked truncated; the write itself always succeeds.",
        &MAX_VALUE_SIZE,
        1,
        64 * 1024,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.max_result_size",
        c"Most of a step's result that is kept.",
        c"Kept results are visible to later steps and in the history.",
        &MAX_RESULT_SIZE,
        1,
        1_048_576,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.event_retention",
        c"How long events are kept.",
        c"Whole days are dropped at a time, and only after they have been routed. 0 keeps them for ever.",
        &EVENT_RETENTION,
        0,
        i32::MAX / 60,
        GucContext::Sighup,
        GucFlags::UNIT_MIN,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.history_retention",
        c"How long ended runs are kept.",
        c"Whole days are dropped at a time. 0 keeps them for ever.",
        &HISTORY_RETENTION,
        0,
        i32::MAX / 60,
        GucContext::Sighup,
        GucFlags::UNIT_MIN,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.executor_idle_timeout",
        c"How long an executor without work stays.",
        c"Longer saves starting a process when work comes; each holds a connection meanwhile.",
        &EXECUTOR_IDLE_TIMEOUT,
        100,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.step_timeout",
        c"How long a step that executes SQL may take.",
        c"A step with a timeout of its own goes by that. 0 means no limit.",
        &STEP_TIMEOUT,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_string_guc(
        c"automation_engine.clock",
        c"The time that set_clock() has set in this session.",
        c"Microseconds since 2000-01-01 UTC. Only drain() and its like in this session go by it, never the workers.",
        &crate::pg::clock::SETTING,
        GucContext::Userset,
        GucFlags::NO_SHOW_ALL,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.signal_retention",
        c"How long a signal that no run takes is kept.",
        c"0 keeps them for ever.",
        &SIGNAL_RETENTION,
        0,
        i32::MAX / 60,
        GucContext::Sighup,
        GucFlags::UNIT_MIN,
    );
    // SAFETY: the hook reads the new value and reports its fault, nothing else.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"automation_engine.actor",
            c"On whose behalf this session writes.",
            c"Recorded with each change; an application sets it to its own user. Names that begin with system: are the engine's.",
            &ACTOR,
            GucContext::Userset,
            flags,
            Some(check_actor),
            None,
            None,
        );
    }
    GucRegistry::define_enum_guc(
        c"automation_engine.hot_flow",
        c"Which executions can pause an automation without a limit of its own.",
        c"loops counts those that go back to the automation itself, all counts every one, off none.",
        &HOT_FLOW,
        GucContext::Sighup,
        flags,
    );
    let limits: [(_, _, &'static GucSetting<i32>); 5] = [
        (
            c"automation_engine.max_event_runs",
            c"Most runs started by events that execute at the same time.",
            &MAX_EVENT_RUNS,
        ),
        (
            c"automation_engine.max_scheduled_runs",
            c"Most runs started by the clock or by hand that execute at the same time.",
            &MAX_SCHEDULED_RUNS,
        ),
        (c"automation_engine.max_concurrent_runs", c"Most runs that execute at the same time.", &MAX_CONCURRENT_RUNS),
        (
            c"automation_engine.max_runs_per_tenant",
            c"Most runs of one tenant that execute at the same time.",
            &MAX_RUNS_PER_TENANT,
        ),
        (
            c"automation_engine.max_runs_per_role",
            c"Most runs of one owner that execute at the same time.",
            &MAX_RUNS_PER_ROLE,
        ),
    ];
    for (name, what, setting) in limits {
        let more = c"What is over the limit stays queued. A run that waits does not execute. 0 means no limit.";
        GucRegistry::define_int_guc(name, what, more, setting, 0, 1000, GucContext::Sighup, flags);
    }
    init_quotas(flags);
    init_http(flags);
    // A superuser can set fast_append for a database or a session too, so that a fault can be narrowed down to one of
    // them.
    GucRegistry::define_bool_guc(
        c"automation_engine.fast_append",
        c"Appends rows to the engine's tables by the engine's own, faster way.",
        c"Off hands every row to Postgres' own insertion. For suspected corruption and untested versions of Postgres.",
        &crate::pg::ordinary_insert::FAST_APPEND,
        GucContext::Suset,
        flags,
    );
    #[cfg(feature = "failpoints")]
    GucRegistry::define_string_guc(
        c"automation_engine.failpoint",
        c"Test builds: what to do at named points.",
        c"name=kill | error | exit | sleep:ms, separated by commas; a number after a slash counts the passes first.",
        &crate::pg::failpoint::SETTING,
        GucContext::Sighup,
        flags,
    );
    // SAFETY: called once from _PG_init, after all settings of ours are defined.
    unsafe { pgrx::pg_sys::MarkGUCPrefixReserved(c"automation_engine".as_ptr()) }
}

/// Prefix that a user's actor must not have, in upper or lower case: actors of the engine's own runs and schedules
/// begin with it.
const RESERVED_ACTORS: &str = "system:";

/// Refuses an actor that could be taken for the engine's. Postgres ignores a refused value of ALTER ROLE, ALTER
/// DATABASE or the configuration file with a warning, so a log-in never fails because of it.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn check_actor(
    value: *mut *mut std::ffi::c_char,
    _extra: *mut *mut std::ffi::c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: Postgres hands over a NUL-terminated text or null; the messages are read after this has returned, in the
    // memory that Postgres keeps for them.
    unsafe {
        if (*value).is_null() || !is_reserved_actor(CStr::from_ptr(*value).to_bytes()) {
            return true;
        }
        pg_sys::GUC_check_errcode(crate::error::refused_setting());
        pg_sys::GUC_check_errdetail_string =
            pg_sys::pstrdup(c"Actors that begin with \"system:\" are those of the engine's own runs.".as_ptr());
        pg_sys::GUC_check_errhint_string = pg_sys::pstrdup(
            c"Set it to the user of your application, as in SET automation_engine.actor = 'user:42'.".as_ptr(),
        );
        false
    }
}

fn is_reserved_actor(actor: &[u8]) -> bool {
    let begin = actor.trim_ascii_start().get(..RESERVED_ACTORS.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(RESERVED_ACTORS.as_bytes()))
}

/// Limits to the resources that one role may take from the others.
fn init_quotas(flags: GucFlags) {
    GucRegistry::define_int_guc(
        c"automation_engine.evaluation_timeout",
        c"Longest that one expression may be evaluated.",
        c"Time of the process on the processor. A filter that takes longer does not fire; a condition fails its run.",
        &EVALUATION_TIMEOUT,
        10,
        3_600_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    // Of the session that subscribes or defines, so that ALTER ROLE ... SET gives a role more or less than others.
    GucRegistry::define_int_guc(
        c"automation_engine.max_subscriptions_per_role",
        c"Most subscriptions of one role.",
        c"subscribe() refuses more. 0 means no limit.",
        &MAX_SUBSCRIPTIONS_PER_ROLE,
        0,
        1_000_000,
        GucContext::Suset,
        flags,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.max_automations_per_role",
        c"Most automations that one role owns.",
        c"define() refuses more; those that are dropped do not count. 0 means no limit.",
        &MAX_AUTOMATIONS_PER_ROLE,
        0,
        1_000_000,
        GucContext::Suset,
        flags,
    );
    GucRegistry::define_int_guc(
        c"automation_engine.max_log_rows_per_role",
        c"Most entries of the log that are kept for one owner.",
        c"The oldest are forgotten once an hour. 0 means no limit.",
        &MAX_LOG_ROWS_PER_ROLE,
        0,
        100_000_000,
        GucContext::Sighup,
        flags,
    );
    let kept: [(_, _, &'static GucSetting<i32>); 2] = [
        (c"automation_engine.log_retention", c"How long entries of the log are kept.", &LOG_RETENTION),
        (c"automation_engine.audit_retention", c"How long rows of the audit are kept.", &AUDIT_RETENTION),
    ];
    for (name, what, setting) in kept {
        let more = c"They are forgotten in slices. 0 keeps them for ever.";
        let most = i32::MAX / 60;
        GucRegistry::define_int_guc(name, what, more, setting, 0, most, GucContext::Sighup, GucFlags::UNIT_MIN);
    }
}

/// Settings of webhooks.
fn init_http(flags: GucFlags) {
    GucRegistry::define_bool_guc(
        c"automation_engine.http",
        c"Delivers what webhook() steps order.",
        c"Off, nothing leaves the server; messages stay in the outbox.",
        &HTTP,
        if crate::pg::process::preloading() { GucContext::Postmaster } else { GucContext::Sighup },
        flags,
    );
    GucRegistry::define_bool_guc(
        c"automation_engine.http_allow_plain",
        c"Allows receivers without TLS.",
        c"On, http:// addresses may be used; what is sent there can be read on the way.",
        &HTTP_ALLOW_PLAIN,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"automation_engine.http_strict_signing",
        c"Sends nothing unsigned.",
        c"On, a message without a secret waits until its endpoint has one.",
        &HTTP_STRICT_SIGNING,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_string_guc(
        c"automation_engine.http_ports",
        c"Ports that receivers may listen on.",
        c"Numbers, separated by commas; a rule of allow_egress() that names a port allows that one as well.",
        &HTTP_PORTS,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_string_guc(
        c"automation_engine.http_ca_file",
        c"Further authorities whose certificates are trusted.",
        c"A file of certificates in PEM form, for receivers inside the house.",
        &HTTP_CA_FILE,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    GucRegistry::define_string_guc(
        c"automation_engine.secret_key_file",
        c"File with the key that seals secrets.",
        c"32 bytes, raw or in base64, readable by the server's user alone. Without it no secret can be set or used.",
        &SECRET_KEY_FILE,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
}

pub fn http() -> bool {
    HTTP.get()
}
pub fn http_allow_plain() -> bool {
    HTTP_ALLOW_PLAIN.get()
}
pub fn http_strict_signing() -> bool {
    HTTP_STRICT_SIGNING.get()
}
pub fn http_ports() -> Vec<u16> {
    let text = HTTP_PORTS.get().and_then(|text| text.into_string().ok()).unwrap_or_default();
    text.split(',').filter_map(|port| port.trim().parse().ok()).collect()
}
pub fn http_ca_file() -> Option<String> {
    file(&HTTP_CA_FILE)
}
pub fn secret_key_file() -> Option<String> {
    file(&SECRET_KEY_FILE)
}
fn file(setting: &GucSetting<Option<CString>>) -> Option<String> {
    setting.get().and_then(|text| text.into_string().ok()).filter(|text| !text.is_empty())
}

pub fn enabled() -> bool {
    ENABLED.get()
}
pub fn capture() -> bool {
    CAPTURE.get()
}
pub fn allow_superuser_automations() -> bool {
    ALLOW_SUPERUSER.get()
}
pub fn executors() -> usize {
    EXECUTORS.get() as usize
}
pub fn batch_size() -> i64 {
    i64::from(BATCH_SIZE.get())
}
pub fn route_batch_size() -> i64 {
    i64::from(ROUTE_BATCH_SIZE.get())
}
pub fn max_chain_depth() -> i16 {
    MAX_CHAIN_DEPTH.get() as i16
}
pub fn max_value_bytes() -> usize {
    MAX_VALUE_SIZE.get() as usize * 1024
}
pub fn max_result_bytes() -> usize {
    MAX_RESULT_SIZE.get() as usize * 1024
}
/// Days, or None for ever.
pub fn event_retention_days() -> Option<i64> {
    retention_days(EVENT_RETENTION.get())
}
pub fn history_retention_days() -> Option<i64> {
    retention_days(HISTORY_RETENTION.get())
}
fn retention_days(minutes: i32) -> Option<i64> {
    (minutes > 0).then(|| (i64::from(minutes) + 1439) / 1440)
}
pub fn executor_idle_timeout() -> std::time::Duration {
    std::time::Duration::from_millis(EXECUTOR_IDLE_TIMEOUT.get() as u64)
}
/// Milliseconds, None for no limit.
pub fn step_timeout_ms() -> Option<i64> {
    Some(i64::from(STEP_TIMEOUT.get())).filter(|limit| *limit > 0)
}

/// How many microseconds a signal is kept, None for ever.
pub fn signal_retention() -> Option<i64> {
    micros(&SIGNAL_RETENTION)
}
pub fn log_retention() -> Option<i64> {
    micros(&LOG_RETENTION)
}
pub fn audit_retention() -> Option<i64> {
    micros(&AUDIT_RETENTION)
}
fn micros(minutes: &GucSetting<i32>) -> Option<i64> {
    let minutes = i64::from(minutes.get());
    (minutes > 0).then_some(minutes * 60_000_000)
}
/// In microseconds.
pub fn evaluation_timeout() -> u64 {
    EVALUATION_TIMEOUT.get() as u64 * 1000
}
pub fn max_subscriptions_per_role() -> Option<u32> {
    limit(&MAX_SUBSCRIPTIONS_PER_ROLE)
}
pub fn max_automations_per_role() -> Option<u32> {
    limit(&MAX_AUTOMATIONS_PER_ROLE)
}
pub fn max_log_rows_per_role() -> Option<u32> {
    limit(&MAX_LOG_ROWS_PER_ROLE)
}

pub fn hot_flow() -> HotFlow {
    HOT_FLOW.get()
}
pub fn max_event_runs() -> Option<u32> {
    limit(&MAX_EVENT_RUNS)
}
pub fn max_scheduled_runs() -> Option<u32> {
    limit(&MAX_SCHEDULED_RUNS)
}
pub fn max_concurrent_runs() -> Option<u32> {
    limit(&MAX_CONCURRENT_RUNS)
}
pub fn max_runs_per_tenant() -> Option<u32> {
    limit(&MAX_RUNS_PER_TENANT)
}
pub fn max_runs_per_role() -> Option<u32> {
    limit(&MAX_RUNS_PER_ROLE)
}
/// The value of a limit; None where 0 stands for no limit.
fn limit(setting: &GucSetting<i32>) -> Option<u32> {
    u32::try_from(setting.get()).ok().filter(|limit| *limit > 0)
}

pub fn actor() -> Option<String> {
    ACTOR.get().map(|text| server_text::read_c(&text)).filter(|text| !text.is_empty())
}
