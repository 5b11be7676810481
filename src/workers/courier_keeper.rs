//! The conductor's care for the courier: starts one when there are messages to deliver, not before, and one at a time.
use std::sync::atomic::Ordering;
use std::time::Duration;

use automation_core::places;
use pgrx::pg_sys;

use super::processes;
use crate::gucs;
use crate::pg::process::{self, Handle, Process};
use crate::signal::shmem::DatabaseSlot;
use crate::store::deliveries;

/// How long to wait before starting another courier when one has just ended.
const AGAIN: i64 = 500_000;

pub struct CourierKeeper {
    database: pg_sys::Oid,
    slot: &'static DatabaseSlot,
    handle: Option<Handle>,
    not_before: i64,
    /// Has the outbox been looked at since the server, or the engine, was switched on?
    looked: bool,
}

impl CourierKeeper {
    pub fn new(database: pg_sys::Oid, slot: &'static DatabaseSlot) -> Self {
        CourierKeeper { database, slot, handle: None, not_before: 0, looked: false }
    }

    /// Looks, once and inside a transaction, whether there are messages that no session has announced.
    pub fn look(&mut self) {
        if !self.looked {
            self.looked = true;
            if deliveries::any() {
                self.slot.announce_outbox();
            }
        }
    }

    /// The outbox may hold messages that no session has announced: COMMIT PREPARED announces nothing.
    pub fn look_again(&mut self) {
        self.looked = false;
    }

    /// Starts a courier if one is needed. Says how soon to look again, if that is before another process wakes the
    /// conductor.
    pub fn attend(&mut self, now: i64) -> Option<Duration> {
        if let Some(handle) = self.handle.filter(|handle| handle.has_ended()) {
            handle.free();
            self.handle = None;
            // The courier may have died over its work, or been terminated by a session.
            self.looked = false;
            self.not_before = now + AGAIN;
        }
        if self.slot.out_of_workers.load(Ordering::Acquire) {
            // A courier that is idle makes room for an executor.
            self.slot.wake_courier();
        }
        let wanted = gucs::http() && (self.slot.outbox_filled.load(Ordering::Acquire) || !self.looked);
        if !wanted || self.handle.is_some() {
            return None;
        }
        // A courier that an earlier conductor has started is about to exit.
        if self.not_before > now || self.slot.courier_pid.load(Ordering::Acquire) != 0 {
            return Some(Duration::from_millis(20));
        }
        if !self.looked {
            let looked = super::txn::in_transaction(|| {
                if crate::pg::names::extension_installed() {
                    self.look();
                }
            });
            if looked.is_err() || !self.slot.outbox_filled.load(Ordering::Acquire) {
                return None;
            }
        }
        let asker = places::asker(self.database.to_u32(), places::COURIER);
        if !processes::may_start(asker, now) {
            self.slot.courier_starved.store(true, Ordering::Release);
            return Some(Duration::from_micros(processes::AGAIN as u64));
        }
        self.slot.courier_stop.store(false, Ordering::Release);
        let process = Process {
            name: "automation_engine courier",
            kind: c"automation_engine courier",
            function: c"automation_courier_main",
            argument: self.database.to_u32() as usize,
            restart_after: None,
        };
        self.handle = process::start(&process);
        self.slot.courier_starved.store(self.handle.is_none(), Ordering::Release);
        if self.handle.is_none() {
            processes::make_room(asker, now);
            return Some(Duration::from_micros(processes::AGAIN as u64));
        }
        processes::started(asker);
        None
    }

    /// The clock on the wall was set: a start that was put off by the old time may happen now.
    pub fn clock_was_set(&mut self) {
        self.not_before = 0;
        self.looked = false;
    }

    /// Ends the courier, also in the middle of a delivery; the next courier takes its deliveries up.
    pub fn stop(&mut self) {
        self.slot.stop_courier();
        self.looked = false;
        if let Some(handle) = self.handle.take() {
            handle.terminate();
            handle.free();
        }
    }
}
