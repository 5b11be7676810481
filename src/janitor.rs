//! Keeping house: partitions ahead of time, retention, folding counters. Each chore fails alone and never holds up
//! routing; each waits at most a moment for a lock and comes back next time.
use std::cell::Cell;

use crate::gucs;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::engine_sql::{execute, query_one};
use crate::pg::identity::as_engine;
use crate::pg::subtransaction::in_subtransaction;
use crate::router::Swept;
use crate::store::{
    automations, bulk, dispatches, dwells, egress_rules, endpoints, gates, history, kinds, live, numeric_memory,
    outbox, owners, partitions, router, schedules, secrets, signals, stats, step_stats, subscriptions,
    topic_grants,
};

/// How often, in microseconds, the house is kept while there is work at all.
pub const INTERVAL: i64 = 60 * 1_000_000;
/// How many days ahead partitions are made.
const DAYS_AHEAD: i64 = 1;
/// Fold the counters when their table is larger than this.
const STAT_BYTES: i64 = 1 << 20;

/// How often, in microseconds, the history is searched for runs that their automation does not want to keep.
const TIDY_INTERVAL: i64 = 60 * INTERVAL;

thread_local!(static TIDIED: Cell<i64> = const { Cell::new(i64::MIN / 2) });

/// Does every chore that is due.
pub fn keep_house() {
    let today = clock::day(clock::now());
    chore("partitions", || partitions::ensure(today + 1, today + DAYS_AHEAD));
    chore("retention", || drop_old(today));
    chore("counters", || {
        if stats::size() > STAT_BYTES {
            stats::fold();
        }
        gates::fold(STAT_BYTES);
    });
    chore("gates", || gates::prune(clock::now()));
    chore("histories", || {
        let now = clock::now();
        if now - TIDIED.get() >= TIDY_INTERVAL {
            TIDIED.set(now);
            drop_old_runs(now);
        }
    });
    chore("counters of steps and tenants", || step_stats::fold(STAT_BYTES));
    fold_definition_changes();
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
    chore("numbers", || numeric_memory::prune(clock::now()));
    chore("bulk jobs", || {
        if let Some(days) = gucs::history_retention_days() {
            bulk::forget_old(clock::now() - days * 86_400_000_000, FORGET_SLICE);
        }
    });
    chore("owners", retire_dropped_owners);
    chore("receivers", || {
        secrets::prune(clock::now());
        endpoints::forget_dropped();
        egress_rules::forget_dropped();
        outbox::cancel_orphaned(clock::now());
    });
    chore("kinds", kinds::forget_dropped);
    chore("subscriptions", subscriptions::forget_dropped);
    chore("grants on topics", topic_grants::forget_dropped);
}

/// Drops runs that their automation does not want to keep. There is no index that would find them, which every run would
/// have to pay for, so the history is read from end to end.
fn drop_old_runs(now: i64) {
    for (automation, document) in automations::with_retention() {
        let Ok(program) = crate::router::compile_stored(&document) else { continue };
        if let Some(keep_for) = program.limits.keep_for {
            history::forget_before(automation, now.saturating_sub(keep_for));
        }
        if let Some(keep_runs) = program.limits.keep_runs {
            history::forget_all_but(automation, keep_runs as i64);
        }
    }
}

/// Forgets at once whatever need not be kept any longer.
pub fn tidy() {
    gates::prune(clock::now());
    drop_old_runs(clock::now());
}
/// How many rows of an old bulk job are forgotten at once.
const FORGET_SLICE: i64 = 10_000;

/// How many runs the sweep looks at each time, and how long, in microseconds, a run has been under way before.
const SLICE: i64 = 1000;
const OLD: i64 = 5 * 60 * 1_000_000;

/// Has the next slice of old waits looked at once more. None if there is too much to do already, or it failed.
pub fn sweep_slice(after: i64, now: i64) -> Option<Swept> {
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
    let (mut after, mut runs) = (0, 0);
    for job in bulk::open() {
        crate::executor::nudge_bulk(job.waiter(), true);
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

/// Pauses the automations of roles that are gone, and cancels what they had queued or waiting.
pub fn retire_dropped_owners() {
    let mut waiting = owners::retire_dropped();
    waiting.extend(live::orphaned());
    waiting.sort_unstable();
    waiting.dedup();
    bulk::retire_dropped(clock::engine_now());
    // What an executor has in hand comes next time.
    for run in live::lock(&waiting) {
        crate::api::runs::end_waiting(&run, "owner_dropped");
    }
    crate::executor::drop_held(dwells::orphaned(), "owner_dropped", None);
}

/// Folds the notes of changed definitions together when there are so many that reading them takes time.
pub fn fold_definition_changes() {
    if automations::notes_pile_up() {
        chore("definitions", automations::fold_notes);
    }
}

fn chore<R>(name: &str, work: impl FnOnce() -> R) {
    let outcome = in_subtransaction(|| {
        work();
        Ok::<(), PgError>(())
    });
    if let Err(error) = outcome {
        pgrx::debug1!("automation_engine: {name} put off: {}", error.message);
    }
}

/// Drops whole days that are past their retention; events only if every one of them has been routed.
fn drop_old(today: i64) {
    let routed_before = as_engine(router::oldest_unrouted_day).unwrap_or(today);
    for table in partitions::TABLES {
        let keep = if table == "event" { gucs::event_retention_days() } else { gucs::history_retention_days() };
        let Some(keep) = keep else { continue };
        let limit = if table == "event" { (today - keep).min(routed_before) } else { today - keep };
        for day in partitions::days(table).into_iter().filter(|day| *day < limit) {
            chore("dropping a day", || partitions::drop_day(table, day));
        }
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
    pgrx::warning!(
        "automation_engine: library is version {ours}, SQL objects are version {}; run ALTER EXTENSION automation_engine UPDATE",
        installed.unwrap_or_default()
    );
    false
}
