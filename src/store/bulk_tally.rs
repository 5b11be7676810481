//! Tallies: rows that batches of runs append to count for a bulk job, until the next look at the job adds them to its
//! counters.
use pgrx::pg_sys;

use super::bulk::Job;
use crate::pg::append::{append_plain, text_varlena};
use crate::pg::engine_sql::{Row, query_one};
use crate::pg::identity::as_engine;
use crate::pg::snapshot::{Snapshot, assigned_transaction};

/// The numbers that a batch of runs adds to the counters of a job.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub completed: i64,
    pub failed: i64,
    pub skipped: i64,
    pub cancelled: i64,
    pub returned: i64,
    pub waiting: i64,
    /// JSON: the first error.
    pub error: Option<String>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.cancelled += other.cancelled;
        self.returned += other.returned;
        self.waiting += other.waiting;
        self.error = self.error.take().or(other.error);
    }
}

/// Adds the tally of a batch of runs.
pub fn add(job: i64, tally: &Tally) -> bool {
    append_plain(
        "bulk_tally",
        std::iter::once([
            Some(pg_sys::Datum::from(job)),
            Some(pg_sys::Datum::from(assigned_transaction())),
            Some(pg_sys::Datum::from(tally.completed)),
            Some(pg_sys::Datum::from(tally.failed)),
            Some(pg_sys::Datum::from(tally.skipped)),
            Some(pg_sys::Datum::from(tally.cancelled)),
            Some(pg_sys::Datum::from(tally.returned)),
            Some(pg_sys::Datum::from(tally.waiting)),
            tally.error.as_ref().map(|error| text_varlena(error)),
        ]),
    )
}

macro_rules! take {
    ($comparison:literal) => {
        concat!(
            "
    WITH taken AS (
        DELETE FROM automation_internal.bulk_tally AS t
         WHERE t.job_id = $1
           AND t.xid ",
            $comparison,
            " $2::xid8
     RETURNING t.completed, t.failed, t.skipped, t.cancelled, t.returned, t.waiting, t.error)
    SELECT COALESCE(pg_catalog.sum(t.completed), 0)::bigint, COALESCE(pg_catalog.sum(t.failed), 0)::bigint,
           COALESCE(pg_catalog.sum(t.skipped), 0)::bigint, COALESCE(pg_catalog.sum(t.cancelled), 0)::bigint,
           COALESCE(pg_catalog.sum(t.returned), 0)::bigint, COALESCE(pg_catalog.sum(t.waiting), 0)::bigint,
           (pg_catalog.array_agg(t.error) FILTER (WHERE t.error IS NOT NULL))[1],
           pg_catalog.pg_current_snapshot()::text
      FROM taken AS t"
        )
    };
}
pub const TAKE_FROM: &str = take!(">=");
// One transaction at a time. Compared with a list, by ANY or a join, every tally of the job would be read: the table
// was empty when the statement was planned.
pub const TAKE_OF: &str = take!("=");

fn read_tally(row: &Row<'_>) -> (Tally, Option<Snapshot>) {
    let count = |column| row.int8(column).unwrap_or_default();
    let tally = Tally {
        completed: count(1),
        failed: count(2),
        skipped: count(3),
        cancelled: count(4),
        returned: count(5),
        waiting: count(6),
        error: row.text(7),
    };
    (tally, row.text(8).and_then(|text| Snapshot::parse(&text)))
}

/// Takes in the tallies of the batches since the last look. The job is locked. Only tallies of transactions that the
/// last look did not see are read: those of older transactions are dead, and may be many while a session holds an old
/// snapshot.
pub fn take(job: &mut Job) -> Tally {
    let take = |sql: &'static str, which: &str| {
        as_engine(|| query_one(sql, &[job.id.into(), which.into()], read_tally)).unwrap_or_default()
    };
    let (mut sum, mut seen) = take(TAKE_FROM, &job.seen.xmax.to_string());
    if seen.as_ref().is_some_and(|seen| seen.xmax < job.seen.xmax) {
        // The snapshot is of another server, from which this database was restored.
        let (all, now) = take(TAKE_FROM, "0");
        sum.add(all);
        seen = now;
    }
    for xid in &job.seen.in_progress {
        // The snapshot of this statement is later than that of the first, so it may take tallies that the first did not
        // see. A tally is deleted when it is taken, so none is taken twice.
        sum.add(take(TAKE_OF, &xid.to_string()).0);
    }
    if let Some(mut seen) = seen {
        // A snapshot never lists the transaction that takes it. Tallies that this transaction may still add are for the
        // next look.
        seen.add_in_progress(assigned_transaction());
        job.seen = seen;
    }
    sum
}
