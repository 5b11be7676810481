//! Writes all rows that a batch leaves behind, at its end.
use automation_core::ids::{RunId, WaitNo};

use super::claimer::Claimer;
use crate::pg::clock;
use crate::pg::failpoint::failpoint;
use crate::pg::session;
use crate::runs::cancel::cancel_abandoned;
use crate::runs::end::{count, put_down};
use crate::runs::suspend::Suspension;
use crate::runs::{breaker, bulk_item, engine_events, in_hand, step_counts};
use crate::signal::at_commit;
use crate::store::dispatches;
use crate::store::gates;
use crate::store::history::EndedRun;
use crate::store::live::{self, LiveRun};
use crate::store::timers::{self, Timer};
use crate::store::wakes::{self, Wake};

/// Writes the outcomes of a batch and removes its dispatches.
pub fn write(
    claimer: &mut Claimer,
    ended: &[EndedRun],
    suspended: &[Suspension],
    disarmed: &[(RunId, WaitNo)],
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
        cancel_abandoned(*run);
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
    let cleared: Vec<(RunId, WaitNo)> = suspended.iter().flat_map(|put| put.cleared.iter().copied()).collect();
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
