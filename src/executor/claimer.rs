//! The executor, or the session that drives the queue by hand, that claims dispatches: what it knows of the queue, and what the batch
//! under way has done so far that later runs of the batch must know.
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use automation_core::ids::{AutomationId, RunId};
use automation_core::sharing::Apart;
use pgrx::pg_sys;

use super::bulk::Standing;
use crate::runs::batch_state;
use crate::signal::shmem::{self, shared};
use crate::store::gates::Refused;

/// Who claims, and what it knows about the queue.
#[derive(Debug)]
pub struct Claimer {
    pub owner: pg_sys::Oid,
    /// True in an executor, which is logged in as the owner; false where another session drives the queue by hand.
    pub is_worker: bool,
    /// Every dispatch of the owner below this id is done. A hint that spares the scan the dead rows that vacuum cannot
    /// remove while somebody holds an old snapshot.
    pub(super) floor: i64,
    /// The floor to use if this batch commits.
    pub(super) next_floor: i64,
    returned: u64,
    /// The first dispatch of the current batch.
    pub head: Option<i64>,
    /// More than one run shares the transaction under way.
    pub shares: bool,
    /// Automations with a run that was too slow to share a transaction.
    pub apart: Apart,
    /// Waits armed in the transaction under way, to be looked at once more after its commit.
    pub armed: Vec<(RunId, i32)>,
    /// Waits (0: the run itself) about which nothing can be said while somebody else holds what they depend on: whatever
    /// named them stays queued.
    pub unsettled: HashSet<(RunId, i32)>,
    /// Wake-ups that only the sweep found, in the transaction under way.
    pub rescued: i64,
    /// Keys of automations about which a run of the batch has decided something: (automation, key).
    pub touched: HashSet<(AutomationId, String)>,
    /// How many runs have started in the batch, by the same.
    pub entered: HashMap<(AutomationId, String), usize>,
    /// Limits under which the transaction has a place.
    pub places: HashSet<i64>,
    /// Automations that were paused because they are executed too often.
    pub paused: HashSet<AutomationId>,
    /// What gates have refused without a run to show for it.
    pub refused: HashMap<Refused, i64>,
    /// Triggers (automation, number) that began to be held in it.
    pub held: Vec<(AutomationId, i16)>,
    /// Dispatches that are not to be tried in this turn: they are tried again later.
    pub put_off: HashSet<i64>,
    /// The run that another executor executes and behind which the dispatch in hand is ordered: it can only restart it.
    pub behind: Option<RunId>,
    /// A run that another executor executed was ended for one that restarts it: the batch ends, so that this is committed.
    pub restarted: bool,
    /// The bulk jobs whose rows are in the batch.
    pub jobs: HashMap<i64, Standing>,
}

impl Claimer {
    pub fn new(owner: pg_sys::Oid, is_worker: bool) -> Self {
        let returned = shared().claims_returned.load(Ordering::Acquire);
        Claimer {
            owner,
            is_worker,
            floor: 0,
            next_floor: 0,
            returned,
            head: None,
            shares: false,
            apart: Apart::default(),
            armed: Vec::new(),
            unsettled: HashSet::new(),
            rescued: 0,
            touched: HashSet::new(),
            entered: HashMap::new(),
            places: HashSet::new(),
            paused: HashSet::new(),
            refused: HashMap::new(),
            held: Vec::new(),
            put_off: HashSet::new(),
            behind: None,
            restarted: false,
            jobs: HashMap::new(),
        }
    }

    /// A batch of anybody's was given back: what is below the floor may not be done after all.
    pub(super) fn refresh(&mut self) {
        let returned = shared().claims_returned.load(Ordering::Acquire);
        if returned != self.returned {
            self.returned = returned;
            self.floor = 0;
        }
        self.next_floor = self.floor;
    }

    /// From where on the queue is to be read.
    pub fn floor(&mut self) -> i64 {
        self.refresh();
        self.floor
    }

    /// A batch begins: nothing is in hand yet.
    pub(super) fn begin(&mut self) {
        batch_state::begin();
        self.unsettled.clear();
        self.touched.clear();
        self.entered.clear();
        self.places.clear();
        self.paused.clear();
        self.refused.clear();
        self.jobs.clear();
        self.restarted = false;
    }

    /// Remembers how far this process has claimed, for whoever comes after it should it die.
    pub(super) fn claimed_up_to(&mut self, id: i64) {
        if self.is_worker
            && let Some(slot) = shared().my_executor()
        {
            slot.claimed.fetch_max(id, Ordering::AcqRel);
        }
    }

    fn set_floor(&mut self, floor: i64) {
        self.floor = floor;
        if self.is_worker
            && let Some(slot) = shared().my_executor()
        {
            slot.set_floor(floor, self.returned);
        }
    }

    /// The batch's transaction has committed.
    pub fn committed(&mut self) {
        self.set_floor(self.next_floor);
        let rescued = std::mem::take(&mut self.rescued);
        if rescued > 0
            && let Some(home) = shared().database(shmem::my_database())
        {
            home.rescued.fetch_add(rescued, Ordering::AcqRel);
        }
    }

    /// The batch's transaction was rolled back.
    pub fn aborted(&mut self) {
        self.set_floor(0);
        self.armed.clear();
        self.held.clear();
        self.rescued = 0;
    }
}
