//! The history: runs that have ended.
use automation_core::ids::{AutomationId, RunId};
use automation_core::machine::JobItem;
pub use automation_core::run_state::Ending;
use pgrx::pg_sys;

use super::live::WaitNote;
use super::run_header::{RunHeader, has_run_header, run_numbers};
use crate::pg::append::{append, kept_json, text_varlena};
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query, query_one};
use crate::pg::identity::as_engine;

/// A run to be written into the history.
#[derive(Clone, Debug)]
pub struct EndedRun {
    pub header: RunHeader,
    pub ended_at: Micros,
    pub attempt: i16,
    pub ending: Ending,
    pub reason: Option<String>,
    /// JSON: sqlstate, message, detail, hint, context, step.
    pub error: Option<String>,
    /// JSON list of the steps taken.
    pub steps: Option<String>,
    /// JSON: its variables.
    pub output: Option<String>,
    /// JSON: where it stood when it failed.
    pub state: Option<String>,
    /// The waits that were still open, if the run had suspended. Not part of the row.
    pub live: Option<Vec<WaitNote>>,
    /// Runs that this run waited for and that no run waits for any more. Not part of the row.
    pub abandoned: Vec<i64>,
    /// The row of a bulk job that the run was for. Not part of the row.
    pub item: Option<JobItem>,
}

has_run_header!(EndedRun);

impl EndedRun {
    /// A run that ended without a step to show for it.
    pub fn new(header: RunHeader, ending: Ending, reason: Option<&str>, ended_at: Micros) -> Self {
        EndedRun {
            header,
            ended_at,
            attempt: 0,
            ending,
            reason: reason.map(str::to_owned),
            error: None,
            steps: None,
            output: None,
            state: None,
            live: None,
            abandoned: Vec::new(),
            item: None,
        }
    }

    /// Is the run one row of a bulk step, and so a part of a run that is counted itself?
    pub fn is_part(&self) -> bool {
        self.item.is_some() && self.parent.is_some()
    }
}

/// Appends runs to the history. `ended_at` is by the clock of the session, `recorded_at` by the wall: the partition and
/// how long it is kept go by the latter, so that a session with a clock of its own cannot fill days that are yet to
/// come.
pub fn insert(ended_at: Micros, recorded_at: Micros, runs: &[EndedRun]) -> bool {
    let text = |value: &Option<String>| value.as_ref().map(|text| text_varlena(text));
    append(
        "run_history",
        recorded_at,
        runs.iter().map(|run| {
            [
                Some(pg_sys::Datum::from(run.id.0)),
                Some(pg_sys::Datum::from(run.event_id.0)),
                Some(pg_sys::Datum::from(run.event_at)),
                Some(pg_sys::Datum::from(run.started_at)),
                Some(pg_sys::Datum::from(ended_at)),
                Some(pg_sys::Datum::from(run.owner)),
                Some(pg_sys::Datum::from(run.automation_id.0)),
                Some(pg_sys::Datum::from(run.version_id.0)),
                Some(pg_sys::Datum::from(run.trigger_no)),
                Some(pg_sys::Datum::from(run.attempt)),
                Some(pg_sys::Datum::from(run.depth)),
                Some(text_varlena(run.ending.word())),
                text(&run.kind),
                text(&run.entity_id),
                text(&run.key),
                text(&run.tenant),
                text(&run.reason),
                text(&run.error),
                text(&run.steps),
                run.parent.map(|run| pg_sys::Datum::from(run.0)),
                text(&run.output),
                run.state.as_deref().map(kept_json),
                // The partition was chosen by this time; every row of the batch must belong in that partition.
                Some(pg_sys::Datum::from(recorded_at)),
            ]
        }),
    )
}

const FORGET_BEFORE: &str =
    "DELETE FROM automation_internal.run_history AS h WHERE h.automation_id = $1 AND h.ended_at < $2";

/// Forgets runs of an automation that ended before an instant.
pub fn forget_before(automation: AutomationId, instant: Micros) -> u64 {
    as_engine(|| execute(FORGET_BEFORE, &[automation.0.into(), Arg::timestamp(instant)]))
}

const FORGET_ALL_BUT: &str = "
    DELETE FROM automation_internal.run_history AS h
     WHERE h.automation_id = $1
       AND h.id <= (SELECT o.id
                      FROM automation_internal.run_history AS o
                     WHERE o.automation_id = $1
                     ORDER BY o.id DESC
                    OFFSET $2
                     LIMIT 1)";

/// Forgets all but so many runs of an automation, the newest.
pub fn forget_all_but(automation: AutomationId, runs: i64) -> u64 {
    as_engine(|| execute(FORGET_ALL_BUT, &[automation.0.into(), runs.into()]))
}

const OUTCOMES: &str = "
    SELECT h.id, h.status, h.output, h.error
      FROM automation_internal.run_history AS h
     WHERE h.id = ANY ($1)";

/// How runs ended: (run, status, output, error).
pub fn outcomes(runs: &[RunId]) -> Vec<(RunId, String, Option<String>, Option<String>)> {
    if runs.is_empty() {
        return Vec::new();
    }
    as_engine(|| {
        query(OUTCOMES, &[run_numbers(runs)], |row| Some((RunId(row.int8(1)?), row.text(2)?, row.text(3), row.text(4))))
    })
    .into_iter()
    .flatten()
    .collect()
}

const ENDING: &str = "
    SELECT h.owner, h.status, h.ended_at::text
      FROM automation_internal.run_history AS h
     WHERE h.id = $1";

/// (owner, status, when) of a run that ended.
pub fn ending(run_id: RunId) -> Option<(pg_sys::Oid, String, String)> {
    as_engine(|| {
        query_one(ENDING, &[run_id.0.into()], |row| {
            Some((row.oid(1)?, row.text(2).unwrap_or_default(), row.text(3).unwrap_or_default()))
        })
    })
    .flatten()
}
