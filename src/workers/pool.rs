//! The executors of one database: every owner with work gets one, busy owners get more, within the limit; when there
//! are more owners than executors, the ones that have had their turn make room. `automation_core::places` decides.
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use automation_core::places::{self, Answer, Place};
use pgrx::pg_sys;

use super::processes;
use super::txn::in_transaction;
use crate::pg::clock;
use crate::pg::process::{self, Handle, Process};
use crate::pg::report;
use crate::signal::executor_slot::ExecutorSlot;
use crate::signal::shmem::shared;
use crate::store::{dispatches, owners};
use crate::{gucs, janitor};

/// How long all executors of an owner may be busy before it gets another.
const PATIENCE: i64 = 20_000;
/// How soon to try again while max_worker_processes is used up, for an owner that has an executor.
const NO_MORE_PROCESS_WAIT: i64 = 1_000_000;
/// How often an owner that cannot log in is looked at again.
const REFUSED_WAIT: i64 = 2_000_000;

/// An executor that leaves this long after the last work for its owner has left none behind.
const QUIET: i64 = 5_000_000;
/// How long to wait before replacing an executor that died at work.
const DIED_WAIT: i64 = 100_000;

/// An executor that was asked for.
struct Started {
    handle: Handle,
    owner: u32,
    at: i64,
}

impl Started {
    /// An executor frees its slot itself, unless it never came up; then the slot is still as we reserved it, and is
    /// freed here. True in that case.
    fn free_if_never_up(&self, place: usize, database: pg_sys::Oid) -> bool {
        let slot = &shared().executors[place];
        let never_up = slot.registered_at.load(Ordering::Acquire) == self.at
            && slot.pid.load(Ordering::Acquire) == 0
            && slot.database.load(Ordering::Acquire) == database.to_u32();
        if never_up {
            slot.release();
        }
        never_up
    }
}

pub struct Pool {
    database: pg_sys::Oid,
    /// The executors that were started, by their slot in shared memory.
    executors: HashMap<usize, Started>,
    /// When there was last work for an owner.
    last_work: HashMap<u32, i64>,
    /// Owners with work for which no idle executor was found, and when to look at them again.
    waiting: HashMap<u32, i64>,
    /// Owners that cannot have an executor, and why. They wait without being served, so no other owner makes room for
    /// them.
    refused: HashMap<u32, String>,
}

impl Pool {
    pub fn new(database: pg_sys::Oid) -> Self {
        // Slots of executors that a former conductor asked for and that never came up; one that does come up now finds
        // its slot gone and exits.
        shared()
            .executors_of(database)
            .filter(|slot| slot.pid.load(Ordering::Acquire) == 0)
            .for_each(ExecutorSlot::release);
        Pool {
            database,
            last_work: HashMap::new(),
            executors: HashMap::new(),
            waiting: HashMap::new(),
            refused: HashMap::new(),
        }
    }

    fn of(&self, owner: u32) -> impl Iterator<Item = &'static ExecutorSlot> {
        shared().executors_of(self.database).filter(move |slot| slot.owner.load(Ordering::Acquire) == owner)
    }

    /// There is work for these owners: wake their executors, or note that they need one.
    pub fn work_for(&mut self, owners: &[pg_sys::Oid], dispatches: usize, now: i64) {
        for owner in owners {
            let owner = owner.to_u32();
            self.last_work.insert(owner, now);
            let enough = dispatches <= gucs::batch_size() as usize;
            let mut idle = false;
            for slot in self.of(owner) {
                // A busy executor is woken too: it may be about to sleep, having looked before our commit.
                slot.wake();
                idle |= slot.pid.load(Ordering::Acquire) != 0 && slot.busy_since.load(Ordering::Acquire) == 0;
                if idle && enough {
                    break;
                }
            }
            if !idle || !enough {
                self.waiting.entry(owner).or_insert(now);
            }
        }
    }

    /// Starts and stops executors as needed. Returns how soon to look again, None if nothing is pending.
    pub fn attend(&mut self, now: i64) -> Option<Duration> {
        self.reap();
        self.stop_surplus(now);
        if self.waiting.is_empty() {
            self.note_out_of_workers(false);
            return None;
        }
        let due: Vec<u32> = self.waiting.iter().filter(|(_, at)| **at <= now).map(|(owner, _)| *owner).collect();
        for owner in due {
            match self.attend_owner(owner, now) {
                Some(again) => {
                    self.waiting.insert(owner, again);
                }
                None => {
                    self.waiting.remove(&owner);
                }
            }
        }
        let next = self.waiting.values().min()?;
        Some(Duration::from_micros((next - now).clamp(1_000, 1_000_000) as u64))
    }

    /// None if the owner is served; otherwise when to look again.
    fn attend_owner(&mut self, owner: u32, now: i64) -> Option<i64> {
        let slots: Vec<&ExecutorSlot> = self.of(owner).collect();
        let idle = slots
            .iter()
            .any(|slot| slot.pid.load(Ordering::Acquire) != 0 && slot.busy_since.load(Ordering::Acquire) == 0);
        let starting = slots.iter().any(|slot| slot.pid.load(Ordering::Acquire) == 0);
        if starting {
            return Some(now + PATIENCE);
        }
        if !slots.is_empty() && self.refused.remove(&owner).is_some() {
            let logged = in_transaction(|| owners::log_acceptance(pg_sys::Oid::from(owner)));
            if let Err(failure) = logged {
                report::warning(format!("automation_engine conductor: {}", failure.error().message));
            }
        }
        let oid = pg_sys::Oid::from(owner);
        // Dispatches that the owner's executors know to be done need not be passed over again, see Claimer::floor.
        let floor = slots.iter().map(|slot| slot.floor()).max().unwrap_or(0);
        let queued = in_transaction(|| dispatches::queued(oid, floor, slots.len() as i64 + 1)).unwrap_or(0);
        if queued == 0 {
            return None;
        }
        if !slots.is_empty() {
            let patient =
                slots.iter().any(|slot| (0..PATIENCE).contains(&(now - slot.busy_since.load(Ordering::Acquire))));
            if !idle && patient {
                return Some(now + PATIENCE);
            }
            let busy = slots.iter().filter(|slot| slot.busy_since.load(Ordering::Acquire) != 0).count();
            if idle && queued <= busy as i64 {
                return Some(now + 5 * PATIENCE);
            }
            if idle {
                // There is work and an idle executor: it was woken, and will take it.
                slots.iter().for_each(|slot| slot.wake());
                return Some(now + PATIENCE);
            }
            if queued <= slots.len() as i64 {
                return Some(now + 5 * PATIENCE);
            }
        }
        // Rights that cannot be looked up are not there.
        let refusal = in_transaction(|| owners::refusal(oid))
            .unwrap_or_else(|failure| Some(format!("its rights cannot be looked up: {}", failure.error().message)));
        match refusal {
            Some(reason) => {
                self.refuse(oid, reason);
                Some(now + REFUSED_WAIT)
            }
            None => self.start(oid, slots.len(), now),
        }
    }

    /// Notes that an owner cannot have an executor; says so in the log once per reason.
    fn refuse(&mut self, owner: pg_sys::Oid, reason: String) {
        if self.refused.get(&owner.to_u32()) == Some(&reason) {
            return;
        }
        let logged = in_transaction(|| {
            owners::log_refusal(owner, &reason);
            janitor::retire_dropped_owners();
        });
        match logged {
            Ok(()) => {
                self.refused.insert(owner.to_u32(), reason);
            }
            Err(failure) => report::warning(format!("automation_engine conductor: {}", failure.error().message)),
        }
    }

    fn start(&mut self, owner: pg_sys::Oid, has: usize, now: i64) -> Option<i64> {
        let (slots, places) = self.places();
        let others_lack = self.others_lack(owner.to_u32());
        let asker = places::asker(self.database.to_u32(), owner.to_u32());
        match places::ask(&places, asker, gucs::executors(), others_lack, now) {
            Answer::Start => {}
            Answer::Wait => return Some(now + PATIENCE),
            Answer::Ask(index) => {
                slots[index].ask_to_leave(now);
                return Some(now + PATIENCE);
            }
        }
        if !processes::may_start(asker, now) {
            self.note_out_of_workers(true);
            return Some(now + if has > 0 { NO_MORE_PROCESS_WAIT } else { processes::AGAIN });
        }
        let started = shared().reserve_executor(self.database, owner, now).and_then(|place| {
            let process = Process {
                name: "automation_engine executor",
                kind: c"automation_engine executor",
                function: c"automation_executor_main",
                argument: place,
                restart_after: None,
            };
            let handle = process::start(&process);
            if handle.is_none() {
                shared().executors[place].release();
            }
            Some((place, handle?))
        });
        self.note_out_of_workers(started.is_none());
        let Some((place, handle)) = started else {
            if has > 0 {
                return Some(now + NO_MORE_PROCESS_WAIT);
            }
            processes::make_room(asker, now);
            return Some(now + processes::AGAIN);
        };
        processes::started(asker);
        self.executors.insert(place, Started { handle, owner: owner.to_u32(), at: now });
        Some(now + PATIENCE)
    }

    /// The executors of this database, and the same as the decisions see them.
    fn places(&self) -> (Vec<&'static ExecutorSlot>, Vec<Place>) {
        let slots: Vec<&ExecutorSlot> = shared().executors_of(self.database).collect();
        let places = slots.iter().map(|slot| slot.place()).collect();
        (slots, places)
    }

    /// Does another owner wait without any executor, although it may have one?
    fn others_lack(&self, owner: u32) -> bool {
        let lacks =
            |other: &u32| *other != owner && !self.refused.contains_key(other) && self.of(*other).next().is_none();
        self.waiting.keys().any(lacks)
    }

    fn note_out_of_workers(&self, so: bool) {
        if let Some(home) = shared().database(self.database) {
            home.out_of_workers.store(so, Ordering::Release);
        }
    }

    /// The limit was lowered: the idle ones leave first, the others after their batch.
    fn stop_surplus(&self, now: i64) {
        let (slots, places) = self.places();
        for index in places::surplus(&places, gucs::executors()) {
            slots[index].ask_to_leave(now);
        }
    }

    /// Frees the slots of executors that have ended, also of those that never came up.
    fn reap(&mut self) {
        let ended: Vec<usize> =
            self.executors.iter().filter(|(_, started)| started.handle.has_ended()).map(|(place, _)| *place).collect();
        let home = shared().database(self.database);
        let died = home.is_some_and(|home| home.executor_died.swap(false, Ordering::AcqRel));
        for place in ended {
            let Some(started) = self.executors.remove(&place) else { continue };
            started.handle.free();
            if started.free_if_never_up(place, self.database) {
                // The postmaster started it and it could not log in; its FATAL message is in the server log.
                let reason = "its executor ended before it had logged in, see the server log";
                self.refuse(pg_sys::Oid::from(started.owner), reason.to_owned());
                self.waiting.insert(started.owner, clock::now() + REFUSED_WAIT);
                continue;
            }
            // The executor may have left work behind, unless it exited because there was none for long.
            let now = clock::now();
            let quiet = self.last_work.get(&started.owner).is_none_or(|at| now - at > QUIET);
            if died || !quiet {
                self.waiting.entry(started.owner).or_insert(now);
            }
        }
        if died {
            // No sooner than this, should the next executor die as well.
            let soon = clock::now() + DIED_WAIT;
            self.waiting.values_mut().for_each(|at| *at = (*at).max(soon));
        }
    }

    /// The clock on the wall was set: owners that were to be looked at later are looked at now.
    pub fn clock_was_set(&mut self, now: i64) {
        self.waiting.values_mut().for_each(|at| *at = now);
        self.last_work.values_mut().for_each(|at| *at = now);
    }

    /// Ends all executors, also in the middle of a step.
    pub fn stop_all(&mut self) {
        for slot in shared().executors_of(self.database) {
            slot.stop.store(true, Ordering::Release);
            slot.wake();
        }
        for (place, started) in self.executors.drain() {
            started.handle.terminate();
            started.free_if_never_up(place, self.database);
        }
        self.waiting.clear();
    }
}
