//! Tends a bulk job: runs its query once, begins its rows slice by slice, and reports its end once.
//!
//! A row is begun by an order in the log, like a run that is started by hand, so that everything that holds for runs
//! holds for rows: batches, order within an entity, crashes, the rights of the owner. The orders and the progress of
//! the job commit together. The executor that tends a job holds the lock on the job's row; another executor that finds
//! it locked leaves its order queued.
use automation_core::bulk::{self as decide, JobState};
use automation_core::ids::{RunId, WaitNo};

use super::bulk_rows::{self, Begun};
use super::claimer::Claimer;
use crate::event_log::events::{NewEvent, Op, append_event};
use crate::pg::catch::PgError;
use crate::pg::clock::{self, Micros};
use crate::pg::failpoint::failpoint;
use crate::pg::identity;
use crate::pg::key_lock::{self, Sort};
use crate::pg::subtransaction::in_subtransaction;
use crate::provenance::{self, RunContext};
use crate::runs::bulk_item::nudge;
use crate::runs::cancel::cancel_abandoned;
use crate::runs::error::error_json;
use crate::runs::in_hand;
use crate::signal::at_commit;
use crate::signal::running::{self, Task};
use crate::store::bulk::{self, Job};
use crate::store::bulk_tally::{self, Tally};
use crate::store::dispatches::Dispatch;
use crate::store::timers::{self, Timer, TimerKind};

/// How many runs of a job that is cancelled are cancelled in one transaction.
const CANCEL_SLICE: i64 = 500;
/// The shortest time, in microseconds, over which a speed is measured.
const SHORTEST: Micros = 500_000;
/// SQLSTATE that is not an error: the job was cancelled while its query ran.
const CANCELLED: &str = "00000";

/// The decision about the rows of a job that are queued or woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    GoOn,
    /// The job was cancelled, and so are its rows.
    Cancelled,
    /// The transaction that cancels the job has not ended; until it has, the rows stay queued.
    Undecided,
}

/// Decides about the rows of a job, once per batch: a row that is begun after another session has cancelled the job is
/// interrupted by that session, or cut short because it shares its transaction.
pub fn standing(claimer: &mut Claimer, job: i64) -> Standing {
    *claimer.jobs.entry(job).or_insert_with(|| {
        // The lock is tested before the job is read, so that the cancellation of a transaction that ends in between is
        // seen.
        if !key_lock::is_free(Sort::Run, job) {
            return Standing::Undecided;
        }
        if bulk::cancels_rows(job) { Standing::Cancelled } else { Standing::GoOn }
    })
}

/// May tending the job take long? Then it has a transaction of its own.
pub fn takes_long(dispatch: &Dispatch) -> bool {
    dispatch.wait_no != WaitNo::NONE
}

/// Tends a job.
pub fn tend(claimer: &mut Claimer, dispatch: &Dispatch) {
    let id = dispatch.run_id.0;
    if claimer.unsettled.contains(&(dispatch.run_id, dispatch.wait_no)) {
        // Earlier in this turn another executor held the job: this order stays queued, like the first one.
        return;
    }
    // The rows that ended last have left orders to tend a job that has ended since: for these nothing is locked or
    // written.
    let Some(job) = bulk::find(id).filter(|job| !job.state.is_over()) else { return };
    if job.state == JobState::Querying {
        if standing(claimer, id) == Standing::Undecided {
            claimer.unsettled.insert((dispatch.run_id, dispatch.wait_no));
            return;
        }
        load(&job, claimer.is_worker);
    }
    let Some(mut job) = bulk::lock(id) else {
        if bulk::find(id).is_some_and(|job| !job.state.is_over()) {
            // Another executor tends the job, and began before the change that this order is about.
            claimer.unsettled.insert((dispatch.run_id, dispatch.wait_no));
        }
        return;
    };
    failpoint("bulk_locked");
    if job.state.is_over() || job.state == JobState::Querying {
        return;
    }
    let now = clock::engine_now();
    take_in(&mut job, now);
    match job.state {
        JobState::Executing | JobState::Monitoring => begin_rows(&mut job, now),
        JobState::Cancelling => cancel_rows(&mut job, now),
        _ => {}
    }
    bulk::save(&mut job);
    if job.state.is_over() {
        finish(&job, now);
    }
    failpoint("bulk_tended");
}

/// Ends as failed a job that cannot be tended because it crashes the server or makes every commit fail.
pub fn give_up(id: i64, error: &PgError) {
    let Some(mut job) = bulk::wait_for(id).filter(|job| !job.state.is_over()) else { return };
    let now = clock::engine_now();
    take_in(&mut job, now);
    job.state = JobState::Failed;
    bulk::note_error(id, &error_json(error, None));
    bulk::save(&mut job);
    finish(&job, now);
}

/// Adds the rows that have ended since the job was tended last.
fn take_in(job: &mut Job, now: Micros) {
    let Tally { completed, failed, skipped, cancelled, returned, waiting, error } = bulk_tally::take(job);
    let counts = &mut job.counts;
    counts.completed += completed;
    counts.failed += failed;
    counts.skipped += skipped;
    counts.cancelled += cancelled;
    counts.returned += returned;
    counts.waiting += waiting;
    if let Some(error) = error {
        bulk::note_error(job.id, &error);
    }
    // The job may be tended in quick succession; a speed measured over too short a time is meaningless.
    let since = job.counted_at.or(job.started_at).unwrap_or(now);
    if now - since >= SHORTEST {
        job.speed = decide::speed(job.speed, job.counts.ended() - job.counted, now - since);
        job.counted = job.counts.ended();
        job.counted_at = Some(now);
    }
}

/// Runs the query of a job and keeps its rows, all in one snapshot: no row is missed or taken twice, no matter how the
/// table is written meanwhile, and after a crash the rows are either all kept or none.
fn load(job: &Job, is_worker: bool) {
    let task = Task { run: job.id, automation: job.automation_id, job: Some(job.id), key: None };
    let _shown = running::show(task);
    if is_worker {
        running::give_way(task);
    }
    let loaded = in_subtransaction(|| {
        let total = identity::as_role(job.owner, || bulk_rows::read(job, is_worker))?;
        failpoint("bulk_loaded");
        // The job is not locked before its query has run: a session that cancels the job need not wait for the query.
        match bulk::wait_for(job.id).filter(|job| job.state == JobState::Querying) {
            Some(job) => Ok((job, total)),
            None => Err(PgError::new(CANCELLED, "the job was cancelled")),
        }
    });
    match loaded {
        Ok((mut job, total)) => {
            job.counts.total = total;
            job.state = if job.needs_approval { JobState::Approval } else { JobState::Executing };
            job.started_at = (!job.needs_approval).then(clock::engine_now);
            bulk::save(&mut job);
        }
        Err(error) if error.sqlstate == CANCELLED => {}
        Err(error) if error.is_transient() => error.raise(),
        Err(error) => give_up(job.id, &error),
    }
}

fn begin_rows(job: &mut Job, now: Micros) {
    if job.active {
        let next_at = job.next_at.unwrap_or(now);
        let quota = decide::quota(&job.counts, job.rate, next_at, now);
        let _context = enter(job);
        let Begun { rows, more } = match bulk_rows::begin(job, quota) {
            Ok(begun) => begun,
            Err(problem) => {
                job.state = JobState::Failed;
                return bulk::note_error(job.id, &error_json(&PgError::new("XX000", problem), None));
            }
        };
        let (next_at, wake_at) = decide::pace(&job.counts, job.rate, next_at, rows, now);
        job.next_at = Some(next_at);
        if more {
            nudge(job.waiter(), false);
        } else if let Some(due_at) = wake_at.filter(|_| job.wake_at.is_none_or(|at| at <= now)) {
            timers::insert(&[Timer { due_at, waiter: job.waiter(), kind: TimerKind::Bulk }]);
            at_commit::timer_at_commit(due_at);
            job.wake_at = Some(due_at);
        }
    }
    job.state = match (job.counts.left(), job.counts.open()) {
        (0, 0) => JobState::Finished,
        (0, _) => JobState::Monitoring,
        _ => JobState::Executing,
    };
}

fn cancel_rows(job: &mut Job, now: Micros) {
    if !job.leave_open {
        let under_way = bulk::under_way(job.id, job.counts.issued, CANCEL_SLICE);
        // Rows of this batch have ended already; their end is written when the batch ends.
        for run in under_way.into_iter().filter(|run| !in_hand::contains(*run)) {
            cancel_abandoned(run.0);
        }
        take_in(job, now);
    }
    if job.counts.open() == 0 {
        job.counts.cancel_rest();
        job.state = JobState::Cancelled;
    }
}

/// Enters the context in which events are attributed to the run that ordered the job.
fn enter(job: &Job) -> Option<provenance::Entered> {
    let (run_id, automation) = (job.cause_run?, job.automation.clone());
    Some(provenance::enter(RunContext { run_id, automation, owner: job.owner, depth: job.depth, tenant: None }))
}

/// Reports the end of a job, once: in the transaction in which it ends.
fn finish(job: &Job, now: Micros) {
    bulk::finish(job.id, now);
    timers::delete(&[(RunId(job.id), WaitNo::NONE)]);
    let counts = &job.counts;
    let payload = serde_json::json!({
        "job": job.id,
        "automation": job.automation,
        "state": job.state.word(),
        "total": counts.total,
        "done": counts.completed,
        "failed": counts.failed,
        "skipped": counts.skipped,
        "cancelled": counts.cancelled,
        "run_id": job.run_id,
        "seconds": job.started_at.map(|started| (now - started) as f64 / 1e6),
    });
    let _context = enter(job);
    append_event(&NewEvent {
        op: Some(Op::Emitted),
        topic: Some("automation.bulk.finished"),
        payload: Some(payload.to_string().as_bytes()),
        ..Default::default()
    });
    if job.run_id.is_some() {
        let id = job.id.to_string();
        append_event(&NewEvent { op: Some(Op::Ended), entity_id: Some(id.as_bytes()), ..Default::default() });
    }
}
