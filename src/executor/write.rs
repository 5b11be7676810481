//! The rows that a batch leaves behind, in one go at its end.
use std::collections::HashMap;

use automation_core::definition::Mode;

use super::batch::Claimer;
use super::breaker;
use super::bulk_item;
use super::engine_events;
use super::in_hand;
use super::step_counts;
use super::suspend::Suspension;
use super::versions;
use crate::event_log::events::{NewEvent, Op, append_event};
use crate::pg::clock;
use crate::pg::failpoint::failpoint;
use crate::pg::session;
use crate::signal::at_commit;
use crate::store::dispatches;
use crate::store::gates;
use crate::store::history::{self, EndedRun, Ending};
use crate::store::live::{self, LiveRun};
use crate::store::stats::{self, Counts};
use crate::store::step_stats;
use crate::store::timers::{self, Timer};
use crate::store::wakes::{self, Wake};

/// Writes what became of the runs of a batch and removes its dispatches.
pub fn write(
    claimer: &mut Claimer,
    ended: &[EndedRun],
    suspended: &[Suspension],
    disarmed: &[(i64, i32)],
    done: &[i64],
) {
    if done.is_empty() && ended.is_empty() && suspended.is_empty() && disarmed.is_empty() {
        return;
    }
    let at = clock::now();
    timers::disarm(disarmed);
    suspend(claimer, suspended);
    bulk_item::count_suspended(suspended);
    put_down(ended);
    engine_events::tell(ended, suspended);
    dispatches::finish(claimer.owner, done);
    count(ended, suspended, &std::mem::take(&mut claimer.held), at);
    gates::add_refusals(&claimer.refused, at);
    breaker::hear(ended);
    step_counts::write(at);
    in_hand::clear();
    for run in ended.iter().flat_map(|run| &run.abandoned).chain(suspended.iter().flat_map(|put| &put.abandoned)) {
        crate::api::runs::cancel_abandoned(*run);
    }
    if claimer.is_worker {
        session::stop_listening();
    }
}

fn suspend(claimer: &mut Claimer, suspended: &[Suspension]) {
    if suspended.is_empty() {
        return;
    }
    let new: Vec<LiveRun> = suspended.iter().filter(|put| put.is_new).map(|put| put.run.clone()).collect();
    if !new.is_empty() {
        live::insert(&new);
    }
    for put in suspended.iter().filter(|put| !put.is_new) {
        live::update(&put.run);
    }
    let cleared: Vec<(i64, i32)> = suspended.iter().flat_map(|put| put.cleared.iter().copied()).collect();
    wakes::delete(&cleared);
    timers::delete(&cleared);
    let rows: Vec<Wake> = suspended.iter().flat_map(|put| put.wakes.iter().cloned()).collect();
    if !rows.is_empty() {
        wakes::insert(&rows);
    }
    let rows: Vec<Timer> = suspended.iter().flat_map(|put| put.timers.iter().copied()).collect();
    if !rows.is_empty() {
        timers::insert(&rows);
        let first = rows.iter().map(|timer| timer.due_at).min().unwrap_or(i64::MAX);
        at_commit::timer_at_commit(first);
    }
    failpoint("suspended");
    claimer.armed.extend(suspended.iter().flat_map(|put| put.arm.iter().copied()));
}

/// Ends runs outside of a batch.
pub fn end(ended: &[EndedRun]) {
    put_down(ended);
    engine_events::tell_ended(ended);
}

/// Writes runs into the history, and removes what they left behind when they suspended.
fn put_down(ended: &[EndedRun]) {
    if ended.is_empty() {
        return;
    }
    history::insert(clock::engine_now(), clock::now(), ended);
    let had_waited: Vec<&EndedRun> = ended.iter().filter(|run| run.live.is_some()).collect();
    if !had_waited.is_empty() {
        let waits = had_waited.iter().flat_map(|run| {
            // 0 is the run's own deadline
            let numbers = run.live.iter().flatten().map(|note| note.no).chain(std::iter::once(0));
            numbers.map(|no| (run.id, no))
        });
        let waits: Vec<(i64, i32)> = waits.collect();
        wakes::delete(&waits);
        timers::delete(&waits);
        live::delete(&had_waited.iter().map(|run| run.id).collect::<Vec<_>>());
        call_next(&had_waited);
    }
    bulk_item::count_ended(ended);
    versions::load(ended.iter().filter(|run| run.trigger_no >= 0).map(|run| run.version_id));
    for run in ended {
        let frees = frees_a_tick(run).then(|| serde_json::json!({ "automation_id": run.automation_id }).to_string());
        // The rows of a bulk step are not waited for one by one.
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
/// transaction has committed: a run that joins the queue in another transaction may not be visible here, and does not see
/// the end of the run before it either.
fn call_next(ended: &[&EndedRun]) {
    versions::load(ended.iter().map(|run| run.version_id));
    let queues = |version: i32| versions::get(version).is_ok_and(|known| known.program.limits.mode == Mode::Queued);
    let keyed = ended.iter().filter_map(|run| Some((run.automation_id, run.version_id, run.mode_key.as_deref()?)));
    let (queued, others): (Vec<_>, Vec<_>) = keyed.partition(|(_, version, _)| queues(*version));
    let mut keys: Vec<(i32, String)> =
        queued.into_iter().map(|(automation, _, key)| (automation, key.to_owned())).collect();
    // A run of a version that does not queue can have a run of another version behind it.
    keys.extend(live::with_followers(&others));
    keys.sort_unstable();
    keys.dedup();
    for (automation_id, key) in keys {
        let order = serde_json::json!({ "do": "turn", "automation_id": automation_id, "key": key });
        append_event(&NewEvent { op: Some(Op::Moved), next: Some(order.to_string().as_bytes()), ..Default::default() });
    }
}

/// May a tick of the schedule that started it wait for its end?
fn frees_a_tick(run: &EndedRun) -> bool {
    let Ok(place) = usize::try_from(run.trigger_no) else { return false };
    let Ok(version) = versions::get(run.version_id) else { return false };
    let schedule = version.program.triggers.get(place).and_then(|trigger| trigger.schedule.as_ref());
    schedule.is_some_and(automation_core::schedule::Schedule::may_queue)
}

/// Counts what became of runs, and what began to be held: (automation, trigger).
pub fn count(ended: &[EndedRun], suspended: &[Suspension], held: &[(i32, i16)], at: i64) {
    // What was hot executed nothing and does not count; the rows of a bulk step are parts of a run that is counted itself.
    let ended: Vec<&EndedRun> = ended.iter().filter(|run| run.ending != Ending::Hot && !run.is_part()).collect();
    let began = suspended.iter().filter(|put| put.is_new && (put.item.is_none() || put.run.parent.is_none()));
    let began: Vec<&LiveRun> = began.map(|put| &put.run).collect();
    let mut counts: HashMap<(i32, i16), Counts> = HashMap::new();
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
    // The same by tenant, for the runs that have one.
    let mut counts: HashMap<(i32, &str), Counts> = HashMap::new();
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
