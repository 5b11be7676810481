//! The conductor: one per database. Routes events, sees to it that every owner with work has an executor, keeps house.
//! Sleeps on its latch; without a hint it compares one counter in shared memory once a second and queries nothing.
#![allow(unsafe_code)]
use std::sync::atomic::Ordering;
use std::time::Duration;

use automation_core::ids::RunId;
use automation_core::steady::{Change, Steady};
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::courier_keeper::CourierKeeper;
use super::freeze::{Freeze, Repeats};
use super::pool::Pool;
use super::txn::{Failure, in_transaction};
use crate::pg::process;
use crate::pg::report;
use crate::pg::{clock, names, settings};
use crate::router::{self, Routed};
use crate::signal::shmem::{self, DatabaseSlot, STATE_ABSENT, STATE_UNKNOWN, shared};
use crate::{gucs, janitor, store};

/// How often a missed hint is looked for.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How soon to look again at a timer that another session has locked, in microseconds.
const HELD_TIMER: i64 = 500_000;
/// How often, in microseconds, the timers are looked at from the beginning, and the outbox at all, while there is work.
const ALL_TIMERS: i64 = 10_000_000;
/// How soon to try again while another session holds the cursor.
const CONTENDED: Duration = Duration::from_millis(20);
/// A session that has held the router's cursor for so many microseconds is named in the server's log and in status().
const HELD_UP: i64 = 5_000_000;

unsafe extern "C-unwind" fn on_exit(_code: i32, _argument: pg_sys::Datum) {
    let database = shmem::my_database();
    for executor in shared().executors_of(database) {
        executor.stop.store(true, Ordering::Release);
        executor.wake();
    }
    if let Some(slot) = shared().database(database)
        && slot.state.load(Ordering::Acquire) != STATE_ABSENT
    {
        slot.leave_conductor(STATE_UNKNOWN);
        slot.stop_courier();
    }
    shared().wake_launcher();
}

/// Entry point of a conductor; the argument is the database's oid.
#[unsafe(no_mangle)]
#[pg_guard]
pub extern "C-unwind" fn automation_conductor_main(argument: pg_sys::Datum) {
    process::attend_signals();
    let database = pg_sys::Oid::from(argument.value() as u32);
    // SAFETY: a worker that logs in as the bootstrap superuser.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) };
    let Some(slot) = shared().database_or_new(database) else { process::exit(1) };
    let ready = in_transaction(|| {
        process::set_application_name(&format!("automation_engine conductor ({})", names::database_name(database)));
        // A routed batch that a crash loses is routed again; the executor's own commit flushes the routing that it
        // builds on.
        settings::set_session(c"synchronous_commit", c"off");
        settings::set_session(c"search_path", c"pg_catalog, pg_temp");
        settings::set_session(c"default_transaction_isolation", c"read committed");
        names::extension_installed() && janitor::version_matches()
    });
    match ready {
        Ok(true) => {}
        Ok(false) => {
            slot.leave_absent();
            shared().wake_launcher();
            process::exit(0);
        }
        Err(failure) => {
            report::warning(format!("automation_engine conductor: {}", failure.error().message));
            process::exit(1);
        }
    }
    slot.become_conductor(clock::now());
    process::at_exit(on_exit, 0);
    Conductor::new(database, slot).work()
}

struct Conductor {
    database: pg_sys::Oid,
    slot: &'static DatabaseSlot,
    pool: Pool,
    courier: CourierKeeper,
    completed: u64,
    heartbeat_at: i64,
    keep_house_at: i64,
    looked_at: i64,
    /// Microseconds to let pass after the last look.
    nap: i64,
    failures: u32,
    /// When the next timer is due; 0 if that has to be looked up.
    next_timer: i64,
    /// No timer is due before this, except hinted ones and those set without a hint (COMMIT PREPARED gives none).
    timers_from: i64,
    /// When the timers are next looked at from the beginning, for the sake of those set without a hint.
    all_timers_at: i64,
    /// When the next timer is due, as found by the look at the timers in this turn.
    timer_found: Option<i64>,
    /// The run up to which the sweep has come.
    swept_to: RunId,
    /// Whether the clock on the wall runs as time passes.
    steady: Steady,
    freeze: Freeze,
    /// The last failure that the server's log was told of.
    told: Repeats,
    /// The server has started, and not all events that were there then are routed yet.
    started: bool,
}

/// How the conductor goes on after a turn.
enum Next {
    Again,
    Wait(Duration),
    Leave,
}

/// Why the conductor may have to look at the log and the timers.
#[derive(Clone, Copy)]
struct Signs {
    /// A process has told of events.
    hinted: bool,
    /// It is time to compare counters and to hand in statistics.
    heartbeat: bool,
    /// Transactions have completed since the last look.
    moved: bool,
    /// A timer is due.
    due: bool,
    /// Another process has queued work for executors.
    queued: bool,
}

impl Signs {
    fn any(self) -> bool {
        self.hinted || self.moved || self.due || self.queued
    }
}

impl Conductor {
    fn new(database: pg_sys::Oid, slot: &'static DatabaseSlot) -> Self {
        slot.events_pending.store(true, Ordering::Release);
        let pool = Pool::new(database);
        Conductor {
            database,
            slot,
            pool,
            courier: CourierKeeper::new(database, slot),
            completed: 0,
            heartbeat_at: 0,
            keep_house_at: 0,
            looked_at: 0,
            nap: 0,
            failures: 0,
            next_timer: 0,
            timers_from: store::timers::EVER,
            all_timers_at: 0,
            timer_found: None,
            swept_to: RunId(0),
            steady: Steady::default(),
            freeze: Freeze::default(),
            told: Repeats::default(),
            started: false,
        }
    }

    fn work(&mut self) -> ! {
        loop {
            if self.slot.is_quiesced() || self.slot.stopped.load(Ordering::Acquire) {
                self.stop_all();
                process::exit(0);
            }
            match self.turn() {
                Next::Again => {
                    process::wait(Duration::ZERO);
                }
                Next::Wait(timeout) => {
                    process::wait(timeout);
                }
                Next::Leave => {
                    self.stop_all();
                    self.slot.leave_absent();
                    process::exit(0);
                }
            }
        }
    }

    fn stop_all(&mut self) {
        self.pool.stop_all();
        self.courier.stop();
    }

    fn turn(&mut self) -> Next {
        if !gucs::enabled() {
            self.stop_all();
            self.slot.events_pending.store(true, Ordering::Release);
            return Next::Wait(HEARTBEAT);
        }
        let (now, passed) = (clock::now(), clock::passed());
        self.look_at_clock(now, passed);
        // Under a stream of commits a look per commit would cost more than the commits: let a few gather.
        let rest = self.nap - (passed - self.looked_at);
        if rest > 0 {
            // Asleep, not waiting on the latch: sessions that commit meanwhile need not send a signal.
            std::thread::sleep(Duration::from_micros(rest as u64));
            return Next::Again;
        }
        let signs = self.read_signs(now, passed);
        if !signs.any() {
            return self.rest(signs, now);
        }
        let outcome = self.route(signs, now, passed);
        self.note_outcome(&outcome, now);
        self.next(outcome, now)
    }

    /// Takes the hints of other processes in, and compares the counters once per heartbeat.
    fn read_signs(&mut self, now: i64, passed: i64) -> Signs {
        let hinted = self.slot.events_pending.swap(false, Ordering::AcqRel);
        let heartbeat = passed - self.heartbeat_at >= HEARTBEAT.as_micros() as i64;
        if heartbeat {
            self.heartbeat_at = passed;
        }
        let moved = heartbeat && shmem::completed_transactions() != self.completed;
        let hint = self.slot.timer_hint.swap(0, Ordering::AcqRel);
        if hint != 0 {
            self.next_timer = self.next_timer.min(hint);
            self.timers_from = self.timers_from.min(hint);
        }
        let due = self.next_timer <= now;
        let queued = self.slot.work_queued.swap(false, Ordering::AcqRel);
        Signs { hinted, heartbeat, moved, due, queued }
    }

    /// There is nothing to route: sees to the workers and waits.
    fn rest(&mut self, signs: Signs, now: i64) -> Next {
        if !self.slot.plan_timer(self.next_timer) {
            return Next::Again;
        }
        if signs.heartbeat {
            process::report_statistics();
        }
        let pool_wait = self.attend_workers(now);
        Next::Wait(pool_wait.map_or(HEARTBEAT, |wait| wait.min(HEARTBEAT)).min(self.until_timer(now)))
    }

    /// Routes a batch in a transaction of its own.
    fn route(&mut self, signs: Signs, now: i64, passed: i64) -> Result<Look, Failure> {
        let Signs { hinted, moved, due, queued, .. } = signs;
        // A hint may have been lost with the process that should have given it.
        let unhinted = moved && !hinted;
        self.completed = shmem::completed_transactions();
        if unhinted || passed >= self.all_timers_at {
            self.all_timers_at = passed + ALL_TIMERS;
            self.timers_from = store::timers::EVER;
            self.courier.look_again();
        }
        store::timers::look_from(self.timers_from);
        self.timer_found = None;
        let outcome = in_transaction(|| {
            // Without a hint, work that other processes have queued is looked for as well.
            if queued || unhinted {
                self.serve_everybody(now);
            }
            self.look(hinted || due, moved || due, now)
        });
        self.looked_at = clock::passed();
        outcome
    }

    /// From which timers and after which nap the next look begins.
    fn note_outcome(&mut self, outcome: &Result<Look, Failure>, now: i64) {
        match (outcome, self.timer_found) {
            (Ok(_), Some(next)) => self.timers_from = next.min(now),
            (Ok(_), None) => {}
            // The timers that the turn took are back.
            (Err(_), _) => {
                self.timers_from = store::timers::EVER;
                self.next_timer = 0;
            }
        }
        self.nap = match outcome {
            Ok(Look::Routed { more: false, dispatches, events, .. }) => next_nap(self.nap, *events, *dispatches),
            _ => 0,
        };
        self.slot.turns.fetch_add(1, Ordering::AcqRel);
        if !matches!(outcome, Ok(Look::Frozen(_)) | Err(_)) {
            self.thaw();
        }
    }

    fn next(&mut self, outcome: Result<Look, Failure>, now: i64) -> Next {
        match outcome {
            Ok(Look::Gone) => Next::Leave,
            Ok(Look::Frozen(words)) => {
                self.freeze(words);
                Next::Wait(HEARTBEAT)
            }
            Ok(Look::Nothing) => {
                self.failures = 0;
                self.not_held_up();
                self.after_look(now, HEARTBEAT)
            }
            Ok(Look::Busy) => {
                self.slot.events_pending.store(true, Ordering::Release);
                self.held_up(now);
                self.after_look(now, CONTENDED)
            }
            Ok(Look::Routed { events, dispatches, owners, more }) => {
                self.failures = 0;
                self.started &= more;
                self.not_held_up();
                self.slot.routed_events.fetch_add(events as i64, Ordering::AcqRel);
                self.slot.routed_dispatches.fetch_add(dispatches as i64, Ordering::AcqRel);
                self.pool.work_for(&owners, dispatches, now);
                if more {
                    self.slot.events_pending.store(true, Ordering::Release);
                    self.attend_workers(now);
                    return Next::Again;
                }
                self.after_look(now, HEARTBEAT)
            }
            Err(failure) => self.failed(&failure.error().message, now),
        }
    }

    /// Timers and starts that were planned by a clock which has been set since are planned anew: they would come too
    /// late after the clock was set back. How often the conductor looks, and keeps house, does not depend on the clock
    /// on the wall.
    fn look_at_clock(&mut self, now: i64, passed: i64) {
        match self.steady.look(now, passed) {
            Change::None => return,
            Change::SetAhead => {}
            Change::SetBack => self.keep_house_at = 0,
        }
        self.next_timer = 0;
        self.timers_from = store::timers::EVER;
        self.pool.clock_was_set(now);
        self.courier.clock_was_set();
        self.not_held_up();
    }

    /// Another session has the cursor: its transaction called route() or run_timers() and is still open.
    fn held_up(&mut self, now: i64) {
        let since = self.slot.held_up_since.load(Ordering::Acquire);
        if since == 0 {
            self.slot.held_up_since.store(now, Ordering::Release);
        } else if now - since >= HELD_UP && self.slot.held_up_by.load(Ordering::Acquire) == 0 {
            let holder = in_transaction(crate::event_log::cursor::holder).ok().flatten();
            if let Some(pid) = holder {
                self.slot.held_up_by.store(pid, Ordering::Release);
                report::warning(format!(
                    "automation_engine conductor: no events are routed while a transaction of process {pid} is open"
                ));
            }
        }
    }

    fn not_held_up(&self) {
        self.slot.held_up_by.store(0, Ordering::Release);
        self.slot.held_up_since.store(0, Ordering::Release);
    }

    /// How long until the next timer is due; a little more, so that it is not looked at before its time.
    fn until_timer(&self, now: i64) -> Duration {
        Duration::from_micros((self.next_timer.saturating_sub(now)).clamp(0, 3_600_000_000) as u64 + 500)
    }

    /// Starts and stops executors and the courier as there is work for them. Says how soon to look again.
    fn attend_workers(&mut self, now: i64) -> Option<Duration> {
        if self.freeze.is_on() {
            return None;
        }
        let (pool, courier) = (self.pool.attend(now), self.courier.attend(now));
        pool.into_iter().chain(courier).min()
    }

    fn after_look(&mut self, now: i64, wait: Duration) -> Next {
        let pool_wait = self.attend_workers(now);
        if !self.slot.plan_timer(self.next_timer) {
            return Next::Again;
        }
        let wait = pool_wait.map_or(wait, |pool| pool.min(wait));
        Next::Wait(wait.min(self.until_timer(clock::now())))
    }

    fn look(&mut self, hinted: bool, timers: bool, now: i64) -> Look {
        if !names::extension_installed() {
            return Look::Gone;
        }
        if let Some(level) = shmem::frozen() {
            return Look::Frozen(level.words());
        }
        if self.slot.careful_below.load(Ordering::Acquire) == 0 {
            self.slot.careful_below.store(store::dispatches::last_id() + 1, Ordering::Release);
            self.started = true;
            self.serve_everybody(now);
        }
        self.courier.look();
        let passed = clock::passed();
        if passed >= self.keep_house_at {
            self.keep_house_at = passed + janitor::INTERVAL;
            if !self.steady.is_trusted(passed) {
                self.steady.recorded(janitor::newest_record(), now);
            }
            janitor::keep_house(self.steady.is_trusted(passed));
            self.sweep(now);
        }
        if timers {
            // Also finds timers whose hint was lost.
            self.next_timer = self.look_at_timers();
        }
        if !hinted && self.next_timer > now && !crate::event_log::unread::anything_new() {
            return Look::Nothing;
        }
        // A batch that failed is tried again event by event, so that one bad event does not hold up the rest.
        let limit = if self.failures > 0 { 1 } else { gucs::route_batch_size() };
        match router::route(limit, self.next_timer <= now) {
            Routed::Busy => Look::Busy,
            Routed::Events { events, dispatches, more, owners } => {
                if self.started {
                    // A crash undoes a routing that was not flushed, so a run that was routed now may have been routed
                    // before and have crashed the server. Tried one by one, each attempt is counted in a commit that is
                    // flushed.
                    self.slot.careful_below.fetch_max(store::dispatches::last_id() + 1, Ordering::AcqRel);
                }
                janitor::fold_definition_changes();
                if self.next_timer <= now {
                    let next = self.look_at_timers();
                    // A timer that was due and was not taken is locked by another session, which may yet roll back.
                    self.next_timer = if next <= now && !more { now + HELD_TIMER } else { next };
                }
                Look::Routed { events, dispatches, more, owners }
            }
        }
    }

    fn look_at_timers(&mut self) -> i64 {
        let next = store::timers::next().unwrap_or(i64::MAX);
        self.timer_found = Some(next);
        next
    }

    /// Wakes the executors of every owner with queued dispatches.
    fn serve_everybody(&mut self, now: i64) {
        if names::extension_installed() && shmem::frozen().is_none() {
            self.pool.work_for(&store::dispatches::owners(), usize::MAX, now);
        }
    }

    /// The sweep: has a slice of the runs that wait looked at once more.
    fn sweep(&mut self, now: i64) {
        if let Some(swept) = janitor::sweep_slice(self.swept_to, now) {
            self.pool.work_for(&swept.owners, usize::MAX, now);
            self.swept_to = swept.last.unwrap_or_default();
        }
    }

    /// The database has become read-only: nothing is begun, no process is started. Runs and deliveries under way end by
    /// themselves.
    fn freeze(&mut self, words: (String, String)) {
        self.slot.events_pending.store(true, Ordering::Release);
        if let Some(message) = self.freeze.begin(words) {
            report::warning(format!("automation_engine conductor: {message}"));
        }
    }

    /// The database can be written to.
    fn thaw(&mut self) {
        let Some((message, told)) = self.freeze.end() else { return };
        self.slot.work_queued.store(true, Ordering::Release);
        self.courier.look_again();
        if told {
            report::warning(format!("automation_engine conductor: {message}"));
        }
        let entry = store::log::Entry { code: "read_only", message: &message, ..Default::default() };
        if let Err(failure) = in_transaction(|| store::log::info(&entry)) {
            report::warning(format!("automation_engine conductor: {}", failure.error().message));
        }
    }

    fn failed(&mut self, message: &str, now: i64) -> Next {
        self.failures += 1;
        self.slot.errors.fetch_add(1, Ordering::AcqRel);
        self.slot.events_pending.store(true, Ordering::Release);
        if self.told.is_news(message) {
            report::warning(format!("automation_engine conductor ({}): {message}", self.database.to_u32()));
        }
        if self.failures >= 5 {
            let message = message.to_owned();
            if in_transaction(|| router::set_aside_next_event(&message)).is_ok() {
                self.failures = 0;
            }
        }
        let backoff = Duration::from_millis(50 << self.failures.min(6));
        self.attend_workers(now);
        Next::Wait(backoff)
    }
}

/// How long to let events gather after a look that found so many: longer while many come between two looks, for a look
/// costs as much as routing some dozens of them. At a low rate runs are not delayed by it, and where no automation
/// listens there is no run to delay.
fn next_nap(nap: i64, events: usize, dispatches: usize) -> i64 {
    let (least, most) = if dispatches == 0 { (5_000, 40_000) } else { (500, 4_000) };
    let nap = match events {
        0..8 => nap / 2,
        8..24 => nap,
        _ => nap * 2,
    };
    nap.clamp(least, most)
}

enum Look {
    Gone,
    /// default_transaction_read_only is on: the level at which it is set (server, all roles or database), and the
    /// command that ends it.
    Frozen((String, String)),
    Nothing,
    Busy,
    Routed {
        events: usize,
        dispatches: usize,
        more: bool,
        owners: Vec<pg_sys::Oid>,
    },
}
