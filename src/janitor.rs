//! Keeping house: partitions ahead of time, retention, folding counters. Each chore fails alone and never holds up
//! routing; each waits at most a moment for a lock and comes back next time.
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use automation_core::ids::RunId;

use crate::event_log::cursor;
use crate::gucs;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::engine_sql::{execute, query_one};
use crate::pg::identity::as_engine;
use crate::pg::process;
use crate::pg::report;
use crate::pg::subtransaction::in_subtransaction;
use crate::router::Swept;
use crate::signal::shmem::{my_database, shared};
use crate::store::{
    automations, bulk, dispatches, dwells, egress_rules, endpoints, gates, history, kinds, live, log, numeric_memory,
    outbox, owners, partitions, retries, schedules, secrets, signals, stats, step_stats, subscriptions, topic_grants,
};

/// How often, in microseconds, the house is kept while there is work at all.
pub const INTERVAL: i64 = 60 * 1_000_000;
/// How many days ahead partitions are made.
const DAYS_AHEAD: i64 = 1;
/// Fold the counters when their table is larger than this.
const STAT_BYTES: i64 = 1 << 20;

/// How often, in microseconds, the history is searched for runs that their automation does not want to keep.
const TIDY_INTERVAL: i64 = 60 * INTERVAL;

/// How often statistics of the partitioned tables are looked at.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(3600);

thread_local!(static STATISTICS: Cell<Option<Instant>> = const { Cell::new(None) });

thread_local!(static TIDIED: Cell<i64> = const { Cell::new(i64::MIN / 2) });

/// When the newest event, or the newest ended run, was recorded.
pub fn newest_record() -> Option<i64> {
    as_engine(|| query_one(NEWEST, &[], |row| row.int8(1))).flatten()
}

// Found by the ids, which have an index in each partition.
const NEWEST: &str = "
    SELECT GREATEST((SELECT e.occurred_at FROM automation_internal.event AS e ORDER BY e.id DESC LIMIT 1),
                    (SELECT h.recorded_at FROM automation_internal.run_history AS h ORDER BY h.id DESC LIMIT 1))";

/// Does every chore that is due. Rows are dropped as too old only if the clock is `trusted`: rows that were dropped
/// while the clock was years ahead for a moment would be lost.
pub fn keep_house(trusted: bool) {
    let today = clock::day(clock::now());
    for (place, table) in partitions::TABLES.into_iter().enumerate() {
        chore(PARTITIONS[place], || partitions::ensure(table, today + 1, today + DAYS_AHEAD));
    }
    if trusted {
        drop_old(today);
        forget_old(today);
    }
    chore("statistics", || {
        if STATISTICS.get().is_none_or(|at| at.elapsed() >= STATISTICS_INTERVAL) {
            partitions::TABLES.into_iter().for_each(partitions::gather_statistics);
            STATISTICS.set(Some(Instant::now()));
        }
    });
    chore("counters", || {
        if stats::size() > STAT_BYTES {
            stats::fold();
        }
        gates::fold(STAT_BYTES);
    });
    chore("histories", || {
        let passed = clock::passed();
        if trusted && passed - TIDIED.get() >= TIDY_INTERVAL {
            TIDIED.set(passed);
            drop_old_runs(clock::now());
            prune_talkative();
        }
    });
    chore("counters of steps and tenants", || step_stats::fold(STAT_BYTES));
    fold_definition_changes();
    chore("clock", crate::router::compute_ticks_anew);
    chore("owners", retire_dropped_owners);
    chore("receivers", || {
        secrets::prune(clock::now());
        endpoints::forget_dropped();
        egress_rules::forget_dropped();
        outbox::cancel_orphaned(clock::now());
    });
    chore("kinds", || {
        kinds::forget_dropped();
        kinds::remember_partitions();
    });
    chore("subscriptions", subscriptions::forget_dropped);
    chore("grants on topics", topic_grants::forget_dropped);
}

/// Forgets rows that are past their retention, except those of partitioned tables.
fn forget_old(today: i64) {
    chore("gates", || gates::prune(clock::now()));
    chore("dedup keys", || as_engine(|| execute(PRUNE_DEDUP, &[])));
    chore("signals", || {
        if let Some(keep) = gucs::signal_retention() {
            signals::prune(clock::now() - keep);
        }
    });
    chore("ticks", || {
        if let Some(days) = gucs::history_retention_days() {
            schedules::prune(clock::day_start(today - days));
        }
    });
    chore("retries", || {
        if let Some(days) = gucs::history_retention_days() {
            retries::prune(clock::day_start(today - days));
        }
    });
    chore("numbers", || numeric_memory::prune(clock::now()));
    chore("bulk jobs", || {
        if let Some(days) = gucs::history_retention_days() {
            bulk::forget_old(clock::now() - days * 86_400_000_000, FORGET_SLICE);
        }
    });
    chore("log", || {
        if let Some(keep) = gucs::log_retention() {
            log::prune_log(clock::now() - keep);
        }
        if let Some(keep) = gucs::audit_retention() {
            log::prune_audit(clock::now() - keep);
        }
    });
}

/// Drops runs that their automation does not want to keep. There is no index that would find them, which every run
/// would have to pay for, so the history is read from end to end.
fn drop_old_runs(now: i64) {
    for (automation, document) in automations::with_retention() {
        let Ok(program) = crate::definitions::versions::compile_stored(&document) else { continue };
        if let Some(keep_for) = program.limits.keep_for {
            history::forget_before(automation, now.saturating_sub(keep_for));
        }
        if let Some(keep_runs) = program.limits.keep_runs {
            history::forget_all_but(automation, keep_runs as i64);
        }
    }
}

/// Forgets at once all rows that need not be kept any longer.
pub fn tidy() {
    gates::prune(clock::now());
    drop_old_runs(clock::now());
    prune_talkative();
}

/// Keeps no more of the log for each owner than the setting says.
fn prune_talkative() {
    if let Some(most) = gucs::max_log_rows_per_role() {
        log::prune_owners(most.into());
    }
}

/// How many rows of an old bulk job are forgotten at once.
const FORGET_SLICE: i64 = 10_000;

/// How many runs the sweep looks at each time, and how long, in microseconds, a run has been under way before.
const SLICE: i64 = 1000;
const OLD: i64 = 5 * 60 * 1_000_000;

/// Has the next slice of old waits looked at once more. None if too many dispatches are queued already, or the look
/// failed.
pub fn sweep_slice(after: RunId, now: i64) -> Option<Swept> {
    let mut swept = None;
    chore("sweep", || {
        if !dispatches::is_long() {
            swept = Some(crate::router::sweep(after, SLICE, now - OLD));
        }
    });
    swept
}

/// Has every wait looked at once more. Returns how many runs that are.
pub fn sweep_all() -> usize {
    let (mut after, mut runs) = (RunId(0), 0);
    for job in bulk::open() {
        crate::runs::bulk_item::nudge(job.waiter(), true);
    }
    loop {
        let swept = crate::router::sweep(after, 10_000, clock::now());
        runs += swept.runs;
        match swept.last {
            Some(last) => after = last,
            None => return runs,
        }
    }
}

/// Learns the new names of roles that were renamed. Pauses the automations of roles that are gone, and cancels their
/// runs that are queued or waiting.
pub fn retire_dropped_owners() {
    owners::keep_names();
    let mut waiting = owners::retire_dropped();
    waiting.extend(live::orphaned());
    waiting.sort_unstable();
    waiting.dedup();
    bulk::retire_dropped(clock::engine_now());
    // A run that an executor has locked is ended at the next call.
    for run in live::lock(&waiting) {
        crate::runs::cancel::end_waiting(&run, "owner_dropped");
    }
    crate::runs::holds::drop_held(dwells::orphaned(), "owner_dropped", None);
}

/// Folds the notes of changed definitions together when there are so many that reading them takes time.
pub fn fold_definition_changes() {
    if automations::notes_pile_up() {
        chore("definitions", automations::fold_notes);
    }
}

/// The chores by table, in the order of `partitions::TABLES`.
const PARTITIONS: [&str; 4] =
    ["partitions of event", "partitions of run_history", "partitions of delivery", "partitions of delivery_attempt"];
const RETENTION: [&str; 4] =
    ["retention of event", "retention of run_history", "retention of delivery", "retention of delivery_attempt"];

/// The chores that status() can name, each by its bit in shared memory; the last one stands for all others.
const KNOWN: [&str; 30] = [
    PARTITIONS[0],
    PARTITIONS[1],
    PARTITIONS[2],
    PARTITIONS[3],
    RETENTION[0],
    RETENTION[1],
    RETENTION[2],
    RETENTION[3],
    "counters",
    "gates",
    "histories",
    "counters of steps and tenants",
    "dedup keys",
    "signals",
    "ticks",
    "retries",
    "numbers",
    "bulk jobs",
    "owners",
    "receivers",
    "log",
    "kinds",
    "subscriptions",
    "grants on topics",
    "sweep",
    "definitions",
    "routed events",
    "clock",
    "statistics",
    "another chore",
];

/// How often in a row a chore may find a table locked until that is a failure.
const MOST_PUT_OFF: u32 = 10;
/// A chore that goes on failing is reported again after so many failures: once an hour, as a rule.
const REMIND_AFTER: u32 = 60;

thread_local!(static FAILED: RefCell<HashMap<String, u32>> = RefCell::new(HashMap::new()));

fn chore<R>(name: &str, work: impl FnOnce() -> R) {
    let outcome = in_subtransaction(|| {
        work();
        Ok::<(), PgError>(())
    });
    let failures = FAILED.with(|failed| {
        let mut failed = failed.borrow_mut();
        match &outcome {
            Ok(()) => {
                failed.remove(name);
                0
            }
            Err(_) => *failed.entry(name.to_owned()).and_modify(|times| *times += 1).or_insert(1),
        }
    });
    let Err(error) = outcome else {
        note(name, false);
        return;
    };
    if error.sqlstate == "55P03" && failures < MOST_PUT_OFF {
        pgrx::debug1!("automation_engine: {name} put off: {}", error.message);
        return;
    }
    note(name, true);
    // A session that calls sweep() gets the warning at every failure; a worker writes it at the first one and then
    // every REMIND_AFTER failures.
    let tell = !process::is_worker() || failures == 1 || error.sqlstate == "55P03" && failures == MOST_PUT_OFF;
    if tell || failures.is_multiple_of(REMIND_AFTER) {
        let detail = error.detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
        report::warning(format!("automation_engine: housekeeping failed at \"{name}\": {}{detail}", error.message));
    }
}

/// Tells status() whether a chore fails.
fn note(name: &str, fails: bool) {
    let Some(slot) = shared().database(my_database()) else { return };
    let place = KNOWN.iter().position(|known| *known == name).unwrap_or(KNOWN.len() - 1);
    if fails {
        slot.failing_chores.fetch_or(1 << place, Ordering::AcqRel);
    } else {
        slot.failing_chores.fetch_and(!(1 << place), Ordering::AcqRel);
    }
}

/// The chores that failed when they were last tried.
pub fn failing() -> Vec<&'static str> {
    let bits = shared().database(my_database()).map_or(0, |slot| slot.failing_chores.load(Ordering::Acquire));
    KNOWN.iter().enumerate().filter(|(place, _)| bits & 1 << place != 0).map(|(_, name)| *name).collect()
}

/// Drops whole days that are past their retention; events only if every one of them has been routed. Rows of a day
/// without a partition, which are in the default one, are deleted.
fn drop_old(today: i64) {
    let mut routed_before = None;
    chore("routed events", || routed_before = Some(as_engine(cursor::oldest_unrouted_day).unwrap_or(today)));
    for (place, table) in partitions::TABLES.into_iter().enumerate() {
        let is_log = table.name == "event";
        let keep = if is_log { gucs::event_retention_days() } else { gucs::history_retention_days() };
        let Some(keep) = keep else { continue };
        let limit = match routed_before {
            _ if !is_log => today - keep,
            Some(routed_before) => (today - keep).min(routed_before),
            None => continue,
        };
        chore(RETENTION[place], || {
            partitions::delete_strays(table, limit);
            for day in partitions::days(table.name).into_iter().filter(|day| *day < limit) {
                partitions::drop_day(table.name, day);
            }
        });
    }
}

const PRUNE_DEDUP: &str = "
    DELETE FROM automation_internal.event_dedup AS d
     WHERE d.created_at < pg_catalog.now() - interval '1 day'";

const VERSION: &str = "SELECT e.extversion FROM pg_catalog.pg_extension AS e WHERE e.extname = 'automation_engine'";

/// Do the library and the SQL objects belong together? If not, the workers stay away until ALTER EXTENSION UPDATE.
pub fn version_matches() -> bool {
    let installed = query_one(VERSION, &[], |row| row.text(1)).flatten();
    let ours = env!("CARGO_PKG_VERSION");
    if installed.as_deref() == Some(ours) {
        return true;
    }
    report::warning(format!(
        "automation_engine: library is version {ours}, SQL objects are version {}; run ALTER EXTENSION automation_engine UPDATE",
        installed.unwrap_or_default()
    ));
    false
}
