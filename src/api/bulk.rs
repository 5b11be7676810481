//! Backfills and bulk steps: begun, approved, cancelled.
use automation_core::bulk::{self as decide, JobState, Refusal};
use automation_core::program::Program;
use automation_core::topic;
use automation_core::triggers::Backfill;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::definitions::by_name::{Named, typed};
use crate::definitions::versions;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::append::next_id;
use crate::pg::catch::PgError;
use crate::pg::query_pages::{self, Column};
use crate::pg::server_text;
use crate::pg::statement::Spi;
use crate::pg::subtransaction::in_subtransaction;
use crate::pg::text::Text;
use crate::pg::{clock, identity, names, settings};
use crate::provenance;
use crate::runs::bulk::put_an_end;
use crate::runs::bulk_item::nudge as nudge_bulk;
use crate::store::bulk::{self, Job, NewJob, RowsAs};
use crate::store::kinds::{self, Kind};
use crate::store::log;

/// Runs an automation for each row of a query, at most so many in a second. Returns the job's number, see
/// automation.progress.
#[pg_extern]
fn backfill(
    name: Option<Text>,
    query: Option<Text>,
    rate: default!(Option<f64>, "NULL"),
    approve: default!(Option<bool>, "false"),
    kind: default!(Option<Text>, "NULL"),
    tenant: default!(Option<Text>, "NULL"),
) -> Result<i64, ErrorReport> {
    let name = name.as_deref();
    let query = query.as_deref();
    let kind = kind.as_deref();
    let tenant = tenant.as_deref();
    let given = name.ok_or_else(|| EngineError::null_argument("name"));
    given
        .and_then(|name| Ok((name, query.ok_or_else(|| EngineError::null_argument("query"))?)))
        .and_then(|(name, query)| {
            let named = Named { function: "backfill", name, tenant };
            begin(&named, query, rate, approve.unwrap_or_default(), kind)
        })
        .or_report()
}

fn begin(named: &Named<'_>, query: &str, rate: Option<f64>, approve: bool, kind: Option<&str>) -> EngineResult<i64> {
    let known = named.find()?;
    let name = known.name.as_str();
    if known.status != "active" {
        return Err(EngineError::wrong_state(format!("cannot backfill automation \"{name}\""))
            .detail(format!("It is {}.", known.status))
            .hint(format!("{}.", typed("activate", name, known.tenant.as_deref()))));
    }
    if let Some(rate) = rate.filter(|rate| !decide::is_rate(*rate)) {
        return Err(EngineError::invalid(format!("invalid rate {rate}")).hint(decide::RATE_HINT));
    }
    let columns = examine(known.owner, query).map_err(|error| {
        let place = format!("query of the backfill of automation \"{name}\"");
        EngineError::statement(&place, query, &error, error.position)
    })?;
    versions::load(std::iter::once(known.version_id));
    let version = versions::get(known.version_id).map_err(EngineError::bug)?;
    let rows = rows_of(name, &version.program, &columns, kind)?;
    let path = settings::current(c"search_path").map(|path| server_text::read_c(&path)).unwrap_or_default();
    let by = names::role_name(identity::current_user()).unwrap_or_default();
    let cause = provenance::cause();
    let id = next_id("run_id_seq");
    bulk::insert(&NewJob {
        id,
        owner: known.owner,
        automation_id: known.id,
        version_id: known.version_id,
        trigger_no: rows.trigger_no,
        needs_approval: approve,
        query,
        params: "[]",
        search_path: &path,
        rate,
        rows_as: rows.rows_as,
        kind: rows.kind.as_deref(),
        topic: rows.topic.as_deref(),
        step: None,
        cause: cause.run.map(|run| (run, cause.depth - 1)),
        created_by: &by,
        now: clock::engine_now(),
    });
    if let Some(job) = bulk::find(id) {
        nudge_bulk(job.waiter(), true);
    }
    known.audit("automation.backfill_started", serde_json::json!({ "job": id, "query": query }));
    Ok(id)
}

/// Checks that the owner could run this query, and returns its columns.
fn examine(owner: pg_sys::Oid, query: &str) -> Result<Vec<Column>, PgError> {
    identity::as_role(owner, || {
        in_subtransaction(|| {
            let spi = Spi::open();
            let (statement, columns) = query_pages::prepare(&spi, query, &[])?;
            query_pages::try_out(&spi, &statement, &[])?;
            drop(statement);
            spi.close();
            Ok(columns)
        })
    })
}

/// How the rows of a backfill are read.
#[derive(Default)]
struct Rows {
    trigger_no: i16,
    rows_as: Option<RowsAs>,
    kind: Option<String>,
    topic: Option<String>,
}

/// Rows of a kind that a trigger is about stand for its entities; else they are payloads of an event that a trigger
/// listens for; else they are payloads as start_run() takes them.
fn rows_of(name: &str, program: &Program, columns: &[Column], kind: Option<&str>) -> EngineResult<Rows> {
    let enabled = program.triggers.iter().enumerate().filter(|(_, trigger)| trigger.enabled);
    let of_entities = enabled.clone().filter_map(|(no, trigger)| {
        let rows_as = match trigger.on.form().backfill {
            Backfill::Created => RowsAs::Created,
            Backfill::Updated => RowsAs::Updated,
            Backfill::None | Backfill::Event => return None,
        };
        Some(Rows { trigger_no: no as i16, rows_as: Some(rows_as), kind: trigger.kind.clone(), topic: None })
    });
    if let Some(wanted) = kind {
        let known = kinds::find(wanted).ok_or_else(|| EngineError::unknown_kind(wanted))?;
        if let Some(missing) = key_of(&known).iter().find(|key| !columns.iter().any(|column| column.name == **key)) {
            return Err(EngineError::undefined_name(format!("the query does not give column \"{missing}\""))
                .detail(format!("Entities of kind \"{wanted}\" are known by it.")));
        }
        let found = of_entities.into_iter().find(|rows| rows.kind.as_deref() == Some(wanted));
        return found.ok_or_else(|| {
            EngineError::invalid(format!("automation \"{name}\" has no trigger on kind \"{wanted}\""))
                .hint("Leave kind out to hand the rows over as payloads.")
        });
    }
    let shown = |rows: &Rows| rows.kind.as_deref().and_then(kinds::find).is_some_and(|kind| shows(&kind, columns));
    if let Some(rows) = of_entities.into_iter().find(shown) {
        return Ok(rows);
    }
    let mut of_events =
        enabled.filter(|(_, trigger)| trigger.on.form().backfill == Backfill::Event).filter_map(|(no, trigger)| {
            let topic = trigger.patterns.iter().find(|pattern| !topic::is_pattern(pattern))?.clone();
            Some(Rows { trigger_no: no as i16, rows_as: Some(RowsAs::Event), kind: None, topic: Some(topic) })
        });
    Ok(of_events.next().unwrap_or(Rows { trigger_no: -1, ..Rows::default() }))
}

/// The columns by which entities of a kind are known.
fn key_of(kind: &Kind) -> Vec<&str> {
    if kind.id_columns.is_empty() { vec!["id"] } else { kind.id_columns.iter().map(String::as_str).collect() }
}

/// Does a query show the key of a watched table under its own name?
fn shows(kind: &Kind, columns: &[Column]) -> bool {
    let Some(relation) = kind.relation else { return false };
    key_of(kind).iter().all(|key| {
        columns.iter().any(|column| {
            column.name == *key && column.origin.as_ref().is_some_and(|(table, own)| *table == relation && own == key)
        })
    })
}

type Outcome = (bool, Option<Text>, Option<Text>, Option<Text>);

fn told(outcome: Result<&'static str, Refusal>) -> Outcome {
    match outcome {
        Ok(applied) => (true, Some(applied.into()), None, None),
        Err(refusal) => (false, None, Some(refusal.reason().into()), Some(refusal.message().into())),
    }
}

/// Lets a job that waits for it go on.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn approve_bulk(
    job: i64,
) -> TableIterator<
    'static,
    (name!(ok, bool), name!(applied, Option<Text>), name!(reason, Option<Text>), name!(message, Option<Text>)),
> {
    TableIterator::once(told(approve(job)))
}

/// Ends a job: its rows that are under way are cancelled, statements that execute are interrupted, and the others are
/// not begun.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn cancel_bulk(
    job: i64,
) -> TableIterator<
    'static,
    (name!(ok, bool), name!(applied, Option<Text>), name!(reason, Option<Text>), name!(message, Option<Text>)),
> {
    TableIterator::once(told(cancel(job)))
}

/// A job of a role whose rights the caller has, locked; other jobs do not exist for the caller.
fn own(id: i64) -> Result<Job, Refusal> {
    let user = identity::current_user();
    bulk::find(id).filter(|job| identity::has_role(user, job.owner)).ok_or(Refusal::NotFound)?;
    bulk::wait_for(id).ok_or(Refusal::NotFound)
}

fn approve(id: i64) -> Result<&'static str, Refusal> {
    let mut job = own(id)?;
    let waits = job.state != JobState::Querying || job.needs_approval;
    let Some(state) = job.state.approve()?.filter(|_| waits) else { return Ok("recorded") };
    job.needs_approval = false;
    if state == JobState::Executing {
        job.started_at = Some(clock::engine_now());
    }
    job.state = state;
    bulk::save(&mut job);
    nudge_bulk(job.waiter(), state == JobState::Querying);
    log::audit_of(Some(job.owner), "automation.bulk_approved", &job.automation, &serde_json::json!({ "job": id }));
    Ok("transitioned")
}

fn cancel(id: i64) -> Result<&'static str, Refusal> {
    let job = own(id)?;
    let (owner, automation) = (job.owner, job.automation.clone());
    if !put_an_end(job, false)? {
        return Ok("recorded");
    }
    log::audit_of(Some(owner), "automation.bulk_cancelled", &automation, &serde_json::json!({ "job": id }));
    Ok("transitioned")
}
