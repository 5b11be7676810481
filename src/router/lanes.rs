//! Gives new dispatches their places in the queue, so that no tenant has to wait for all the dispatches that another
//! tenant has queued (see `automation_core::fairness`). The state of the lanes is kept in memory; a router that finds
//! that another router has given places since reads it anew.
use std::cell::RefCell;
use std::collections::HashMap;

use automation_core::fairness::{self, Lanes};
use pgrx::pg_sys;

use super::definitions;
use crate::pg::append::{last_drawn, skip_ids};
use crate::pg::key_lock::{self, Sort};
use crate::store::dispatches::{self, NewDispatch, Reason};

/// The sequence whose value is the last turn in which places were given.
const TURNS: &str = "dispatch_id_seq";

/// The lanes of one owner and priority.
struct Known {
    lanes: Lanes,
    /// Every dispatch below this id is done.
    floor: i64,
    /// The highest place that this process has given.
    highest: Option<i64>,
}

#[derive(Default)]
struct State {
    /// The last turn that any process had given when this process gave places last.
    given: i64,
    known: HashMap<(pg_sys::Oid, i32), Known>,
}

thread_local!(static STATE: RefCell<State> = RefCell::new(State::default()));

/// Gives each dispatch its place in the queue of its owner.
pub fn place(rows: &mut [NewDispatch]) {
    if rows.is_empty() {
        return;
    }
    // One process at a time: drain() and the conductor may give places at the same time, and no two rows may have the
    // same place.
    let placing = key_lock::wait_for_a_while(Sort::Places, 0);
    definitions::with_current(|definitions| {
        STATE.with_borrow_mut(|state| {
            // No turn that any process gave before is higher than this.
            let given = last_drawn(TURNS).unwrap_or_default();
            if given != state.given {
                state.known.clear();
            }
            let (mut below, mut top) = (false, given + 1);
            let mut served: Vec<(pg_sys::Oid, i32)> = Vec::new();
            for row in rows {
                let active = definitions.by_id(row.automation_id);
                let priority = active.map_or(0, |active| active.program.limits.priority);
                let key = (row.owner, priority);
                let known = state.known.entry(key).or_insert_with(|| Known::new(row.owner, priority, given));
                let lane = fairness::lane(row.tenant.as_deref());
                if known.lanes.is_shared(lane) && !served.contains(&key) {
                    known.look(row.owner, priority);
                    served.push(key);
                }
                row.id = match row.reason {
                    // Events that may have broken the hold come first, in all lanes.
                    Reason::HoldOver => known.lanes.place_last(),
                    _ => known.lanes.place(lane, row.behind),
                };
                top = top.max(fairness::turn(row.id));
                below |= known.highest.is_none_or(|highest| row.id <= highest);
                known.highest = known.highest.max(Some(row.id));
            }
            skip_ids(TURNS, top);
            state.given = top;
            if below {
                // Executors must discard their floors: this dispatch may be below them.
                crate::signal::at_commit::return_claims_at_commit();
            }
        });
    });
    drop(placing);
}

impl Known {
    fn new(owner: pg_sys::Oid, priority: i32, given: i64) -> Known {
        let (from, to) = fairness::class(priority);
        let highest = dispatches::highest(owner, from, to);
        Known { lanes: Lanes::new(priority, highest, given), floor: from, highest: None }
    }

    /// Reads the lowest place in the queue: the turn that is being served.
    fn look(&mut self, owner: pg_sys::Oid, priority: i32) {
        let (_, to) = fairness::class(priority);
        let lowest = dispatches::lowest(owner, self.floor, to);
        self.floor = lowest.unwrap_or(self.floor);
        self.lanes.serve(lowest);
    }
}
