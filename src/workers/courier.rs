//! The courier: one per database, started while there are messages to deliver. Claims what is due and commits that, sends with no
//! transaction open, records what came of it. Runs no SQL of users, and is the only process that opens secrets.
#![allow(unsafe_code)]
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egress::{Outcome, Request, Share};
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::registration;
use super::txn::in_transaction;
use crate::courier::{Answer, Policies, Record, Senders, Surroundings, prepare, record, record_interrupted};
use crate::failpoint::{failpoint, skips};
use crate::pg::{clock, names, settings};
use crate::shmem::{self, DatabaseSlot, shared};
use crate::store::deliveries::{self, Due, Message};
use crate::{gucs, janitor};

/// With nothing to deliver for this long, the courier leaves.
const REST: i64 = 60 * SECOND;
/// Rows looked at in one go while choosing what to send.
const LOOK_AT: i64 = 256;
/// How long after its deadline an answer is still waited for.
const GRACE: i64 = 2 * SECOND;
/// How long to wait after an error of our own.
const AFTER_ERROR: i64 = SECOND;
/// How soon to look again at messages that are due while somebody has them locked.
const HELD: i64 = SECOND / 2;
/// When to hand in statistics after work.
const STATISTICS_DUE: i64 = SECOND;
const SECOND: i64 = 1_000_000;

unsafe extern "C-unwind" fn on_exit(_code: i32, _argument: pg_sys::Datum) {
    if let Some(slot) = shared().database(shmem::my_database()) {
        slot.leave_courier();
        slot.wake_conductor();
    }
}

/// Entry point of a courier; the argument is the database's oid.
#[unsafe(no_mangle)]
#[pg_guard]
pub extern "C-unwind" fn automation_courier_main(argument: pg_sys::Datum) {
    registration::attend_signals();
    let database = pg_sys::Oid::from(argument.value() as u32);
    // SAFETY: a worker that logs in as the bootstrap superuser.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) };
    let Some(slot) = shared().database(database) else { registration::exit(0) };
    // One at a time: what is marked as being sent, and not by us, was left behind.
    if !slot.become_courier(clock::now()) {
        registration::exit(0);
    }
    registration::at_exit(on_exit, 0);
    let ready = in_transaction(|| {
        registration::set_application_name(&format!(
            "automation_engine courier ({})",
            registration::database_name(database)
        ));
        settings::set_session(c"search_path", c"pg_catalog, pg_temp");
        settings::set_session(c"default_transaction_isolation", c"read committed");
        let installed = names::extension_installed() && janitor::version_matches();
        if installed {
            record_interrupted(clock::now());
        }
        installed
    });
    match (ready, Senders::new()) {
        (Ok(true), Ok(senders)) => Courier::new(slot, senders).work(),
        (Ok(false), _) => registration::exit(0),
        (Err(failure), _) => {
            warning!("automation_engine courier: {}", failure.error().message);
            registration::exit(1)
        }
        (_, Err(error)) => {
            warning!("automation_engine courier: {error}");
            registration::exit(1)
        }
    }
}

/// A message whose request is under way.
struct Flight {
    message: Message,
    receiver: String,
    /// When it is over, whatever the sender says.
    until: i64,
    started_at: i64,
}

struct Courier {
    slot: &'static DatabaseSlot,
    senders: Senders,
    surroundings: Surroundings,
    flights: HashMap<i64, Flight>,
    share: Share,
    /// What is over and not recorded yet.
    unrecorded: Vec<Record>,
    /// When to look at the outbox; None until something is put into it.
    look_at: Option<i64>,
    /// Since when there has been nothing to do.
    idle_since: i64,
    /// When the last transaction ended, and whether its statistics have been handed in.
    worked_at: i64,
    reported: bool,
}

impl Courier {
    fn new(slot: &'static DatabaseSlot, senders: Senders) -> Self {
        Courier {
            slot,
            senders,
            surroundings: Surroundings::read(),
            flights: HashMap::new(),
            share: Share::default(),
            unrecorded: Vec::new(),
            look_at: Some(0),
            idle_since: clock::now(),
            worked_at: clock::now(),
            reported: false,
        }
    }

    fn work(&mut self) -> ! {
        loop {
            // What is under way is interrupted; the next courier finds it marked.
            if self.slot.courier_stop.load(Ordering::Acquire) || !gucs::enabled() || !gucs::http() {
                registration::exit(0);
            }
            self.land();
            self.record_landed();
            if self.slot.outbox_filled.swap(false, Ordering::AcqRel) {
                self.look_at = Some(0);
            }
            let now = clock::now();
            if self.unrecorded.is_empty() && self.share.room() > 0 && self.look_at.is_some_and(|at| at <= now) {
                self.set_out(now);
                self.has_worked();
            }
            self.slot.courier_in_flight.store(self.flights.len() as i64, Ordering::Release);
            self.rest();
        }
    }

    /// Sleeps until there is something to do, and leaves if there has been nothing for long.
    fn rest(&mut self) {
        let now = clock::now();
        let nothing = self.flights.is_empty() && self.unrecorded.is_empty() && self.look_at.is_none();
        let mut until = now + REST;
        if nothing {
            let rest = if skips("courier_rest") { SECOND } else { REST };
            if now - self.idle_since >= rest {
                registration::exit(0);
            }
            until = self.idle_since + rest;
        } else {
            self.idle_since = now;
            if self.share.room() > 0 && self.unrecorded.is_empty() {
                until = until.min(self.look_at.unwrap_or(i64::MAX));
            }
            until = self.flights.values().map(|flight| flight.until).fold(until, i64::min);
            if !self.unrecorded.is_empty() {
                until = until.min(now + AFTER_ERROR);
            }
        }
        if !self.reported {
            until = until.min(self.worked_at + STATISTICS_DUE);
        }
        let timeout = Duration::from_micros((until - now).clamp(0, REST) as u64 + 500);
        let woken = registration::wait_for(self.senders.bell(), timeout);
        if woken.reloaded {
            self.surroundings = Surroundings::read();
        }
        if !self.reported && clock::now() - self.worked_at >= STATISTICS_DUE {
            registration::report_statistics();
            self.reported = true;
        }
    }

    /// Takes what the senders have brought back, and gives up on those who are late beyond their deadline.
    fn land(&mut self) {
        let answers = self.senders.answers();
        let now = clock::now();
        let late: Vec<i64> = self.flights.iter().filter(|(_, flight)| flight.until <= now).map(|(id, _)| *id).collect();
        let late = late.into_iter().filter_map(|id| {
            let flight = self.flights.get(&id)?;
            let outcome = Outcome::Unknown("no outcome within the time allowed".to_owned());
            let (attempt, started_at) = (flight.message.attempt, flight.started_at);
            Some(Answer { id, attempt, outcome, started_at, ended_at: now })
        });
        let late: Vec<Answer> = late.collect();
        // An answer that came at the last moment is better than none.
        for answer in answers.into_iter().chain(late) {
            let current = self.flights.get(&answer.id).is_some_and(|flight| flight.message.attempt == answer.attempt);
            if let Some(flight) = self.flights.remove(&answer.id).filter(|_| current) {
                self.share.give_back(&flight.receiver, i64::from(flight.message.automation_id));
                self.unrecorded.push(Record::of_answer(flight.message, answer));
            }
        }
    }

    /// Records what is over, together; if that fails, one by one, so that one that cannot be stored holds up no other.
    fn record_landed(&mut self) {
        if self.unrecorded.is_empty() {
            return;
        }
        failpoint("delivery_answered");
        let now = clock::now();
        let landed = std::mem::take(&mut self.unrecorded);
        let together = in_transaction(|| {
            self.leave_if_gone();
            landed.iter().for_each(|landed| record(landed, now));
        });
        failpoint("delivery_recorded");
        self.has_worked();
        if together.is_ok() {
            self.landed(&landed);
            return;
        }
        for landed in landed {
            let alone = in_transaction(|| record(&landed, now));
            let Err(failure) = alone else {
                self.landed(std::slice::from_ref(&landed));
                continue;
            };
            warning!("automation_engine courier: {}", failure.error().message);
            let landed = landed.without_body();
            match in_transaction(|| record(&landed, now)) {
                Ok(()) => self.landed(std::slice::from_ref(&landed)),
                Err(_) => self.unrecorded.push(landed),
            }
        }
    }

    fn has_worked(&mut self) {
        self.worked_at = clock::now();
        self.reported = false;
    }

    fn landed(&mut self, landed: &[Record]) {
        let failed = landed.iter().filter(|landed| landed.failed()).count();
        self.slot.courier_sent.fetch_add(landed.len() as i64, Ordering::AcqRel);
        self.slot.courier_failed.fetch_add(failed as i64, Ordering::AcqRel);
        // What is to be sent again may be the next that is due, and room has become free.
        self.look_at = Some(0);
    }

    /// Claims what is due, commits that, and only then lets the first byte leave.
    fn set_out(&mut self, now: i64) {
        let Some(network) = self.surroundings.network.clone() else {
            self.look_at = Some(now + REST);
            return;
        };
        let mut share = self.share.clone();
        let claimed = in_transaction(|| {
            self.leave_if_gone();
            // SAFETY: sets a flag of the current transaction: that it was tried must survive a crash, whatever the settings say.
            unsafe { pg_sys::ForceSyncCommit() };
            claim(&mut share, &self.surroundings, now)
        });
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(failure) => {
                warning!("automation_engine courier: {}", failure.error().message);
                self.look_at = Some(now + AFTER_ERROR);
                return;
            }
        };
        failpoint("delivery_claimed");
        self.share = share;
        self.look_at = match claimed.next {
            Some(at) if at <= now && claimed.ready.is_empty() && self.share.room() > 0 => Some(now + HELD),
            next => next,
        };
        for (message, receiver, request) in claimed.ready {
            let started_at = clock::now();
            let until = started_at + request.timeout.as_micros() as i64 + GRACE;
            let (id, attempt) = (message.id, message.attempt);
            self.flights.insert(id, Flight { message, receiver, until, started_at });
            self.senders.send(id, attempt, request, &network);
        }
        self.slot.courier_batches.fetch_add(1, Ordering::AcqRel);
    }

    /// The extension was dropped under us.
    fn leave_if_gone(&self) {
        if !names::extension_installed() {
            registration::exit(0);
        }
    }
}

struct Claimed {
    ready: Vec<(Message, String, Request)>,
    /// When to look again.
    next: Option<i64>,
}

/// Takes what is due in hand as far as there is room, and settles at once what cannot be sent. As often as it takes to
/// look past the messages of receivers that have enough under way.
fn claim(share: &mut Share, surroundings: &Surroundings, now: i64) -> Claimed {
    let mut policies = Policies::default();
    let mut ready = Vec::new();
    let boot = shared().boot.load(Ordering::Acquire) as i64;
    let mut exhausted = false;
    for _ in 0..share.room().max(1) {
        let due = deliveries::due(now, &share.full_receivers(), &share.full_automations(), LOOK_AT);
        let seen = due.len() as i64;
        let mut taken: HashMap<i64, Due> = due
            .into_iter()
            .filter(|due| share.take(&due.receiver, due.automation_id))
            .map(|due| (due.id, due))
            .collect();
        let ids: Vec<i64> = taken.keys().copied().collect();
        for mut message in deliveries::claim(&ids, boot) {
            let Some(Due { receiver, .. }) = taken.remove(&message.id) else { continue };
            match prepare(&message, surroundings, &mut policies, now) {
                Ok(request) => {
                    // The request has it; it can be large.
                    message.body = None;
                    ready.push((message, receiver, request));
                }
                Err(why) => {
                    share.give_back(&receiver, i64::from(message.automation_id));
                    record(&Record::of_refusal(message, why, now), now);
                }
            }
        }
        // Somebody else has them locked.
        for due in taken.values() {
            share.give_back(&due.receiver, due.automation_id);
        }
        exhausted = seen < LOOK_AT;
        if ids.is_empty() || exhausted || share.room() == 0 {
            break;
        }
    }
    let full = !share.full_receivers().is_empty() || !share.full_automations().is_empty() || share.room() == 0;
    // While somebody has enough under way, the next landing is when to look again; but what becomes due later must be known.
    let next = if exhausted && full { deliveries::next_after(now) } else { deliveries::next() };
    Claimed { ready, next }
}
