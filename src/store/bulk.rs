//! Bulk jobs: their rows, the outcomes of the rows, and how far each job is.
use automation_core::bulk::{Counts, JobState};
use automation_core::ids::{AutomationId, RunId, VersionId, WaitNo};
use automation_core::machine::JobItem;
use pgrx::pg_sys;

use super::wakes::Waiter;
use crate::pg::append::{append_plain, varlena};
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;
use crate::pg::snapshot::Snapshot;

/// How the rows of a job are read: as entities, or as payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsAs {
    /// Entities that have just come into being.
    Created,
    /// Entities that have just got all their values.
    Updated,
    /// Payloads of custom events.
    Event,
}

impl RowsAs {
    pub fn code(self) -> &'static str {
        match self {
            RowsAs::Created => "c",
            RowsAs::Updated => "u",
            RowsAs::Event => "e",
        }
    }

    pub fn from_code(code: &str) -> Option<Self> {
        [RowsAs::Created, RowsAs::Updated, RowsAs::Event].into_iter().find(|rows_as| rows_as.code() == code)
    }
}

/// A job to be begun.
#[derive(Clone, Debug)]
pub struct NewJob<'a> {
    pub id: i64,
    pub owner: pg_sys::Oid,
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    pub trigger_no: i16,
    pub needs_approval: bool,
    pub query: &'a str,
    /// JSON list of the values bound to it.
    pub params: &'a str,
    pub search_path: &'a str,
    pub rate: Option<f64>,
    pub rows_as: Option<RowsAs>,
    pub kind: Option<&'a str>,
    pub topic: Option<&'a str>,
    /// The step that waits for it.
    pub step: Option<Step<'a>>,
    /// The run that ordered it, and how deep it is.
    pub cause: Option<(RunId, i16)>,
    pub created_by: &'a str,
    pub now: Micros,
}

/// A step that waits for a job.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub run_id: RunId,
    pub no: i32,
    /// The step's run goes on while the automation is paused.
    pub finishes: bool,
    /// JSON: the event that the run is about.
    pub event: &'a str,
    /// JSON: the variables and results of the step's run that the runs of the rows can see.
    pub surroundings: &'a str,
}

const INSERT: &str = "
    INSERT INTO automation_internal.bulk_job
           (id, owner, automation_id, version_id, trigger_no, state, needs_approval, query, params, search_path, rate,
            rows_as, kind, topic, run_id, step_no, event, surroundings, cause_run, depth, created_by, created_at,
            finishes)
    VALUES ($1, $2, $3, $4, $5, 'querying', $6, $7, $8::json, $9, $10::float8, $11::\"char\", $12, $13, $14, $15,
            $16::json, $17::json, $18, COALESCE($19, 0::smallint), $20::name, $21, COALESCE($22, false))";

const FIRST_LOOK: &str = "
    INSERT INTO automation_internal.bulk_look
           (job_id, look, issued, returned, completed, failed, skipped, cancelled, waiting, counted, seen)
    VALUES ($1, 1, 0, 0, 0, 0, 0, 0, 0, 0, '1:1:')";

pub fn insert(job: &NewJob<'_>) {
    let rate = job.rate.map(|rate| rate.to_string());
    let step = job.step;
    let args: [Arg; 22] = [
        job.id.into(),
        job.owner.into(),
        job.automation_id.0.into(),
        job.version_id.0.into(),
        job.trigger_no.into(),
        job.needs_approval.into(),
        job.query.into(),
        job.params.into(),
        job.search_path.into(),
        rate.as_deref().into(),
        job.rows_as.map(RowsAs::code).into(),
        job.kind.into(),
        job.topic.into(),
        step.map(|step| step.run_id.0).into(),
        step.map(|step| step.no).into(),
        step.map(|step| step.event).into(),
        step.map(|step| step.surroundings).into(),
        job.cause.map(|(run, _)| run.0).into(),
        job.cause.map(|(_, depth)| depth).into(),
        job.created_by.into(),
        Arg::timestamp(job.now),
        step.map(|step| step.finishes).into(),
    ];
    as_engine(|| {
        execute(INSERT, &args);
        execute(FIRST_LOOK, &[job.id.into()]);
    });
}

/// A job as the executor that tends it sees it.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: i64,
    pub owner: pg_sys::Oid,
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    pub trigger_no: i16,
    pub state: JobState,
    pub needs_approval: bool,
    pub leave_open: bool,
    pub rate: Option<f64>,
    pub rows_as: Option<RowsAs>,
    pub kind: Option<String>,
    pub topic: Option<String>,
    pub run_id: Option<RunId>,
    pub step_no: Option<i32>,
    pub cause_run: Option<RunId>,
    pub depth: i16,
    /// The number of the last look.
    pub look: i64,
    /// The tallies of transactions that this snapshot sees are in the counters.
    pub seen: Snapshot,
    pub counts: Counts,
    pub next_at: Option<Micros>,
    pub wake_at: Option<Micros>,
    /// How many rows had ended when the speed was last measured, and when that was.
    pub counted: i64,
    pub counted_at: Option<Micros>,
    pub speed: Option<f64>,
    pub started_at: Option<Micros>,
    /// Name of the automation.
    pub automation: String,
    /// The job's rows may begin.
    pub active: bool,
}

impl Job {
    /// The address of a dispatch that has the job tended; the job's number stands for the run's.
    pub fn waiter(&self) -> Waiter {
        Waiter {
            run_id: RunId(self.id),
            wait_no: WaitNo::NONE,
            owner: self.owner,
            automation_id: self.automation_id,
            version_id: self.version_id,
        }
    }
}

/// The columns that `read` reads, and where they come from. The latest look is found from the end of its index: the
/// dead rows of earlier looks, which stay while a session holds an old snapshot, are not passed.
macro_rules! jobs {
    () => {
        "
    SELECT j.id, j.owner, j.automation_id, j.version_id, j.trigger_no, j.state, j.needs_approval, j.leave_open,
           j.rate::text, j.rows_as::text, j.kind, j.topic, j.run_id, j.step_no, j.cause_run, j.depth,
           ARRAY[j.total, k.issued, k.returned, k.completed, k.failed, k.skipped, k.cancelled, k.waiting,
                 k.counted]::text[],
           k.next_at, k.wake_at, k.counted_at, k.speed::text, j.started_at, a.name,
           a.status = 'active' OR (j.run_id IS NOT NULL AND (a.finish_runs OR j.finishes)), k.look, k.seen::text
      FROM automation_internal.bulk_job AS j
      JOIN automation_internal.automation AS a ON a.id = j.automation_id
      JOIN LATERAL (SELECT l.*
                      FROM automation_internal.bulk_look AS l
                     WHERE l.job_id = j.id
                     ORDER BY l.look DESC
                     LIMIT 1) AS k ON true"
    };
}

fn read(row: &Row<'_>) -> Option<Job> {
    let number = |column| row.text(column).and_then(|text| text.parse::<f64>().ok());
    let counts: Vec<i64> = row.text_array(17).iter().filter_map(|text| text.parse().ok()).collect();
    let count = |place: usize| counts.get(place).copied().unwrap_or_default();
    Some(Job {
        id: row.int8(1)?,
        owner: row.oid(2)?,
        automation_id: AutomationId(row.int4(3)?),
        version_id: VersionId(row.int4(4)?),
        trigger_no: row.int2(5)?,
        state: JobState::parse(&row.text(6)?)?,
        needs_approval: row.bool(7)?,
        leave_open: row.bool(8)?,
        rate: number(9),
        rows_as: row.text(10).as_deref().and_then(RowsAs::from_code),
        kind: row.text(11),
        topic: row.text(12),
        run_id: row.int8(13).map(RunId),
        step_no: row.int4(14),
        cause_run: row.int8(15).map(RunId),
        depth: row.int2(16)?,
        counts: Counts {
            total: count(0),
            issued: count(1),
            returned: count(2),
            completed: count(3),
            failed: count(4),
            skipped: count(5),
            cancelled: count(6),
            waiting: count(7),
        },
        next_at: row.int8(18),
        wake_at: row.int8(19),
        counted: count(8),
        counted_at: row.int8(20),
        speed: number(21),
        started_at: row.int8(22),
        automation: row.text(23).unwrap_or_default(),
        active: row.bool(24).unwrap_or_default(),
        look: row.int8(25)?,
        seen: Snapshot::parse(&row.text(26)?)?,
    })
}

pub const FIND: &str = concat!(jobs!(), " WHERE j.id = $1");

/// A job as it is, without a lock.
pub fn find(id: i64) -> Option<Job> {
    as_engine(|| query_one(FIND, &[id.into()], read)).flatten()
}

const CANCELS_ROWS: &str = "
    SELECT j.state = 'cancelling' AND NOT j.leave_open
      FROM automation_internal.bulk_job AS j
     WHERE j.id = $1";

/// Was a job cancelled with the rows that are under way?
pub fn cancels_rows(id: i64) -> bool {
    as_engine(|| query_one(CANCELS_ROWS, &[id.into()], |row| row.bool(1))).flatten().unwrap_or_default()
}

pub const LOCK: &str = "SELECT FROM automation_internal.bulk_job AS j WHERE j.id = $1 FOR UPDATE SKIP LOCKED";

/// Locks a job unless another process tends it at the moment. The job is read after the lock was taken: an earlier
/// snapshot would not have the last look of the process that held the lock before.
pub fn lock(id: i64) -> Option<Job> {
    let locked = as_engine(|| execute(LOCK, &[id.into()])) > 0;
    locked.then(|| find(id))?
}

const WAIT_FOR: &str = "SELECT FROM automation_internal.bulk_job AS j WHERE j.id = $1 FOR UPDATE";

/// Locks a job, waiting for the process that tends it.
pub fn wait_for(id: i64) -> Option<Job> {
    let locked = as_engine(|| execute(WAIT_FOR, &[id.into()])) > 0;
    locked.then(|| find(id))?
}

const OF_AUTOMATION: &str = "
    SELECT j.id
      FROM automation_internal.bulk_job AS j
     WHERE j.automation_id = $1
       AND j.finished_at IS NULL
     ORDER BY j.id
       FOR UPDATE";

/// The jobs of an automation that have not ended, locked.
pub fn of_automation(automation_id: AutomationId) -> Vec<Job> {
    let ids = as_engine(|| query(OF_AUTOMATION, &[automation_id.0.into()], |row| row.int8(1)));
    ids.into_iter().flatten().filter_map(find).collect()
}

const OPEN: &str = concat!(jobs!(), " WHERE j.finished_at IS NULL ORDER BY j.id");

/// Every job that has not ended.
pub fn open() -> Vec<Job> {
    as_engine(|| query(OPEN, &[], read)).into_iter().flatten().collect()
}

const TEXTS: &str = "
    SELECT j.query, j.params, j.search_path
      FROM automation_internal.bulk_job AS j
     WHERE j.id = $1";

/// The query of a job, its parameters, and its search_path.
pub fn query_of(id: i64) -> Option<(String, String, String)> {
    as_engine(|| query_one(TEXTS, &[id.into()], |row| Some((row.text(1)?, row.text(2)?, row.text(3)?)))).flatten()
}

const FAMILY: &str = "
    SELECT j.event, j.surroundings
      FROM automation_internal.bulk_job AS j
     WHERE j.id = $1";

/// The event and the surroundings of the run whose step waits for a job.
pub fn family(id: i64) -> Option<(String, String)> {
    as_engine(|| query_one(FAMILY, &[id.into()], |row| Some((row.text(1)?, row.text(2)?)))).flatten()
}

const SAVE: &str = "
    UPDATE automation_internal.bulk_job AS j
       SET state = $2, total = $3, started_at = $4, needs_approval = $5, leave_open = $6
     WHERE j.id = $1
       AND (j.state, j.total, j.started_at, j.needs_approval, j.leave_open) IS DISTINCT FROM ($2, $3, $4, $5, $6)";
const ADD_LOOK: &str = "
    WITH before AS (
        DELETE FROM automation_internal.bulk_look AS l
         WHERE l.job_id = $1
           AND l.look = $2)
    INSERT INTO automation_internal.bulk_look
           (job_id, look, issued, returned, completed, failed, skipped, cancelled, waiting, counted, next_at, wake_at,
            counted_at, speed, seen)
    VALUES ($1, $2 + 1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14::float8, $15::pg_snapshot)";

/// Writes the changeable columns of a job that is locked.
pub fn save(job: &mut Job) {
    let time = |at: Option<Micros>| Arg::maybe_timestamp(at);
    let state: [Arg; 6] = [
        job.id.into(),
        job.state.word().into(),
        job.counts.total.into(),
        time(job.started_at),
        job.needs_approval.into(),
        job.leave_open.into(),
    ];
    let (speed, seen) = (job.speed.map(|speed| speed.to_string()), job.seen.to_text());
    let counts = &job.counts;
    let look: [Arg; 15] = [
        job.id.into(),
        job.look.into(),
        counts.issued.into(),
        counts.returned.into(),
        counts.completed.into(),
        counts.failed.into(),
        counts.skipped.into(),
        counts.cancelled.into(),
        counts.waiting.into(),
        job.counted.into(),
        time(job.next_at),
        time(job.wake_at),
        time(job.counted_at),
        speed.as_deref().into(),
        seen.as_str().into(),
    ];
    as_engine(|| {
        execute(SAVE, &state);
        execute(ADD_LOOK, &look);
    });
    job.look += 1;
}

const FINISH: &str = "
    UPDATE automation_internal.bulk_job AS j
       SET finished_at = $2
     WHERE j.id = $1";

/// The job has ended.
pub fn finish(id: i64, now: Micros) {
    as_engine(|| execute(FINISH, &[id.into(), Arg::timestamp(now)]));
}

const NOTE_ERROR: &str = "
    UPDATE automation_internal.bulk_job AS j
       SET error = $2::json
     WHERE j.id = $1
       AND j.error IS NULL";

/// Keeps the first error.
pub fn note_error(id: i64, error: &str) {
    as_engine(|| execute(NOTE_ERROR, &[id.into(), error.into()]));
}

/// One row of a job.
#[derive(Clone, Debug)]
pub struct Item {
    pub no: i64,
    pub run_id: RunId,
    /// JSON in the database's encoding; None if it was too large.
    pub data: Option<Vec<u8>>,
}

/// Appends rows to a job.
pub fn add_items(job: i64, items: &[Item]) -> bool {
    append_plain(
        "bulk_item",
        items.iter().map(|item| {
            [
                Some(pg_sys::Datum::from(job)),
                Some(pg_sys::Datum::from(item.no)),
                Some(pg_sys::Datum::from(item.run_id.0)),
                item.data.as_deref().map(varlena),
            ]
        }),
    )
}

pub const ITEMS: &str = "
    SELECT i.no, i.run_id, i.data
      FROM automation_internal.bulk_item AS i
     WHERE i.job_id = $1
       AND i.no > $2
     ORDER BY i.no
     LIMIT $3";

/// The rows behind `after`, in order.
pub fn items(job: i64, after: i64, limit: i64) -> Vec<Item> {
    as_engine(|| query(ITEMS, &[job.into(), after.into(), limit.into()], read_item)).into_iter().flatten().collect()
}

fn read_item(row: &Row<'_>) -> Option<Item> {
    Some(Item { no: row.int8(1)?, run_id: RunId(row.int8(2)?), data: row.raw_text(3).map(<[u8]>::to_vec) })
}

const TAKE_RETURNED: &str = "
    WITH back AS MATERIALIZED (
        SELECT o.job_id, o.no
          FROM automation_internal.bulk_outcome AS o
         WHERE o.job_id = $1
           AND o.status = 'returned'
         ORDER BY o.no
         LIMIT $2),
    again AS (
        UPDATE automation_internal.bulk_outcome AS o
           SET status = 'again', run_id = pg_catalog.nextval('automation_internal.run_id_seq')
          FROM back
         WHERE o.job_id = back.job_id
           AND o.no = back.no
     RETURNING o.no, o.run_id)
    SELECT a.no, a.run_id, i.data
      FROM again AS a
      JOIN automation_internal.bulk_item AS i ON i.job_id = $1 AND i.no = a.no
     ORDER BY a.no";

/// Rows whose runs were not begun, with the numbers of the runs that they get now.
pub fn take_returned(job: i64, limit: i64) -> Vec<Item> {
    as_engine(|| query(TAKE_RETURNED, &[job.into(), limit.into()], read_item)).into_iter().flatten().collect()
}

const UNDER_WAY: &str = "
    SELECT COALESCE(o.run_id, i.run_id)
      FROM automation_internal.bulk_item AS i
      LEFT JOIN automation_internal.bulk_outcome AS o ON o.job_id = i.job_id AND o.no = i.no
     WHERE i.job_id = $1
       AND i.no <= $2
       AND COALESCE(o.status = 'again', true)
     ORDER BY i.no
     LIMIT $3";

/// Runs of a job that were begun, or ordered, and have not ended.
pub fn under_way(job: i64, issued: i64, limit: i64) -> Vec<RunId> {
    as_engine(|| query(UNDER_WAY, &[job.into(), issued.into(), limit.into()], |row| row.int8(1).map(RunId)))
        .into_iter()
        .flatten()
        .collect()
}

/// The outcome of one row.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub item: JobItem,
    pub run_id: RunId,
    pub status: &'static str,
    /// JSON.
    pub error: Option<String>,
}

// A row that came back has an outcome already, and may have another. Any other second outcome is refused by the key.
const ADD_OUTCOMES: &str = "
    INSERT INTO automation_internal.bulk_outcome AS o (job_id, no, run_id, status, error)
    SELECT n.job_id, n.no, n.run_id, n.status, NULLIF(n.error, '')::json
      FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[])
           AS n (job_id, no, run_id, status, error)
        ON CONFLICT (job_id, no) DO UPDATE
       SET run_id = excluded.run_id, status = excluded.status, error = excluded.error
     WHERE o.status = 'again'
       AND o.run_id = excluded.run_id";

/// Records the outcomes of rows. Returns how many of them had no outcome yet.
pub fn add_outcomes(outcomes: &[Outcome]) -> u64 {
    if outcomes.is_empty() {
        return 0;
    }
    let numbers = |number: fn(&Outcome) -> i64| Arg::int8s(&outcomes.iter().map(number).collect::<Vec<_>>());
    let statuses: Vec<&str> = outcomes.iter().map(|outcome| outcome.status).collect();
    let errors: Vec<&str> = outcomes.iter().map(|outcome| outcome.error.as_deref().unwrap_or_default()).collect();
    as_engine(|| {
        let args = [
            numbers(|outcome| outcome.item.job),
            numbers(|outcome| outcome.item.no),
            numbers(|outcome| outcome.run_id.0),
            Arg::texts(&statuses),
            Arg::texts(&errors),
        ];
        execute(ADD_OUTCOMES, &args)
    })
}

const ENDED: &str = "
    SELECT j.state, pg_catalog.json_build_object('job', j.id, 'total', j.total, 'done', l.completed, 'failed', l.failed,
                                                 'skipped', l.skipped, 'cancelled', l.cancelled), j.error
      FROM automation_internal.bulk_job AS j
      JOIN automation_internal.bulk_look AS l ON l.job_id = j.id
     WHERE j.id = $1
       AND j.finished_at IS NOT NULL";

/// How a job ended: its state, its counts and its first error as JSON. None if it has not.
pub fn ended(id: i64) -> Option<(String, String, Option<String>)> {
    as_engine(|| query_one(ENDED, &[id.into()], |row| Some((row.text(1)?, row.text(2)?, row.text(3))))).flatten()
}

const TENANT_COLUMN: &str = "
    SELECT k.tenant_column
      FROM automation_internal.entity_kind AS k
     WHERE k.kind = $1";

/// The column that says whose an entity of a kind is.
pub fn tenant_column(kind: &str) -> Option<String> {
    as_engine(|| query_one(TENANT_COLUMN, &[kind.into()], |row| row.text(1))).flatten()
}

const OLD: &str = "
    SELECT j.id
      FROM automation_internal.bulk_job AS j
     WHERE j.finished_at < $1
     ORDER BY j.finished_at
     LIMIT 1";
const FORGET_ITEMS: &str = "
    DELETE FROM automation_internal.bulk_item AS i
     WHERE i.job_id = $1
       AND i.no <= (SELECT f.no + $2 FROM automation_internal.bulk_item AS f WHERE f.job_id = $1 ORDER BY f.no LIMIT 1)";
const FORGET_OUTCOMES: &str = "
    DELETE FROM automation_internal.bulk_outcome AS o
     WHERE o.job_id = $1
       AND o.no <= (SELECT f.no + $2 FROM automation_internal.bulk_outcome AS f WHERE f.job_id = $1 ORDER BY f.no
                     LIMIT 1)";
const FORGET: &str = "
    WITH looks AS (DELETE FROM automation_internal.bulk_look AS l WHERE l.job_id = $1),
    tallies AS (DELETE FROM automation_internal.bulk_tally AS t WHERE t.job_id = $1)
    DELETE FROM automation_internal.bulk_job AS j WHERE j.id = $1";

/// Forgets a job that ended before a point in time, up to so many of its rows at once. True if there may be more.
pub fn forget_old(before: Micros, rows: i64) -> bool {
    as_engine(|| {
        let Some(id) = query_one(OLD, &[Arg::timestamp(before)], |row| row.int8(1)).flatten() else { return false };
        let args = [id.into(), rows.into()];
        if execute(FORGET_ITEMS, &args) + execute(FORGET_OUTCOMES, &args) == 0 {
            execute(FORGET, &[id.into()]);
        }
        true
    })
}

const ORPHANED: &str = "
    SELECT j.id
      FROM automation_internal.bulk_job AS j
     WHERE j.finished_at IS NULL
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid = j.owner)";

/// Ends the jobs of roles that are gone.
pub fn retire_dropped(now: Micros) {
    let ids = as_engine(|| query(ORPHANED, &[], |row| row.int8(1)));
    for mut job in ids.into_iter().flatten().filter_map(wait_for).filter(|job| !job.state.is_over()) {
        job.state = JobState::Cancelled;
        job.counts.cancel_rest();
        save(&mut job);
        finish(job.id, now);
    }
}
