//! Warns that an automation is started very often (R001-42). Only a log entry, at most once a minute; no run is held
//! back.
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use automation_core::gate::hot::{STORM, storm};
use automation_core::ids::AutomationId;
use automation_core::value::Timestamp;
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::store::log::{self, Entry};

const MINUTE: Micros = 60_000_000;

/// The times of the last starts of an automation, as many as make a storm.
#[derive(Default)]
struct Recent {
    starts: VecDeque<Micros>,
    warned: Option<Timestamp>,
}

thread_local!(static RECENT: RefCell<HashMap<AutomationId, Recent>> = RefCell::new(HashMap::new()));

/// Notes that an automation is started, and warns if that is a storm.
pub fn note(automation: AutomationId, owner: pg_sys::Oid, now: Micros) {
    let is_storm = RECENT.with(|recent| {
        let mut recent = recent.borrow_mut();
        let recent = recent.entry(automation).or_default();
        recent.starts.push_back(now);
        if recent.starts.len() as u64 > STORM + 1 {
            recent.starts.pop_front();
        }
        let within = recent.starts.iter().filter(|at| now - **at < MINUTE).count();
        let is_storm = storm(within as u64, recent.warned, Timestamp(now));
        if is_storm {
            recent.warned = Some(Timestamp(now));
        }
        is_storm
    });
    if is_storm {
        log::warning(&Entry {
            code: "automation_storm",
            automation_id: Some(automation),
            owner: Some(owner),
            message: "automation storm detected",
            detail: Some(&format!("It was started more than {STORM} times within a minute.")),
            ..Default::default()
        });
    }
}
