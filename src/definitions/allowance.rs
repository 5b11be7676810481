//! The time that filters and rules of each role may take in the process that routes.
use std::cell::RefCell;
use std::collections::HashMap;

use automation_core::gate::slow::Allowance;
use pgrx::pg_sys;

use crate::pg::clock;

thread_local!(static ALLOWANCES: RefCell<HashMap<pg_sys::Oid, Allowance>> = RefCell::new(HashMap::new()));

/// Subtracts the microseconds for which an expression of a role was evaluated. False if the role has no time left.
pub fn spend(role: pg_sys::Oid, micros: u64) -> bool {
    let now = clock::now();
    ALLOWANCES.with_borrow_mut(|known| known.entry(role).or_insert_with(|| Allowance::new(now)).spend(micros, now))
}
