//! An executor: logged in as one owner for its whole life, runs that owner's automations batch by batch.
#![allow(unsafe_code)]
use std::sync::atomic::Ordering;

use automation_core::ids::AutomationId;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::careful::{self, Pick};
use super::freeze::Repeats;
use super::put_off::{Delay, PutOff};
use super::txn::{Failure, fire_deferred_triggers, in_transaction, in_transaction_until};
use crate::executor::{self, Claimer, SLICE_MS, Turn, Work};
use crate::pg::catch::PgError;
use crate::pg::failpoint::failpoint;
use crate::pg::process;
use crate::pg::report;
use crate::pg::session::StatementTimeout;
use crate::pg::{clock, innocence, names, settings};
use crate::signal::executor_slot::ExecutorSlot;
use crate::signal::running;
use crate::signal::shmem::{self, DatabaseSlot, shared};
use crate::{gucs, store};

/// A batch that takes longer than this is followed by smaller ones.
const SLOW_BATCH: i64 = 40_000;
/// A batch that takes less than this is followed by larger ones.
const QUICK_BATCH: i64 = 10_000;

/// When to hand in statistics while idle.
const STATISTICS_DUE: std::time::Duration = std::time::Duration::from_secs(1);

/// How often a batch of one run that fails for a reason of the engine's own is tried again.
const MOST_TRIES: u32 = 8;

unsafe extern "C-unwind" fn on_exit(_code: i32, argument: pg_sys::Datum) {
    let slot = &shared().executors[argument.value()];
    innocence::leave(slot.stop.load(Ordering::Acquire));
    let died = slot.busy_since.load(Ordering::Acquire) != 0 && !slot.stop.load(Ordering::Acquire);
    let claimed = slot.claimed.load(Ordering::Acquire);
    slot.release();
    if let Some(home) = shared().database(shmem::my_database()) {
        if died {
            // A step may have ended its own process: the next executor tries the dispatches of this batch one by one.
            home.careful_below.fetch_max(claimed + 1, Ordering::AcqRel);
            home.executor_died.store(true, Ordering::Release);
        }
        home.wake_conductor();
    }
}

/// Entry point of an executor; the argument is its place in shared memory.
#[unsafe(no_mangle)]
#[pg_guard]
pub extern "C-unwind" fn automation_executor_main(argument: pg_sys::Datum) {
    process::attend_signals();
    innocence::attend_crashes();
    let place = argument.value();
    let slot = &shared().executors[place];
    let database = pg_sys::Oid::from(slot.database.load(Ordering::Acquire));
    let owner = pg_sys::Oid::from(slot.owner.load(Ordering::Acquire));
    if database == pg_sys::InvalidOid || owner == pg_sys::InvalidOid {
        process::exit(0);
    }
    // SAFETY: a worker that logs in as the owner; refused like any session of that role would be.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, owner, 0) };
    if slot.database.load(Ordering::Acquire) != database.to_u32()
        || slot.owner.load(Ordering::Acquire) != owner.to_u32()
    {
        // The conductor that started this executor has gone meanwhile, and the slot with it.
        process::exit(0);
    }
    slot.occupy(clock::now());
    running::become_executor(slot);
    process::at_exit(on_exit, place);
    let named = in_transaction(|| {
        process::set_application_name(&format!("automation_engine executor ({})", names::database_name(database)));
        // Changes that others commit while we work must be seen: each statement has its own snapshot, regardless of the
        // role's default.
        settings::set_session(c"default_transaction_isolation", c"read committed");
    });
    let Some(home) = shared().database(database).filter(|_| named.is_ok()) else { process::exit(1) };
    // A batch of one until it is known that runs are quick: a slow one would hold up the runs that share its batch.
    let limit = 1;
    let claimer = Claimer::new(owner, true);
    let (put_off, told) = (PutOff::default(), Repeats::default());
    Executor { slot, home, claimer, limit, careful_below: None, counted: None, alone: None, failures: 0, put_off, told }
        .work()
}

/// How to treat dispatches from before the server's start.
enum Careful {
    /// Try this dispatch alone.
    Alone(i64),
    /// Run this dispatch alone, because its automation is slow.
    Slow(i64),
    /// No such dispatch is left.
    Free,
    /// All such dispatches that are left are locked by other executors: there may be work from this id on.
    From(i64),
    /// An error prevented the choice: wait and try again.
    Wait,
}

/// Makes this transaction's commit flush, regardless of the owner's settings: a count that survives a crash while
/// the run it counts does not would blame the innocent.
fn durably() {
    // SAFETY: sets a flag of the current transaction.
    unsafe { pg_sys::ForceSyncCommit() }
}

/// Is the extension installed, is the database not read-only, and may the owner work here, now?
fn may_work(owner: pg_sys::Oid) -> bool {
    names::extension_installed() && shmem::frozen().is_none() && store::owners::refusal(owner).is_none()
}

/// Sleeps until there is work, and leaves if none comes. Without a last look: should work come in this moment, the
/// conductor, which hears of our leaving, looks itself.
fn rest(limit: std::time::Duration) {
    let first = limit.min(STATISTICS_DUE);
    if process::wait(first) {
        return;
    }
    process::report_statistics();
    if !process::wait(limit - first) {
        process::exit(0);
    }
}

/// Executes the deferred triggers of the runs that a transaction has moved. They are user code like the steps: the
/// triggers of a run alone are shown, can be interrupted, and get as long as automation_engine.step_timeout says; those
/// of several runs, if these can be repeated one by one, get a short time, after which they are repeated so. The commit
/// that follows is not shown: an interruption would end its wait for a synchronous standby, and the run would have been
/// committed all the same. Returns the automation of a run alone whose triggers took longer than other runs can wait.
fn finish_runs(turn: &Turn, can_be_parted: bool) -> Result<Option<AutomationId>, PgError> {
    let began = std::time::Instant::now();
    let shown = turn.only_run.map(running::show_commit);
    let limit = if turn.moved > 1 && can_be_parted { Some(SLICE_MS) } else { gucs::step_timeout_ms() };
    let timeout = limit.map(StatementTimeout::start);
    let fired = fire_deferred_triggers();
    drop(timeout);
    let fired = match turn.only_run {
        Some(task) => running::give_way_at_commit(task, fired),
        None => fired,
    };
    drop(shown);
    fired?;
    let is_slow = began.elapsed().as_millis() as i64 >= SLICE_MS;
    Ok(turn.only_run.map(|task| task.automation).filter(|_| is_slow))
}

/// Lets a session that cancels a run come first.
fn nap() {
    process::wait(std::time::Duration::from_millis(1));
}

struct Executor {
    slot: &'static ExecutorSlot,
    home: &'static DatabaseSlot,
    claimer: Claimer,
    /// Size of the next batch.
    limit: i64,
    /// Dispatches below this one are tried one by one, 0 when none is left; not known before the first look.
    careful_below: Option<i64>,
    /// The dispatch whose attempt is counted and that has not been tried yet.
    counted: Option<i64>,
    /// The next dispatch is of a slow automation.
    alone: Option<i64>,
    failures: u32,
    /// Dispatches that are tried again later.
    put_off: PutOff,
    /// The last failure that the server's log was told of.
    told: Repeats,
}

impl Executor {
    fn work(&mut self) -> ! {
        let mut idle_since = clock::now();
        loop {
            if self.slot.stop.load(Ordering::Acquire) || !gucs::enabled() {
                process::exit(0);
            }
            let began = clock::now();
            self.slot.begin_batch(began);
            let more = self.turn(began);
            self.slot.busy_since.store(0, Ordering::Release);
            let idle_limit = gucs::executor_idle_timeout();
            let idle = (clock::now() - idle_since).max(0) as u128;
            match more {
                Some(true) => {
                    idle_since = clock::now();
                    process::wait(std::time::Duration::ZERO);
                }
                Some(false) if idle >= idle_limit.as_micros() => process::exit(0),
                Some(false) => rest(idle_limit),
                None => {
                    process::wait(std::time::Duration::from_millis(20 << self.failures.min(6)));
                }
            }
        }
    }

    /// One batch. Some(true) if there may be more at once, None after a failure.
    fn turn(&mut self, began: i64) -> Option<bool> {
        let picked = match self.alone.take() {
            Some(id) => Careful::Slow(id),
            None => self.pick_carefully(),
        };
        let work = match picked {
            Careful::Slow(id) => Work::Only(id),
            Careful::Alone(id) => Work::Only(id),
            Careful::Free => Work::UpTo(self.limit),
            Careful::From(id) => Work::From(id, self.limit),
            Careful::Wait => {
                process::wait(std::time::Duration::from_millis(10));
                return Some(true);
            }
        };
        let limit = if matches!(work, Work::Only(_)) { 1 } else { self.limit };
        let claimer = &mut self.claimer;
        claimer.put_off = self.put_off.not_due();
        let owner = claimer.owner;
        let mut slow = None;
        let outcome = in_transaction_until(
            // Asked in each turn: the owner may lose its rights, or be dropped, while the session goes on.
            || {
                may_work(owner).then(|| {
                    if matches!(work, Work::Only(_)) {
                        durably();
                    }
                    let turn = executor::turn(claimer, work);
                    failpoint("before_commit");
                    turn
                })
            },
            |turn| {
                slow = turn.as_ref().map(|turn| finish_runs(turn, limit > 1)).transpose()?.flatten();
                Ok(())
            },
        );
        if let Some(automation) = slow {
            self.claimer.apart.was_slow(automation);
        }
        failpoint("after_commit");
        match outcome {
            Ok(None) => self.leave_refused(),
            Ok(Some(turn)) => {
                self.claimer.committed();
                self.failures = 0;
                self.look_at_armed();
                self.account(&turn, clock::now() - began, limit);
                self.alone = turn.alone;
                if let (Work::Only(id), true) = (work, self.counted.is_some()) {
                    if turn.runs == 0 && !self.is_gone(id) {
                        // Another executor has locked it for a moment to look at it; it is still ours to try.
                        process::wait(std::time::Duration::from_millis(2));
                        return Some(true);
                    }
                    self.let_go();
                }
                if turn.blocked && turn.runs == 0 {
                    // All dispatches that are left wait for runs that other executors execute, or are put off.
                    process::wait(self.put_off.rest());
                }
                Some(
                    turn.runs > 0 || turn.more || turn.blocked || turn.alone.is_some() || matches!(work, Work::Only(_)),
                )
            }
            Err(failure) => {
                self.claimer.aborted();
                self.failed(&failure, limit)
            }
        }
    }

    /// Ends this process: the extension is gone, or the owner may not work here any more. The conductor looks itself
    /// whether work is left, and says why it does not run.
    fn leave_refused(&mut self) -> ! {
        if let Some(id) = self.counted.take() {
            // The attempt was counted and is not made.
            innocence::protest_no_more(id);
            let owner = self.claimer.owner;
            let forgiven = in_transaction(|| {
                if names::extension_installed() {
                    store::dispatches::forgive_attempt(owner, id);
                }
            });
            if let Err(failure) = forgiven {
                report::warning(format!("automation_engine executor: {}", failure.error().message));
            }
        }
        // This executor holds no claimed batch any more.
        self.slot.busy_since.store(0, Ordering::Release);
        self.home.announce_work();
        process::exit(0)
    }

    /// Looks once more, in a new snapshot, at the waits that the last commit has armed: a change between their
    /// evaluation and that commit may have been routed before the router could see them.
    fn look_at_armed(&mut self) {
        // A run that goes on may suspend again at once; a loop of waits that are fulfilled must not keep us here.
        for _ in 0..10 {
            let armed = std::mem::take(&mut self.claimer.armed);
            if armed.is_empty() {
                return;
            }
            failpoint("armed");
            let claimer = &mut self.claimer;
            let owner = claimer.owner;
            let looked = in_transaction_until(
                // Refused now, the next turn leaves; the timers of the waits are still there.
                || {
                    let turn = may_work(owner).then(|| executor::look_at_armed(claimer, &armed));
                    failpoint("before_arm_commit");
                    turn
                },
                |turn| turn.as_ref().map_or(Ok(()), |turn| finish_runs(turn, true).map(drop)),
            );
            if let Err(failure) = looked {
                running::gave_way(failure.error(), nap);
                // Their timers are still there.
                self.claimer.armed.clear();
                return;
            }
        }
        self.claimer.armed.clear();
    }

    fn account(&mut self, turn: &Turn, took: i64, limit: i64) {
        self.slot.runs.fetch_add(turn.runs as i64, Ordering::AcqRel);
        self.slot.failed_runs.fetch_add(turn.failed as i64, Ordering::AcqRel);
        if turn.runs == 0 {
            return;
        }
        self.slot.batches.fetch_add(1, Ordering::AcqRel);
        let each = took / turn.runs as i64;
        self.limit = if took > SLOW_BATCH {
            (QUICK_BATCH / each.max(1)).clamp(1, limit)
        } else if took < QUICK_BATCH && turn.runs as i64 == limit {
            (limit * 2).min(gucs::batch_size())
        } else {
            limit.min(gucs::batch_size())
        };
    }

    /// Before a dispatch that the last crash may have been about is run, the attempt is committed, so that a step that
    /// takes the server down is found out. The dispatch is noted in shared memory while its row is still locked, so no
    /// other executor takes it in between, and an attempt that was counted is an attempt that is made.
    fn pick_carefully(&mut self) -> Careful {
        if let Some(id) = self.counted {
            return Careful::Alone(id);
        }
        let suspected = self.home.careful_below.load(Ordering::Acquire);
        if self.careful_below == Some(0) || suspected == 0 {
            return Careful::Free;
        }
        let (owner, slot, floor) = (self.claimer.owner, self.slot, self.claimer.floor());
        let (known_end, put_off) = (&mut self.careful_below, self.put_off.not_due());
        let picked = in_transaction(|| {
            if !may_work(owner) {
                return None;
            }
            let end = *known_end.get_or_insert_with(|| careful::end(owner, floor, suspected));
            Some(match careful::first_free(owner, floor, end, &put_off) {
                Pick::Nothing => Careful::Free,
                Pick::AllHeld => Careful::From(end),
                Pick::Dispatch(id) => {
                    slot.trying.store(id, Ordering::Release);
                    let (guilty, doubtful) = innocence::judge_last(id);
                    if !guilty {
                        store::dispatches::forgive_attempt(owner, id);
                    }
                    innocence::protest_for(id, doubtful);
                    slot.claimed.fetch_max(id, Ordering::AcqRel);
                    store::dispatches::count_attempt(owner, id);
                    durably();
                    failpoint("attempt_picked");
                    Careful::Alone(id)
                }
            })
        });
        failpoint("attempt_counted");
        match picked {
            Ok(None) => self.leave_refused(),
            Ok(Some(Careful::Free)) => {
                self.careful_below = Some(0);
                Careful::Free
            }
            Ok(Some(picked)) => {
                if let Careful::Alone(id) = picked {
                    self.counted = Some(id);
                }
                picked
            }
            Err(_) => {
                let id = self.slot.trying.swap(0, Ordering::AcqRel);
                if id != 0 {
                    innocence::protest_no_more(id);
                }
                Careful::Wait
            }
        }
    }

    fn is_gone(&self, id: i64) -> bool {
        let owner = self.claimer.owner;
        in_transaction(|| store::dispatches::one(owner, id).is_none()).unwrap_or(true)
    }

    /// The dispatch that was tried alone has ended.
    fn let_go(&mut self) {
        if let Some(id) = self.counted.take() {
            innocence::protest_no_more(id);
        }
        self.slot.trying.store(0, Ordering::Release);
    }

    fn failed(&mut self, failure: &Failure, limit: i64) -> Option<bool> {
        let error = failure.error();
        if running::gave_way(error, nap) {
            // A run of the batch is being cancelled. The others were rolled back with it and can be run again.
            return Some(true);
        }
        if limit > 1 {
            // One run of the batch makes the commit of all fail: find out which, in batches of one.
            self.limit = 1;
            return Some(true);
        }
        if error.is_transient() {
            return self.try_later(error);
        }
        self.failures += 1;
        let (hopeless, reason) = match failure {
            Failure::Commit(_) => (true, "commit_failed"),
            Failure::Work(_) => (false, "batch_failed"),
        };
        if let Some(head) = self.claimer.head
            && (hopeless || self.failures >= MOST_TRIES)
        {
            let claimer = &mut self.claimer;
            let written = in_transaction(|| {
                // Another executor that has claimed the dispatch will see it fail by itself.
                if !store::dispatches::claim_one(claimer.owner, head).is_empty() {
                    executor::fail(claimer, head, reason, error);
                }
            });
            if written.is_ok() {
                self.failures = 0;
                self.let_go();
                return Some(true);
            }
        }
        self.warn(error);
        None
    }

    fn warn(&mut self, error: &PgError) {
        let message = format!("{} ({})", error.message, error.sqlstate);
        if self.told.is_news(&message) {
            report::warning(format!("automation_engine executor: {message}"));
        }
    }

    /// A run could not get a lock, or has lost to another transaction: it is tried again later, as often as it takes,
    /// and other runs of its owner need not wait for it.
    fn try_later(&mut self, error: &PgError) -> Option<bool> {
        let Some(head) = self.counted.or(self.claimer.head) else {
            self.failures += 1;
            self.warn(error);
            return None;
        };
        let Delay { waited, tell } = self.put_off.again(head);
        let (claimer, counted) = (&mut self.claimer, self.counted.is_some());
        let noted = in_transaction(|| {
            if counted {
                // The attempt crashed nothing.
                store::dispatches::forgive_attempt(claimer.owner, head);
            }
            // A dispatch that another executor has claimed is that executor's.
            if !store::dispatches::claim_one(claimer.owner, head).is_empty() {
                executor::put_off(claimer, head, waited, tell, error);
            }
        });
        match noted {
            Ok(()) => self.let_go(),
            Err(failure) => self.warn(failure.error()),
        }
        Some(true)
    }
}
