//! Runs that were asked for but not routed yet.
use pgrx::pg_sys;

use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::{as_engine, current_user};
use crate::pg::{clock, names};

const UNROUTED: &str = "
    SELECT a.owner
      FROM automation_internal.event AS e
      JOIN automation_internal.automation AS a ON a.id = (e.next ->> 'automation_id')::integer
     WHERE e.op = 's'
       AND (e.next ->> 'run_id')::bigint = $1
       AND e.id > (SELECT c.from_floor - 100000 FROM automation_internal.router_cursor AS c)";

/// Owner of a run that start_run() announced.
pub fn owner_of_unrouted(run_id: i64) -> Option<pg_sys::Oid> {
    as_engine(|| query_one(UNROUTED, &[run_id.into()], |row| row.oid(1))).flatten()
}

const REQUEST_CANCEL: &str = "
    INSERT INTO automation_internal.cancel_request (run_id, requested_by, requested_at)
    VALUES ($1, $2, $3)
        ON CONFLICT (run_id) DO NOTHING";

pub fn request_cancel(run_id: i64) -> bool {
    let by = names::role_name(current_user()).unwrap_or_default();
    as_engine(|| execute(REQUEST_CANCEL, &[run_id.into(), by.as_str().into(), Arg::timestamp(clock::now())])) == 1
}
