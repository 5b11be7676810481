//! The rows that a batch leaves behind, in one go at its end.
use std::collections::HashMap;

use super::batch::Claimer;
use super::bulk_item;
use super::suspend::Suspension;
use crate::failpoint::failpoint;
use crate::pg::clock;
use crate::pg::session;
use crate::store::dispatches;
use crate::store::events::{NewEvent, Op, append_event};
use crate::store::history::{self, EndedRun, Ending};
use crate::store::live::{self, LiveRun};
use crate::store::stats::{self, Counts};
use crate::store::timers::{self, Timer};
use crate::store::wakes::{self, Wake};
use crate::workers;

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
    end(ended);
    dispatches::finish(claimer.owner, done);
    count(ended, suspended, at);
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
        workers::wake::timer_at_commit(first);
    }
    failpoint("suspended");
    claimer.armed.extend(suspended.iter().flat_map(|put| put.arm.iter().copied()));
}

/// Writes runs into the history, and removes what they left behind when they suspended.
pub fn end(ended: &[EndedRun]) {
    if ended.is_empty() {
        return;
    }
    history::insert(clock::engine_now(), ended);
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
    }
    bulk_item::count_ended(ended);
    // The rows of a bulk step are not waited for one by one.
    for run in ended.iter().filter(|run| run.parent.is_some() && run.item.is_none()) {
        let id = run.id.to_string();
        append_event(&NewEvent { op: Some(Op::Ended), entity_id: Some(id.as_bytes()), ..Default::default() });
    }
}

fn count(ended: &[EndedRun], suspended: &[Suspension], at: i64) {
    let mut counts: HashMap<(i32, i16), Counts> = HashMap::new();
    // The rows of a bulk step are parts of a run that is counted itself.
    for run in ended.iter().filter(|run| !run.is_part()) {
        let counts = counts.entry((run.automation_id, run.trigger_no)).or_default();
        counts.entered += i64::from(run.live.is_none());
        counts.run_time_us += run.ended_at - run.started_at;
        match run.ending {
            Ending::Completed => counts.completed += 1,
            Ending::Failed => counts.failed += 1,
            Ending::Cancelled => counts.cancelled += 1,
            Ending::Skipped => counts.skipped += 1,
        }
    }
    for put in suspended.iter().filter(|put| put.is_new && (put.item.is_none() || put.run.parent.is_none())) {
        counts.entry((put.run.automation_id, put.run.trigger_no)).or_default().entered += 1;
    }
    if !counts.is_empty() {
        stats::add(counts.iter(), at);
    }
}
