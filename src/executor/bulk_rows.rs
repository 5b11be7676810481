//! The rows of a bulk job: reads them from its query, checks whether they are for the automation, and orders their
//! runs.
use std::rc::Rc;

use automation_core::expr::Budget;
use automation_core::gate::Code;
use automation_core::gate::change::{self, Occurrence};
use automation_core::ids::{EventId, RunId};
use automation_core::machine::{JobItem, Kept};
use automation_core::order::{Row, RowOfBackfill, RowOfStep, Start};
use automation_core::value::MAX_LEVELS;
use pgrx::pg_sys;

use super::bind::{own_type, parameter};
use crate::definitions::scope::EventScope;
use crate::definitions::tenant_view::tenant_matches;
use crate::definitions::versions::{self, Version};
use crate::event_log::events::{self, Event, NewEvent, Op};
use crate::gucs;
use crate::pg::append::next_id;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::encode::LeftOut;
use crate::pg::query_pages::{self, PageRow};
use crate::pg::server_text;
use crate::pg::session::{self, StatementTimeout};
use crate::pg::settings::Pinned;
use crate::pg::statement::Spi;
use crate::runs::bulk_item;
use crate::runs::error::{error_json, from_expression};
use crate::store::bulk::{self, Item, Job, Outcome};
use crate::store::kinds::{self, Kind};

/// Most rows that are checked each time a job is tended.
const MOST_ROWS: i64 = 5000;
/// Rows that are read at the same time.
const PAGE: i64 = 500;

/// Stored instead of a row (which is always an object) that is nested too deeply. For a row that is too large, nothing
/// is stored.
const TOO_DEEP: &[u8] = b"null";

/// Runs the query of a job as the current role and stores its rows. Returns their number.
pub fn read(job: &Job, is_worker: bool) -> Result<i64, PgError> {
    let Some((query, params, path)) = bulk::query_of(job.id) else { return Ok(0) };
    let values: Vec<Kept> = serde_json::from_str(&params).map_err(|error| PgError::new("XX000", error.to_string()))?;
    let path = server_text::c_string(&path)?;
    let pinned = Pinned::open();
    pinned.set(c"search_path", &path);
    let spi = Spi::open();
    let own: Vec<_> = values.iter().map(|value| own_type(&value.0)).collect();
    let (statement, _) = query_pages::prepare(&spi, &query, &own)?;
    let parameters = values
        .iter()
        .zip(statement.types())
        .map(|(value, type_oid)| parameter(&value.0, *type_oid))
        .collect::<Result<Vec<_>, PgError>>()?;
    let mut total = 0;
    let _timeout = gucs::step_timeout_ms().map(StatementTimeout::start);
    query_pages::each_page(&spi, &statement, &parameters, gucs::max_value_bytes(), |page: Vec<PageRow>| {
        let items: Vec<Item> = page
            .into_iter()
            .map(|row| {
                total += 1;
                let data = match row {
                    Ok(row) => Some(row),
                    Err(LeftOut::TooDeep) => Some(TOO_DEEP.to_vec()),
                    Err(LeftOut::TooLarge) => None,
                };
                Item { no: total, run_id: RunId(next_id("run_id_seq")), data }
            })
            .collect();
        bulk::add_items(job.id, &items);
        Ok(())
    })?;
    spi.close();
    if is_worker {
        // Session state that functions of the query may have left behind must not reach the next statement.
        session::forget();
    }
    drop(pinned);
    Ok(total)
}

/// The result of beginning rows.
pub struct Begun {
    /// How many runs were ordered.
    pub rows: i64,
    /// More rows are to be checked at once.
    pub more: bool,
}

/// Begins up to `quota` rows: first those that were returned because the automation was paused, then the next ones in
/// order. Rows that are not for the automation are passed over.
pub fn begin(job: &mut Job, quota: i64) -> Result<Begun, String> {
    versions::load(std::iter::once(job.version_id));
    let order = Orders::new(job, versions::get(job.version_id)?);
    let mut begun = 0;
    if job.counts.returned > 0 && quota > 0 {
        let back = bulk::take_returned(job.id, quota.min(job.counts.returned));
        job.counts.returned -= back.len() as i64;
        begun += back.len() as i64;
        back.iter().for_each(|item| order.place(item, &order.event(item)));
    }
    let mut looked_at = 0;
    while begun < quota && looked_at < MOST_ROWS && job.counts.issued < job.counts.total {
        let items = bulk::items(job.id, job.counts.issued, PAGE.min(quota - begun));
        let Some(last) = items.last().map(|item| item.no) else {
            return Err(format!("row {} of bulk job {} is gone", job.counts.issued + 1, job.id));
        };
        looked_at += items.len() as i64;
        job.counts.issued = last;
        let mut passed_over = Vec::new();
        for item in &items {
            let event = order.event(item);
            match order.refusal(item, &event) {
                None => {
                    order.place(item, &event);
                    begun += 1;
                }
                Some((status, error)) => {
                    match status {
                        "failed" => job.counts.failed += 1,
                        _ => job.counts.skipped += 1,
                    }
                    if let Some(error) = &error {
                        bulk::note_error(job.id, error);
                    }
                    let item = JobItem { job: job.id, no: item.no };
                    passed_over.push(Outcome { item, run_id: RunId(0), status, error });
                }
            }
        }
        bulk::add_outcomes(&passed_over);
        pgrx::check_for_interrupts!();
    }
    events::insert_buffered();
    Ok(Begun { rows: begun, more: begun < quota && job.counts.issued < job.counts.total })
}

/// Makes the events and orders for the rows of a job.
struct Orders {
    job: Job,
    version: Rc<Version>,
    kind: Option<Kind>,
    tenant_column: Option<String>,
    /// The tenant of rows that do not name one.
    tenant: Option<String>,
    topic: String,
    now: clock::Micros,
    // All orders have the same command id, so that they are inserted together.
    command: pg_sys::CommandId,
}

impl Orders {
    fn new(job: &Job, version: Rc<Version>) -> Self {
        let kind = job.kind.as_deref().and_then(kinds::find);
        let tenant = match job.run_id {
            Some(_) => bulk_item::tenant(job.id),
            None => version.program.tenant.clone(),
        };
        Orders {
            tenant_column: job.kind.as_deref().and_then(bulk::tenant_column),
            kind,
            tenant,
            topic: format!("automation.invocation.{}", job.automation),
            now: clock::now(),
            command: events::current_command(),
            version,
            job: job.clone(),
        }
    }

    /// The event that a row stands for.
    fn event(&self, item: &Item) -> Event {
        let text = item.data.as_ref().map(|row| server_text::read(row).into_owned());
        let mut event = Event {
            id: EventId(0),
            xid: 0,
            occurred_at: self.now,
            cause_run: self.job.cause_run,
            relation: self.kind.as_ref().and_then(|kind| kind.relation),
            role: self.job.owner,
            depth: self.job.depth,
            op: Op::Started,
            truncated: false,
            kind: None,
            entity_id: None,
            topic: None,
            tenant: self.tenant.clone(),
            actor: None,
            changed: Vec::new(),
            prev: None,
            next: None,
            payload: text,
            window: None,
        };
        if let Some(kind) = &self.kind {
            let row: serde_json::Value =
                event.payload.as_deref().and_then(|row| serde_json::from_str(row).ok()).unwrap_or_default();
            event.kind = Some(kind.kind.clone());
            event.entity_id = entity_id(kind, &row);
            if let Some(column) = &self.tenant_column {
                event.tenant = plain(&row[column.as_str()]).or(event.tenant);
            }
        }
        match self.job.rows_as {
            Some(rows_as) => bulk_item::as_event(event, rows_as, self.job.topic.clone()),
            None => event,
        }
    }

    /// The reason why a row gets no run: the one for which the router would refuse the event.
    fn refusal(&self, item: &Item, event: &Event) -> Option<(&'static str, Option<String>)> {
        let limit = gucs::max_value_bytes() / 1024;
        let too_large = ("is too large", format!("It is larger than automation_engine.max_value_size, {limit} kB."));
        let too_deep = ("is nested too deeply", format!("A value in it has more than {MAX_LEVELS} levels."));
        let not_kept = match item.data.as_deref() {
            None => Some(too_large),
            Some(TOO_DEEP) => Some(too_deep),
            Some(_) => None,
        };
        if let Some((what, detail)) = not_kept {
            let error = PgError {
                detail: Some(detail),
                hint: Some(
                    "Let the query give the key and the columns that are needed, and the steps read the rest.".into(),
                ),
                ..PgError::new("54000", format!("row {} {what}", item.no))
            };
            return Some(("failed", Some(error_json(&error, None))));
        }
        let program = &self.version.program;
        self.job.rows_as?;
        if !tenant_matches(program.tenant.as_deref(), event) {
            return Some(("skipped", None));
        }
        let trigger = program.triggers.get(usize::try_from(self.job.trigger_no).ok()?)?;
        let scope = EventScope::new(event, self.now);
        if trigger.has_pure_change() {
            let occurrence = Occurrence {
                tenant: event.tenant.as_deref(),
                entity: event.entity_id.as_deref(),
                changed: &event.changed,
            };
            match change::config(trigger, &occurrence, &scope, &mut Budget::default(), None) {
                Ok(()) => {}
                Err(Code::ValueError) => {
                    let told = change::matches(trigger, &occurrence, &scope, &mut Budget::default(), None);
                    let told = told.err().map(|reason| reason.to_string()).unwrap_or_default();
                    return Some(("failed", Some(error_json(&PgError::new("22023", told), None))));
                }
                Err(_) => return Some(("skipped", None)),
            }
        }
        let filter = trigger.filter.as_ref().filter(|filter| filter.is_pure_event())?;
        match filter.holds(&scope, &mut Budget::default()) {
            Ok(true) => None,
            Ok(false) => Some(("skipped", None)),
            Err(error) => {
                let text = automation_core::machine::text_of(filter);
                Some(("failed", Some(error_json(&from_expression(&error, &text), None))))
            }
        }
    }

    /// Orders the run of a row.
    fn place(&self, item: &Item, event: &Event) {
        let job = &self.job;
        let backfill =
            job.rows_as.map(|rows_as| RowOfBackfill { rows_as: rows_as.code().to_owned(), topic: job.topic.clone() });
        let of_step = job.step_no.zip(job.run_id).map(|(step, _)| RowOfStep { step, owner: job.owner.to_u32() });
        let start = Start {
            automation_id: job.automation_id,
            version_id: job.version_id,
            trigger_no: Some(job.trigger_no),
            run_id: item.run_id,
            parent: job.run_id.filter(|_| of_step.is_some()),
            row: Some(Row { bulk: job.id, item: item.no, backfill, of_step }),
            ..Default::default()
        };
        let order = start.order().encode();
        let payload = item.data.as_deref().map(server_text::as_utf8);
        let new = NewEvent {
            op: Some(Op::Started),
            relation: event.relation,
            kind: event.kind.as_deref(),
            entity_id: event.entity_id.as_deref().map(str::as_bytes),
            topic: Some(&self.topic),
            tenant: event.tenant.as_deref().map(str::as_bytes),
            next: Some(order.as_bytes()),
            payload: payload.as_deref(),
            ..Default::default()
        };
        events::buffer_event(&new, self.command);
    }
}

/// The text of a value that is part of a key.
fn plain(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The id of a row's entity, as capture would write it.
fn entity_id(kind: &Kind, row: &serde_json::Value) -> Option<String> {
    match &kind.id_columns[..] {
        [] => plain(&row["id"]),
        [column] => plain(&row[column.as_str()]),
        columns => {
            let values = columns.iter().map(|column| row[column.as_str()].clone()).collect();
            Some(serde_json::Value::Array(values).to_string())
        }
    }
}
