//! The end of runs: writes them into the history, removes their other rows, and tells the runs and jobs that wait for
//! them.
use std::collections::HashMap;

use automation_core::definition::Mode;
use automation_core::ids::{AutomationId, RunId, VersionId, WaitNo};
use automation_core::machine::{JobItem, State};
use automation_core::order::Order;

use super::bulk_item;
use super::engine_events;
use super::error::error_json;
use super::run::of_live;
use super::suspend::Suspension;
use crate::definitions::versions;
use crate::event_log::events::{NewEvent, Op, append_event, append_move};
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::store::history::{self, EndedRun, Ending};
use crate::store::live::{self, LiveRun};
use crate::store::stats::{self, Counts};
use crate::store::step_stats;
use crate::store::timers;
use crate::store::wakes;

/// Ends runs outside of a batch, and publishes their end.
pub fn end(ended: &[EndedRun]) {
    put_down(ended);
    engine_events::tell_ended(ended);
}

/// The functions called when runs have ended, in this order, in the transaction that ends them.
const LISTENERS: [fn(&[EndedRun]); 4] = [record, forget_waits, bulk_item::count_ended, tell_waiting];

/// Writes runs into the history and calls all listeners of their end.
pub fn put_down(ended: &[EndedRun]) {
    if !ended.is_empty() {
        LISTENERS.iter().for_each(|listener| listener(ended));
    }
}

fn record(ended: &[EndedRun]) {
    history::insert(clock::engine_now(), clock::now(), ended);
}

/// Removes the rows that runs left behind when they suspended, and calls the next runs of their queues.
fn forget_waits(ended: &[EndedRun]) {
    let had_waited: Vec<&EndedRun> = ended.iter().filter(|run| run.live.is_some()).collect();
    if had_waited.is_empty() {
        return;
    }
    let waits = had_waited.iter().flat_map(|run| {
        // 0 is the run's own deadline
        let numbers = run.live.iter().flatten().map(|note| note.no).chain(std::iter::once(WaitNo::NONE));
        numbers.map(|no| (run.id, no))
    });
    let waits: Vec<(RunId, WaitNo)> = waits.collect();
    wakes::delete(&waits);
    timers::delete(&waits);
    live::delete(&had_waited.iter().map(|run| run.id).collect::<Vec<_>>());
    call_next(&had_waited);
}

/// Tells the runs whose steps wait for these runs, and the schedules whose ticks wait for them.
fn tell_waiting(ended: &[EndedRun]) {
    versions::load(ended.iter().filter(|run| run.trigger_no >= 0).map(|run| run.version_id));
    for run in ended {
        let frees = frees_a_tick(run).then(|| Order::Freed { automation_id: run.automation_id }.encode());
        // No run waits for the rows of a bulk step one by one.
        if (run.parent.is_none() || run.item.is_some()) && frees.is_none() {
            continue;
        }
        let id = run.id.to_string();
        append_event(&NewEvent {
            op: Some(Op::Ended),
            entity_id: Some(id.as_bytes()),
            next: frees.as_deref().map(str::as_bytes),
            ..Default::default()
        });
    }
}

/// Orders the call of the next run in the queue behind each run that has ended. The router finds that run when this
/// transaction has committed: a run that joins the queue in another transaction may not be visible here, and does not
/// see the end of the run before it either.
fn call_next(ended: &[&EndedRun]) {
    versions::load(ended.iter().map(|run| run.version_id));
    let queues =
        |version: VersionId| versions::get(version).is_ok_and(|known| known.program.limits.mode == Mode::Queued);
    let keyed = ended.iter().filter_map(|run| Some((run.automation_id, run.version_id, run.mode_key.as_deref()?)));
    let (queued, others): (Vec<_>, Vec<_>) = keyed.partition(|(_, version, _)| queues(*version));
    let mut keys: Vec<(AutomationId, String)> =
        queued.into_iter().map(|(automation, _, key)| (automation, key.to_owned())).collect();
    // A run of a version that does not queue can have a run of another version behind it.
    keys.extend(live::with_followers(&others));
    keys.sort_unstable();
    keys.dedup();
    for (automation_id, key) in keys {
        append_move(&Order::Turn { automation_id, key });
    }
}

/// May a tick of the schedule that started the run wait for its end?
fn frees_a_tick(run: &EndedRun) -> bool {
    let Ok(place) = usize::try_from(run.trigger_no) else { return false };
    let Ok(version) = versions::get(run.version_id) else { return false };
    let schedule = version.program.triggers.get(place).and_then(|trigger| trigger.schedule.as_ref());
    schedule.is_some_and(automation_core::schedule::Schedule::may_queue)
}

/// Adds ended and suspended runs, and holds that began, to the statistics. `held` are (automation, trigger).
pub fn count(ended: &[EndedRun], suspended: &[Suspension], held: &[(AutomationId, i16)], at: i64) {
    // A run that was hot executed no step and does not count; the rows of a bulk step are parts of a run that is
    // counted itself.
    let ended: Vec<&EndedRun> = ended.iter().filter(|run| run.ending != Ending::Hot && !run.is_part()).collect();
    let began = suspended.iter().filter(|put| put.is_new && (put.item.is_none() || put.run.parent.is_none()));
    let began: Vec<&LiveRun> = began.map(|put| &put.run).collect();
    let mut counts: HashMap<(AutomationId, i16), Counts> = HashMap::new();
    for run in &ended {
        add(counts.entry((run.automation_id, run.trigger_no)).or_default(), run);
    }
    for trigger in held {
        counts.entry(*trigger).or_default().held += 1;
    }
    for run in &began {
        counts.entry((run.automation_id, run.trigger_no)).or_default().entered += 1;
    }
    if !counts.is_empty() {
        stats::add(counts.iter(), at);
    }
    // The same counts by tenant, for the runs that have one.
    let mut counts: HashMap<(AutomationId, &str), Counts> = HashMap::new();
    for (run, tenant) in ended.iter().filter_map(|run| Some((run, run.tenant.as_deref()?))) {
        add(counts.entry((run.automation_id, tenant)).or_default(), run);
    }
    for (run, tenant) in began.iter().filter_map(|run| Some((run, run.tenant.as_deref()?))) {
        counts.entry((run.automation_id, tenant)).or_default().entered += 1;
    }
    if !counts.is_empty() {
        step_stats::add_tenants(&counts, at);
    }
}

fn add(counts: &mut Counts, run: &EndedRun) {
    counts.entered += i64::from(run.live.is_none());
    counts.run_time_us += run.ended_at - run.started_at;
    match run.ending {
        Ending::Completed => counts.completed += 1,
        Ending::Failed => counts.failed += 1,
        Ending::Cancelled => counts.cancelled += 1,
        Ending::Skipped | Ending::Hot => counts.skipped += 1,
    }
}

/// The row in the history of a live run that cannot be executed and ends as failed, without regard to its waits.
pub fn give_up(live: LiveRun, reason: &'static str, error: &PgError) -> EndedRun {
    let run = of_live(&live);
    let steps = Some(live.steps.clone()).filter(|steps| steps != "[]");
    let (abandoned, item) = ties(&live);
    EndedRun {
        error: Some(error_json(error, None)),
        steps,
        abandoned,
        item,
        live: Some(live.waits),
        ..run.ended(Ending::Failed, Some(reason))
    }
}

/// The ties of a live run to others: the runs and jobs it waits for, and the row of a job that it is for.
fn ties(live: &LiveRun) -> (Vec<i64>, Option<JobItem>) {
    let state: Option<State> = serde_json::from_str(&live.state).ok();
    state.map(|state| (state.children().collect(), state.job)).unwrap_or_default()
}

/// The bulk job of which a live run is a row.
pub fn job_of(live: &LiveRun) -> Option<i64> {
    // Most runs belong to no job: their state is not parsed for this.
    live.state.contains("\"job\"").then(|| ties(live).1.map(|item| item.job))?
}

/// The row in the history of a live run that is cancelled.
pub fn cancelled(live: &LiveRun, reason: &str) -> EndedRun {
    let run = of_live(live);
    let (abandoned, item) = ties(live);
    let steps = Some(live.steps.clone()).filter(|steps| steps != "[]");
    EndedRun {
        ended_at: clock::engine_now(),
        steps,
        live: Some(live.waits.clone()),
        abandoned,
        item,
        ..run.ended(Ending::Cancelled, Some(reason))
    }
}
