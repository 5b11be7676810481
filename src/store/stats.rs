//! Counters: rows are added, never changed, until the janitor folds them together.
use automation_core::ids::AutomationId;
use pgrx::pg_sys;

use crate::pg::append::append_plain;
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{execute, query_one};
use crate::pg::identity::as_engine;

/// The numbers that one batch adds for one trigger of one automation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub matched: i64,
    pub filtered: i64,
    pub filter_errors: i64,
    pub refused: i64,
    pub held: i64,
    pub entered: i64,
    pub completed: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub skipped: i64,
    pub run_time_us: i64,
}

/// Adds the counts of a batch: ((automation, trigger), counts).
pub fn add<'a>(counts: impl Iterator<Item = (&'a (AutomationId, i16), &'a Counts)>, at: Micros) -> bool {
    append_plain(
        "stat",
        counts.map(|(&(automation, trigger), counts)| {
            [
                Some(pg_sys::Datum::from(automation.0)),
                Some(pg_sys::Datum::from(trigger)),
                Some(pg_sys::Datum::from(counts.matched)),
                Some(pg_sys::Datum::from(counts.filtered)),
                Some(pg_sys::Datum::from(counts.filter_errors)),
                Some(pg_sys::Datum::from(counts.refused)),
                Some(pg_sys::Datum::from(counts.held)),
                Some(pg_sys::Datum::from(counts.entered)),
                Some(pg_sys::Datum::from(counts.completed)),
                Some(pg_sys::Datum::from(counts.failed)),
                Some(pg_sys::Datum::from(counts.cancelled)),
                Some(pg_sys::Datum::from(counts.skipped)),
                Some(pg_sys::Datum::from(counts.run_time_us)),
                Some(pg_sys::Datum::from(at)),
            ]
        }),
    )
}

/// A run that had begun was cancelled.
pub fn count_cancelled(automation: AutomationId, trigger: i16, at: Micros) {
    let counts = Counts { cancelled: 1, ..Default::default() };
    as_engine(|| add(std::iter::once((&(automation, trigger), &counts)), at));
}

const FOLD: &str = "
    WITH old AS (
        DELETE FROM automation_internal.stat AS s
     RETURNING s.*)
    INSERT INTO automation_internal.stat
    SELECT o.automation_id, o.trigger_no, pg_catalog.sum(o.matched), pg_catalog.sum(o.filtered),
           pg_catalog.sum(o.filter_errors), pg_catalog.sum(o.refused), pg_catalog.sum(o.held),
           pg_catalog.sum(o.entered), pg_catalog.sum(o.completed), pg_catalog.sum(o.failed), pg_catalog.sum(o.cancelled),
           pg_catalog.sum(o.skipped), pg_catalog.sum(o.run_time_us), pg_catalog.max(o.at)
      FROM old AS o
     GROUP BY o.automation_id, o.trigger_no";

/// Folds all rows that are visible into one per trigger; rows added meanwhile stay.
pub fn fold() -> u64 {
    as_engine(|| execute(FOLD, &[]))
}

const SIZE: &str = "SELECT pg_catalog.pg_relation_size('automation_internal.stat')";

pub fn size() -> i64 {
    as_engine(|| query_one(SIZE, &[], |row| row.int8(1))).flatten().unwrap_or_default()
}
