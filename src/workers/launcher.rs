//! The launcher: one per cluster. Looks which databases there are and keeps a conductor running for each that has the
//! extension. Level-triggered: every look compares the conductors that should run with those that do.
#![allow(unsafe_code)]
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use automation_core::places;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::processes;
use super::txn::in_transaction;
use crate::error::EngineError;
use crate::pg::process::{self, Handle, Process};
use crate::pg::report;
use crate::pg::{clock, names, read_only};
use crate::signal::shmem::{
    self, DATABASES, DatabaseSlot, STATE_ABSENT, STATE_PRESENT, STATE_STARTING, STATE_UNKNOWN, shared,
};

const LOOK_EVERY: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);
/// While databases wait for a slot that others are about to give back.
const SOON: Duration = Duration::from_millis(100);
const SECOND: i64 = 1_000_000;

pub const PROCESS: Process<'static> = Process {
    name: "automation_engine launcher",
    kind: c"automation_engine launcher",
    function: c"automation_launcher_main",
    argument: 0,
    restart_after: Some(1),
};

unsafe extern "C-unwind" fn on_exit(_code: i32, _argument: pg_sys::Datum) {
    shared().leave_launcher();
}

/// Entry point of the launcher.
#[unsafe(no_mangle)]
#[pg_guard]
pub extern "C-unwind" fn automation_launcher_main(_argument: pg_sys::Datum) {
    process::attend_signals();
    if process::in_binary_upgrade() {
        process::exit(0);
    }
    // SAFETY: a worker without a database: shared catalogs only.
    unsafe { pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0) };
    process::set_application_name("automation_engine launcher");
    shared().become_launcher();
    process::at_exit(on_exit, 0);
    Launcher { handles: HashMap::new(), seen: None, looked_at: 0, absent: HashSet::new(), left_out: Vec::new() }.work()
}

struct Launcher {
    handles: HashMap<u32, Handle>,
    /// (wishes, completed transactions) at the last look.
    seen: Option<(u64, u64)>,
    looked_at: i64,
    /// Databases that were found to be without the extension. They need no slot; CREATE EXTENSION takes one.
    absent: HashSet<u32>,
    /// Databases that found no slot, the oid of each.
    left_out: Vec<u32>,
}

impl Launcher {
    fn work(&mut self) -> ! {
        loop {
            let wait = self.turn();
            process::wait(wait);
        }
    }

    fn turn(&mut self) -> Duration {
        // How often to look does not depend on the clock on the wall, which may be set.
        let now = clock::passed();
        let read_only = read_only::of_server();
        if shared().read_only.swap(read_only, Ordering::AcqRel) != read_only {
            // No transaction tells the conductors of a change in the configuration.
            let used = |slot: &&DatabaseSlot| slot.database.load(Ordering::Acquire) != 0;
            shared().databases.iter().filter(used).for_each(DatabaseSlot::announce_events);
        }
        let (wanted, completed) = (shared().launcher_wanted.load(Ordering::Acquire), shmem::completed_transactions());
        let due = match self.seen {
            None => true,
            Some((wishes, transactions)) => {
                wishes != wanted || (transactions != completed && now - self.looked_at >= 10 * SECOND)
            }
        };
        if due {
            match in_transaction(databases) {
                Ok(databases) => {
                    forget_dropped(&databases);
                    self.find_places(&databases);
                    self.seen = Some((wanted, completed));
                    self.looked_at = now;
                }
                Err(failure) => report::warning(format!("automation_engine launcher: {}", failure.error().message)),
            }
        }
        let mut wait = LOOK_EVERY;
        for slot in &shared().databases {
            if slot.database.load(Ordering::Acquire) != 0 && self.attend(slot, now) {
                let no_process =
                    slot.state.load(Ordering::Acquire) == STATE_UNKNOWN && processes::is_claimed(clock::now());
                wait = wait.min(if no_process { SOON } else { RETRY });
            }
        }
        if !self.left_out.is_empty() && shared().has_room() {
            // Places become free as databases turn out to be without the extension.
            self.seen = None;
            wait = wait.min(SOON);
        }
        wait
    }

    /// Sees to it that every database that has the extension, or may have it, has a slot.
    fn find_places(&mut self, databases: &[pg_sys::Oid]) {
        for slot in &shared().databases {
            let database = slot.database.load(Ordering::Acquire);
            match slot.state.load(Ordering::Acquire) {
                STATE_ABSENT => self.absent.insert(database),
                _ => self.absent.remove(&database),
            };
        }
        self.absent.retain(|known| databases.iter().any(|database| database.to_u32() == *known));
        let placeless = |database: &&pg_sys::Oid| {
            !self.absent.contains(&database.to_u32()) && shared().database_or_new(**database).is_none()
        };
        let left_out: Vec<u32> = databases.iter().filter(placeless).map(|database| database.to_u32()).collect();
        if !shared().has_room() {
            left_out.iter().filter(|database| !self.left_out.contains(database)).for_each(|database| tell(*database));
        }
        self.left_out = left_out;
    }

    /// Starts or frees the conductor of one database as its state demands. True if the database must be looked at again
    /// soon.
    fn attend(&mut self, slot: &DatabaseSlot, now: i64) -> bool {
        let database = slot.database.load(Ordering::Acquire);
        if self.handles.get(&database).is_some_and(|handle| handle.has_ended()) {
            if let Some(handle) = self.handles.remove(&database) {
                handle.free();
            }
            if slot.state.load(Ordering::Acquire) == STATE_STARTING {
                // The conductor ended before it could report its state: the database refuses connections, or is going
                // away.
                let failures = slot.failures.fetch_add(1, Ordering::AcqRel).min(5);
                slot.retry_at.store(now + (SECOND << failures), Ordering::Release);
                slot.leave_conductor(STATE_UNKNOWN);
                shared().launcher_wanted.fetch_add(1, Ordering::AcqRel);
            }
        }
        let holder = slot.quiesced_by.load(Ordering::Acquire);
        if holder != 0 {
            if process::is_alive(holder) {
                return true;
            }
            slot.quiesced_by.store(0, Ordering::Release);
        }
        match slot.state.load(Ordering::Acquire) {
            STATE_PRESENT if !process::is_alive(slot.conductor_pid.load(Ordering::Acquire)) => {
                slot.leave_conductor(STATE_UNKNOWN);
            }
            // Registered by a launcher that is gone; that conductor reports itself, or has ended.
            STATE_STARTING if !self.handles.contains_key(&database) => slot.leave_conductor(STATE_UNKNOWN),
            STATE_STARTING => return true,
            _ => {}
        }
        if slot.state.load(Ordering::Acquire) != STATE_UNKNOWN || slot.stopped.load(Ordering::Acquire) {
            return false;
        }
        if slot.retry_at.load(Ordering::Acquire) > now {
            return true;
        }
        let asker = places::asker(database, places::CONDUCTOR);
        // By the clock of the other askers: pools and couriers compare the time of a claim with the clock on the wall.
        if !processes::may_start(asker, clock::now()) {
            return true;
        }
        slot.state.store(STATE_STARTING, Ordering::Release);
        let process = Process {
            name: "automation_engine conductor",
            kind: c"automation_engine conductor",
            function: c"automation_conductor_main",
            argument: database as usize,
            restart_after: None,
        };
        match process::start(&process) {
            Some(handle) => {
                processes::started(asker);
                slot.out_of_workers.store(false, Ordering::Release);
                if let Some(old) = self.handles.insert(database, handle) {
                    old.free();
                }
            }
            None => {
                slot.state.store(STATE_UNKNOWN, Ordering::Release);
                slot.out_of_workers.store(true, Ordering::Release);
                processes::make_room(asker, clock::now());
            }
        }
        true
    }
}

/// Says in the server's log that the engine cannot work in a database.
fn tell(database: u32) {
    let name = in_transaction(|| names::database_name(pg_sys::Oid::from(database)));
    let name = name.unwrap_or_else(|_| database.to_string());
    EngineError::out_of_slots(format!(
        "automation_engine cannot look at database \"{name}\": all {DATABASES} slots are taken"
    ))
    .hint("A server has slots for so many databases with the extension. Drop the extension where it is not needed.")
    .warn();
}

/// Frees the slots of databases that are gone.
fn forget_dropped(databases: &[pg_sys::Oid]) {
    for slot in &shared().databases {
        let oid = slot.database.load(Ordering::Acquire);
        if oid != 0 && !databases.iter().any(|database| database.to_u32() == oid) {
            shared().forget(slot);
        }
    }
}

/// Databases that can be connected to and are no templates.
fn databases() -> Vec<pg_sys::Oid> {
    let mut found = Vec::new();
    // SAFETY: a plain scan of a shared catalog inside a transaction.
    unsafe {
        let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as i32);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let database = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            if (*database).datallowconn && !(*database).datistemplate {
                found.push((*database).oid);
            }
        }
        pg_sys::heap_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
    }
    found
}
