//! Retries: which run repeats which failed run.
use automation_core::ids::RunId;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::as_engine;

const NOTE: &str = "
    INSERT INTO automation_internal.run_retry (run_id, retry_of)
    VALUES ($1, $2)
        ON CONFLICT (retry_of) WHERE stands DO NOTHING";

/// Notes that a run repeats another. False if a run does so already; waits for a session that is noting a retry now.
pub fn note(run_id: RunId, retry_of: RunId) -> bool {
    as_engine(|| execute(NOTE, &[run_id.0.into(), retry_of.0.into()])) == 1
}

// A retry that took no step has done nothing that another retry would do again.
const GIVE_WAY: &str = "
    UPDATE automation_internal.run_retry AS t
       SET stands = false
     WHERE t.retry_of = $1
       AND t.stands
       AND EXISTS (SELECT
                     FROM automation_internal.run_history AS h
                    WHERE h.id = t.run_id
                      AND h.status <> 'completed'
                      AND pg_catalog.json_array_length(COALESCE(h.steps, '[]')) = 0)";

/// Lets a retry that has ended without having taken a step give way to the next.
pub fn give_way(retry_of: RunId) {
    as_engine(|| execute(GIVE_WAY, &[retry_of.0.into()]));
}

const STANDING: &str = "
    SELECT t.run_id, h.status, h.ended_at::text
      FROM automation_internal.run_retry AS t
      LEFT JOIN automation_internal.run_history AS h ON h.id = t.run_id
     WHERE t.retry_of = $1
       AND t.stands";

/// The run that repeats another: its number, and how and when it ended if it has.
pub fn standing(retry_of: RunId) -> Option<(RunId, Option<(String, String)>)> {
    as_engine(|| {
        query_one(STANDING, &[retry_of.0.into()], |row| Some((RunId(row.int8(1)?), row.text(2).zip(row.text(3)))))
    })
    .flatten()
}

const PRUNE: &str = "
    DELETE FROM automation_internal.run_retry AS t
     WHERE t.ordered_at < $1
       AND NOT EXISTS (SELECT FROM automation_internal.run_history AS h WHERE h.id = t.run_id)
       AND NOT EXISTS (SELECT FROM automation_internal.run AS r WHERE r.id = t.run_id)
       AND NOT EXISTS (SELECT FROM automation_internal.dispatch AS d WHERE d.run_id = t.run_id)";

/// Forgets retries whose runs the history has forgotten.
pub fn prune(before: Micros) {
    as_engine(|| execute(PRUNE, &[Arg::timestamp(before)]));
}
