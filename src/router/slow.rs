//! Pauses automations whose filters take too long: the process that routes evaluates the filters of all owners.
use std::cell::RefCell;
use std::collections::HashMap;

use automation_core::expr::Budget;
use automation_core::gate::slow::{ACTOR, FAILURES, Slow};
use automation_core::ids::{AutomationId, VersionId};
use pgrx::pg_sys;

use super::definitions::Active;
use crate::definitions::allowance;
use crate::definitions::scope::instant;
use crate::pg::clock;
use crate::runs::pause::tell_paused;
use crate::store::automations;
use crate::store::log::{self, Entry};

/// An automation whose filters are not evaluated any more.
#[derive(Clone)]
struct Stopped {
    version: VersionId,
    owner: pg_sys::Oid,
    name: String,
    trigger: String,
    why: Slow,
    /// The automation is to be paused at the end of the batch.
    due: bool,
}

#[derive(Default)]
struct State {
    /// How many filters of an automation have used up their budget one after the other.
    failures: HashMap<AutomationId, u32>,
    stopped: HashMap<AutomationId, Stopped>,
}

thread_local!(static STATE: RefCell<State> = RefCell::new(State::default()));

/// Is an automation to be passed over until it is paused? Another session may hold the lock that pausing it takes.
pub fn is_stopped(active: &Active) -> bool {
    STATE.with_borrow_mut(|state| {
        if state.stopped.is_empty() {
            return false;
        }
        match state.stopped.get_mut(&active.automation_id) {
            Some(stopped) if stopped.version == active.version_id => {
                stopped.due = true;
                true
            }
            Some(_) => {
                state.stopped.remove(&active.automation_id);
                false
            }
            None => false,
        }
    })
}

/// Notes that a filter of an automation was evaluated; `over` if it used up its budget.
pub fn filtered(active: &Active, trigger: &str, budget: &Budget, over: bool) {
    let why = STATE.with_borrow_mut(|state| {
        if over {
            let failures = state.failures.entry(active.automation_id).or_default();
            *failures += 1;
            return (*failures >= FAILURES).then_some(Slow::Budget(*failures));
        }
        if !state.failures.is_empty() {
            state.failures.remove(&active.automation_id);
        }
        None
    });
    note(active, trigger, budget, why);
}

/// Notes that another expression of an automation was evaluated while events were routed.
pub fn evaluated(active: &Active, trigger: &str, budget: &Budget) {
    note(active, trigger, budget, None);
}

fn note(active: &Active, trigger: &str, budget: &Budget, mut why: Option<Slow>) {
    let spent = budget.time_spent();
    if spent.is_none() && why.is_none() {
        return;
    }
    STATE.with_borrow_mut(|state| {
        if spent.is_some_and(|spent| !allowance::spend(active.owner, spent)) {
            why = why.or(Some(Slow::Time));
        }
        if let Some(why) = why {
            let (version, owner, name) = (active.version_id, active.owner, active.name.clone());
            let stopped = Stopped { version, owner, name, trigger: trigger.to_owned(), why, due: true };
            state.stopped.entry(active.automation_id).or_insert(stopped);
        }
    });
}

/// Pauses the automations that were stopped in this batch. An automation that another session is changing stays
/// stopped.
pub fn pause_stopped() {
    let due: Vec<(AutomationId, Stopped)> = STATE.with_borrow_mut(|state| {
        let due = state.stopped.iter_mut().filter(|(_, stopped)| stopped.due);
        due.map(|(id, stopped)| {
            stopped.due = false;
            (*id, stopped.clone())
        })
        .collect()
    });
    for (id, stopped) in due {
        let details = stopped.why.disable_details(instant(clock::engine_now()), &stopped.trigger);
        if !automations::pause_by_system(id, &details) {
            continue;
        }
        log::warning(&Entry {
            code: "filter_too_slow",
            automation_id: Some(id),
            owner: Some(stopped.owner),
            message: &format!("automation \"{}\" was paused: its filters take too long", stopped.name),
            detail: Some(&format!("Filter of trigger \"{}\": {}.", stopped.trigger, stopped.why.told())),
            ..Default::default()
        });
        tell_paused(ACTOR, id, &details);
        STATE.with_borrow_mut(|state| {
            state.stopped.remove(&id);
            state.failures.remove(&id);
        });
    }
}
