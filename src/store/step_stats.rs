//! Counters per step and per tenant: rows are added, never changed, until the janitor folds them together.
use std::collections::HashMap;

use automation_core::ids::AutomationId;
use pgrx::pg_sys;

use super::stats::Counts;
use crate::pg::append::{append_plain, text_varlena};
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{execute, query_one};
use crate::pg::identity::as_engine;

/// The numbers that one batch adds for one step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepCounts {
    pub completed: i64,
    pub failed: i64,
    pub skipped: i64,
    pub retried: i64,
    pub time_us: i64,
}

/// Adds the counts of a batch: (automation, step, counts).
pub fn add_steps<'a>(counts: impl Iterator<Item = (AutomationId, &'a str, &'a StepCounts)>, at: Micros) {
    append_plain(
        "stat_step",
        counts.map(|(automation, step, counts)| {
            [
                Some(pg_sys::Datum::from(automation.0)),
                Some(text_varlena(step)),
                Some(pg_sys::Datum::from(counts.completed)),
                Some(pg_sys::Datum::from(counts.failed)),
                Some(pg_sys::Datum::from(counts.skipped)),
                Some(pg_sys::Datum::from(counts.retried)),
                Some(pg_sys::Datum::from(counts.time_us)),
                Some(pg_sys::Datum::from(at)),
            ]
        }),
    );
}

/// Adds the counts of a batch by automation and tenant.
pub fn add_tenants(counts: &HashMap<(AutomationId, &str), Counts>, at: Micros) {
    append_plain(
        "stat_tenant",
        counts.iter().map(|(&(automation, tenant), counts)| {
            [
                Some(pg_sys::Datum::from(automation.0)),
                Some(text_varlena(tenant)),
                Some(pg_sys::Datum::from(counts.entered)),
                Some(pg_sys::Datum::from(counts.completed)),
                Some(pg_sys::Datum::from(counts.failed)),
                Some(pg_sys::Datum::from(counts.cancelled)),
                Some(pg_sys::Datum::from(counts.skipped)),
                Some(pg_sys::Datum::from(counts.run_time_us)),
                Some(pg_sys::Datum::from(at)),
            ]
        }),
    );
}

/// A run of a tenant that had begun was cancelled.
pub fn count_cancelled(automation: AutomationId, tenant: &str, at: Micros) {
    let counts = HashMap::from([((automation, tenant), Counts { cancelled: 1, ..Default::default() })]);
    as_engine(|| add_tenants(&counts, at));
}

const FOLD_STEPS: &str = "
    WITH old AS (
        DELETE FROM automation_internal.stat_step AS s
     RETURNING s.*)
    INSERT INTO automation_internal.stat_step
    SELECT o.automation_id, o.step, pg_catalog.sum(o.completed), pg_catalog.sum(o.failed), pg_catalog.sum(o.skipped),
           pg_catalog.sum(o.retried), pg_catalog.sum(o.time_us), pg_catalog.max(o.at)
      FROM old AS o
     GROUP BY o.automation_id, o.step";
const FOLD_TENANTS: &str = "
    WITH old AS (
        DELETE FROM automation_internal.stat_tenant AS s
     RETURNING s.*)
    INSERT INTO automation_internal.stat_tenant
    SELECT o.automation_id, o.tenant, pg_catalog.sum(o.entered), pg_catalog.sum(o.completed), pg_catalog.sum(o.failed),
           pg_catalog.sum(o.cancelled), pg_catalog.sum(o.skipped), pg_catalog.sum(o.run_time_us), pg_catalog.max(o.at)
      FROM old AS o
     GROUP BY o.automation_id, o.tenant";
const SIZES: &str = "
    SELECT pg_catalog.pg_relation_size('automation_internal.stat_step'),
           pg_catalog.pg_relation_size('automation_internal.stat_tenant')";

/// Folds the rows of each of the two tables that is larger than so many bytes; rows added meanwhile stay.
pub fn fold(larger_than: i64) {
    as_engine(|| {
        let sizes = query_one(SIZES, &[], |row| row.int8(1).zip(row.int8(2))).flatten().unwrap_or_default();
        if sizes.0 > larger_than {
            execute(FOLD_STEPS, &[]);
        }
        if sizes.1 > larger_than {
            execute(FOLD_TENANTS, &[]);
        }
    });
}
