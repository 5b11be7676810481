//! The courier: one per database, started while there are messages to deliver. Claims the messages that are due and
//! commits that, sends them with no transaction open, records the outcomes. Runs no SQL of users, and is the only
//! process that opens secrets.
#![allow(unsafe_code)]
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egress::{Outcome, Request, Share};
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::processes;
use super::txn::in_transaction;
use crate::courier::{Answer, Policies, Record, Senders, Surroundings, prepare, record, record_interrupted};
use crate::pg::failpoint::{failpoint, skips};
use crate::pg::process;
use crate::pg::report;
use crate::pg::{clock, names, settings};
use crate::signal::shmem::{self, DatabaseSlot, shared};
use crate::store::deliveries::{self, Due, Message};
use crate::{gucs, janitor};

/// With nothing to deliver for this long, the courier leaves.
const REST: i64 = 60 * SECOND;
/// Rows looked at in one go while choosing the messages to send.
const LOOK_AT: i64 = 256;
/// How long after its deadline an answer is still waited for.
const GRACE: i64 = 2 * SECOND;
/// How long to wait after an error of our own.
const AFTER_ERROR: i64 = SECOND;
/// How soon to look again at messages that are due while another session has them locked.
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
    process::attend_signals();
    let database = pg_sys::Oid::from(argument.value() as u32);
    // SAFETY: a worker that logs in as the bootstrap superuser.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) };
    let Some(slot) = shared().database(database) else { process::exit(0) };
    // One courier at a time: messages marked as being sent by another courier were left behind by one that is gone.
    if !slot.become_courier(clock::now()) {
        process::exit(0);
    }
    process::at_exit(on_exit, 0);
    let ready = in_transaction(|| {
        process::set_application_name(&format!("automation_engine courier ({})", names::database_name(database)));
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
        (Ok(false), _) => process::exit(0),
        (Err(failure), _) => {
            report::warning(format!("automation_engine courier: {}", failure.error().message));
            process::exit(1)
        }
        (_, Err(error)) => {
            report::warning(format!("automation_engine courier: {error}"));
            process::exit(1)
        }
    }
}

/// A message whose request is under way.
struct Flight {
    message: Message,
    receiver: String,
    /// When the request is given up, even if the sender has not answered.
    until: i64,
    started_at: i64,
}

struct Courier {
    slot: &'static DatabaseSlot,
    senders: Senders,
    surroundings: Surroundings,
    flights: HashMap<i64, Flight>,
    share: Share,
    /// Requests that are over and not recorded yet.
    unrecorded: Vec<Record>,
    /// When to look at the outbox; None until something is put into it.
    look_at: Option<i64>,
    /// Since when there has been nothing to do.
    idle_since: i64,
    /// Not before then does a claim look past receivers and automations that have enough under way.
    deep_at: i64,
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
            deep_at: 0,
            worked_at: clock::now(),
            reported: false,
        }
    }

    fn work(&mut self) -> ! {
        loop {
            // Requests under way are interrupted; the next courier finds their messages marked.
            if self.slot.courier_stop.load(Ordering::Acquire) || !gucs::enabled() || !gucs::http() {
                process::exit(0);
            }
            self.land();
            if self.slot.outbox_filled.swap(false, Ordering::AcqRel) {
                self.look_at = Some(0);
            }
            let now = clock::now();
            let due = self.share.room() > 0 && self.look_at.is_some_and(|at| at <= now);
            if due || !self.unrecorded.is_empty() {
                self.turn(now);
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
            // Where processes are few, an executor may be waiting for this courier's place, here or in another
            // database.
            let wanted_elsewhere = self.slot.out_of_workers.load(Ordering::Acquire) || processes::is_claimed(now);
            let rest = if wanted_elsewhere || skips("courier_rest") { SECOND } else { REST };
            if now - self.idle_since >= rest {
                process::exit(0);
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
        let woken = process::wait_for(self.senders.bell(), timeout);
        if woken.reloaded {
            self.surroundings = Surroundings::read();
        }
        if !self.reported && clock::now() - self.worked_at >= STATISTICS_DUE {
            process::report_statistics();
            self.reported = true;
        }
    }

    /// Takes the answers of the senders, and gives up on requests that are late beyond their deadline.
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
                self.share.give_back(&flight.receiver, i64::from(flight.message.automation_id.0));
                self.unrecorded.push(Record::of_answer(flight.message, answer));
                // A message to be sent again may be the next that is due, and room has become free.
                self.look_at = Some(0);
            }
        }
    }

    /// Records the requests that are over and claims the messages that are due, in one transaction, since each commit
    /// waits for the disk; only after the commit does the first byte of a claimed message leave.
    fn turn(&mut self, now: i64) {
        let landed = std::mem::take(&mut self.unrecorded);
        if !landed.is_empty() {
            failpoint("delivery_answered");
        }
        let mut share = self.share.clone();
        let deep = now >= self.deep_at;
        let done = in_transaction(|| {
            if !names::extension_installed() {
                process::exit(0);
            }
            // SAFETY: sets a flag of the current transaction: that a message was tried must survive a crash, under any
            // setting of synchronous_commit.
            unsafe { pg_sys::ForceSyncCommit() };
            landed.iter().for_each(|landed| record(landed, now));
            // Without a network nothing can be sent, and messages that are not claimed wait. Deliveries under way when
            // the database becomes read-only are recorded, and no more are begun.
            let may_send = self.surroundings.network.is_some() && shmem::frozen().is_none();
            may_send.then(|| claim(&mut share, &self.surroundings, now, deep))
        });
        if !landed.is_empty() {
            failpoint("delivery_recorded");
        }
        self.has_worked();
        match done {
            Ok(claimed) => {
                self.account(&landed);
                self.share = share;
                match claimed {
                    Some(claimed) => self.set_out(claimed, now),
                    None => self.look_at = Some(now + REST),
                }
            }
            Err(failure) => {
                report::warning(format!("automation_engine courier: {}", failure.error().message));
                self.record_one_by_one(landed, now);
                self.look_at = Some(now + AFTER_ERROR);
            }
        }
    }

    /// Records each outcome in a transaction of its own, so that one that cannot be stored holds up no other.
    fn record_one_by_one(&mut self, landed: Vec<Record>, now: i64) {
        for landed in landed {
            if in_transaction(|| record(&landed, now)).is_ok() {
                self.account(std::slice::from_ref(&landed));
                continue;
            }
            let landed = landed.without_body();
            match in_transaction(|| record(&landed, now)) {
                Ok(()) => self.account(std::slice::from_ref(&landed)),
                Err(_) => self.unrecorded.push(landed),
            }
        }
    }

    /// Sends the claimed messages.
    fn set_out(&mut self, claimed: Claimed, now: i64) {
        if !claimed.ready.is_empty() {
            failpoint("delivery_claimed");
        }
        if let Some(took) = claimed.looked_past_for {
            // Looking past a long queue must not become all that we do.
            self.deep_at = now + took * 10;
        }
        self.look_at = match claimed.next {
            Next::At(at) if at <= now && claimed.ready.is_empty() && self.share.room() > 0 => Some(now + HELD),
            Next::At(at) => Some(at),
            Next::Deep => Some(self.deep_at),
            Next::Empty => None,
        };
        for (message, receiver, request) in claimed.ready {
            let Some(network) = &self.surroundings.network else { return };
            let started_at = clock::now();
            let until = started_at + request.timeout.as_micros() as i64 + GRACE;
            let (id, attempt) = (message.id, message.attempt);
            self.flights.insert(id, Flight { message, receiver, until, started_at });
            self.senders.send(id, attempt, request, network);
        }
        self.slot.courier_batches.fetch_add(1, Ordering::AcqRel);
    }

    fn has_worked(&mut self) {
        self.worked_at = clock::now();
        self.reported = false;
    }

    fn account(&mut self, landed: &[Record]) {
        let failed = landed.iter().filter(|landed| landed.failed()).count();
        self.slot.courier_sent.fetch_add(landed.len() as i64, Ordering::AcqRel);
        self.slot.courier_failed.fetch_add(failed as i64, Ordering::AcqRel);
    }
}

struct Claimed {
    ready: Vec<(Message, String, Request)>,
    next: Next,
    /// How many microseconds it took to look past receivers and automations that have enough under way.
    looked_past_for: Option<i64>,
}

/// When to look again.
enum Next {
    At(i64),
    /// When looking past receivers and automations that have enough under way is allowed again.
    Deep,
    /// When a message is put into the outbox.
    Empty,
}

/// Claims messages that are due as far as there is room, and records at once those that cannot be sent. If `deep`, as
/// often as it takes to look past the messages of receivers and automations that have enough under way.
fn claim(share: &mut Share, surroundings: &Surroundings, now: i64, deep: bool) -> Claimed {
    let mut policies = Policies::default();
    let mut ready = Vec::new();
    let began = clock::now();
    // Receivers and automations that were full before are passed over by the first look already.
    let mut looks = usize::from(!share.full_receivers().is_empty() || !share.full_automations().is_empty());
    let mut all_seen = false;
    while share.room() > 0 && !all_seen && (looks == 0 || deep) {
        looks += 1;
        let due = deliveries::due(now, &share.full_receivers(), &share.full_automations(), LOOK_AT);
        all_seen = (due.len() as i64) < LOOK_AT;
        let mut taken: HashMap<i64, Due> = due
            .into_iter()
            .filter(|due| share.take(&due.receiver, due.automation_id))
            .map(|due| (due.id, due))
            .collect();
        let ids: Vec<i64> = taken.keys().copied().collect();
        for mut message in deliveries::claim(&ids, shared().boot.load(Ordering::Acquire) as i64) {
            let Some(Due { receiver, .. }) = taken.remove(&message.id) else { continue };
            match prepare(&message, surroundings, &mut policies, now) {
                Ok(request) => {
                    // The request holds the body; it can be large.
                    message.body = None;
                    ready.push((message, receiver, request));
                }
                Err(why) => {
                    share.give_back(&receiver, i64::from(message.automation_id.0));
                    record(&Record::of_refusal(message, why, now), now);
                }
            }
        }
        // These messages are locked by another session.
        for due in taken.values() {
            share.give_back(&due.receiver, due.automation_id);
        }
        if ids.is_empty() {
            break;
        }
    }
    let full = share.room() == 0 || !share.full_receivers().is_empty() || !share.full_automations().is_empty();
    let next = match full {
        // Messages that are due are looked at when a request has landed; the time at which the next one becomes due
        // must be known.
        true if all_seen || share.room() == 0 => deliveries::next_after(now).map_or(Next::Empty, Next::At),
        true => Next::Deep,
        false => deliveries::next().map_or(Next::Empty, Next::At),
    };
    Claimed { ready, next, looked_past_for: (looks > 1).then(|| clock::now() - began) }
}
