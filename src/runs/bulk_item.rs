//! A run that is one row of a bulk job: the event and state it begins with, and the counts that its end adds to the
//! job.
//!
//! The transaction that ends such runs only inserts: the outcome of each row, one tally per batch and job, and one
//! order to tend the job. So no such transaction waits for the commit of another, and the last one need not know that
//! it is the last: the order is routed after the commit, so that the executor that then tends the job sees all that was
//! counted before.
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use automation_core::ids::{RunId, WaitNo};
use automation_core::machine::{Machine, State, Surroundings};
use automation_core::order::{Order, Start};
use automation_core::value::Value;

use super::suspend::Suspension;
use crate::definitions::versions::Version;
use crate::event_log::events::{Event, Op, append_move};
use crate::store::bulk::{self, Outcome, RowsAs};
use crate::store::bulk_tally::{self, Tally};
use crate::store::history::{EndedRun, Ending};
use crate::store::wakes::Waiter;

/// The event and the surroundings that the runs of one bulk step's rows have in common.
struct Family {
    event: Event,
    surroundings: Surroundings,
}

/// How many jobs this process remembers.
const MOST_FAMILIES: usize = 20;

thread_local!(static FAMILIES: RefCell<HashMap<i64, Rc<Family>>> = RefCell::new(HashMap::new()));

fn family(job: i64) -> Option<Rc<Family>> {
    if let Some(known) = FAMILIES.with(|families| families.borrow().get(&job).cloned()) {
        return Some(known);
    }
    let (event, surroundings) = bulk::family(job)?;
    let surroundings = serde_json::from_str(&surroundings).unwrap_or_default();
    let read = Rc::new(Family { event: Event::from_json(&event)?, surroundings });
    FAMILIES.with(|families| {
        let mut families = families.borrow_mut();
        if families.len() >= MOST_FAMILIES {
            families.clear();
        }
        families.insert(job, read.clone());
    });
    Some(read)
}

/// The tenant of the run whose step waits for a job.
pub fn tenant(job: i64) -> Option<String> {
    family(job)?.event.tenant.clone()
}

/// The event that the run of a row is about, if that is not its order itself: for a step the event of the run that has
/// the step, for a backfill the row as if it had just been written.
pub fn event_of(ordered: &Event) -> Option<Event> {
    let row = ordered.start()?.row?;
    if row.of_step.is_some() {
        return family(row.bulk).map(|family| family.event.clone());
    }
    let backfill = row.backfill?;
    Some(as_event(ordered.clone(), RowsAs::from_code(&backfill.rows_as)?, backfill.topic))
}

/// Turns an order whose payload is a row into the event that the row stands for.
pub fn as_event(mut event: Event, rows_as: RowsAs, topic: Option<String>) -> Event {
    match rows_as {
        RowsAs::Event => {
            event.op = Op::Emitted;
            event.topic = topic;
            event.next = None;
        }
        RowsAs::Created => {
            event.op = Op::Created;
            event.topic = None;
            event.next = event.payload.take();
        }
        RowsAs::Updated => {
            event.op = Op::Updated;
            event.topic = None;
            event.next = event.payload.take();
            // The values before the change are not known: every column counts as changed.
            let row: serde_json::Map<String, serde_json::Value> =
                event.next.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            event.changed = row.keys().cloned().collect();
            let before = row.into_iter().map(|(name, _)| (name, serde_json::Value::Null));
            event.prev = Some(serde_json::Value::Object(before.collect()).to_string());
        }
    }
    event
}

/// The state in which the run of a bulk step's row begins. None if the order is not for such a run.
pub fn begin(version: &Version, ordered: &Event, order: &Start) -> Option<State> {
    let step = usize::try_from(order.row_of_step()?.step).ok()?;
    let family = family(order.row.as_ref()?.bulk)?;
    let item = ordered.payload.as_deref().and_then(|row| Value::from_json(row).ok()).unwrap_or_default();
    Machine::start_item(&version.program, step, family.surroundings.clone(), item)
}

/// Orders that a job be tended. The order is routed when this transaction has committed. `alone` if tending it may take
/// long.
pub fn nudge(waiter: Waiter, alone: bool) {
    append_move(&Order::Bulk {
        job: waiter.run_id.0,
        owner: waiter.owner.to_u32(),
        automation_id: waiter.automation_id,
        version_id: waiter.version_id,
        alone,
    });
}

/// Was the run ordered and not begun, because its automation is paused?
fn came_back(run: &EndedRun) -> bool {
    run.ending == Ending::Cancelled && run.live.is_none() && run.reason.as_deref() == Some("automation_not_active")
}

/// Adds runs that have ended to the counts of their jobs.
pub fn count_ended(ended: &[EndedRun]) {
    if ended.iter().all(|run| run.item.is_none()) {
        return;
    }
    let mut outcomes = Vec::new();
    let mut tallies: BTreeMap<i64, (Waiter, Tally)> = BTreeMap::new();
    for run in ended {
        let Some(item) = run.item else { continue };
        let waiter = Waiter {
            run_id: RunId(item.job),
            wait_no: WaitNo::NONE,
            owner: run.owner,
            automation_id: run.automation_id,
            version_id: run.version_id,
        };
        let tally = &mut tallies.entry(item.job).or_insert_with(|| (waiter, Tally::default())).1;
        tally.waiting -= i64::from(run.live.is_some());
        let (status, count) = match run.ending {
            Ending::Cancelled if came_back(run) => ("returned", &mut tally.returned),
            Ending::Completed => ("completed", &mut tally.completed),
            Ending::Failed => ("failed", &mut tally.failed),
            Ending::Cancelled => ("cancelled", &mut tally.cancelled),
            _ => ("skipped", &mut tally.skipped),
        };
        *count += 1;
        let error = run.error.clone().filter(|_| status == "failed");
        if tally.error.is_none() {
            tally.error.clone_from(&error);
        }
        outcomes.push(Outcome { item, run_id: run.id, status, error });
    }
    if bulk::add_outcomes(&outcomes) != outcomes.len() as u64 {
        // The whole transaction is rolled back: one of these rows has ended before.
        pgrx::error!("automation_engine bug: a row of a bulk job has ended twice");
    }
    add(tallies);
}

/// Adds runs that have begun to wait to the counts of their jobs: such runs do not delay other rows.
pub fn count_suspended(suspended: &[Suspension]) {
    let mut tallies: BTreeMap<i64, (Waiter, Tally)> = BTreeMap::new();
    for put in suspended.iter().filter(|put| put.is_new) {
        let Some(item) = put.item else { continue };
        let waiter = Waiter { run_id: RunId(item.job), ..super::suspend::waiter(&put.run, WaitNo::NONE) };
        tallies.entry(item.job).or_insert_with(|| (waiter, Tally::default())).1.waiting += 1;
    }
    add(tallies);
}

fn add(tallies: BTreeMap<i64, (Waiter, Tally)>) {
    for (job, (waiter, tally)) in tallies {
        bulk_tally::add(job, &tally);
        nudge(waiter, false);
    }
}
