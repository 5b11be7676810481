//! The process that claims dispatches, which is an executor or a session that drives the queue by hand: its position in
//! the queue, and the effects of the current batch that later runs of the batch must know.
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use automation_core::ids::{AutomationId, RunId, WaitNo};
use automation_core::sharing::Apart;
use pgrx::pg_sys;

use super::bulk::Standing;
use crate::runs::batch_state;
use crate::signal::shmem::{self, shared};
use crate::store::gates::Refused;

/// An executor or session that claims dispatches, with its knowledge of the queue and of the current batch.
#[derive(Debug)]
pub struct Claimer {
    pub owner: pg_sys::Oid,
    /// True in an executor, which is logged in as the owner; false where another session drives the queue by hand.
    pub is_worker: bool,
    /// Every dispatch of the owner below this id is done. A hint that lets the scan skip the dead rows that vacuum
    /// cannot remove while another transaction holds an old snapshot.
    pub(super) floor: i64,
    /// The floor to use if this batch commits.
    pub(super) next_floor: i64,
    returned: u64,
    /// The first dispatch of the current batch.
    pub head: Option<i64>,
    /// More than one run shares the current transaction.
    pub shares: bool,
    /// Automations with a run that was too slow to share a transaction.
    pub apart: Apart,
    /// Waits armed in the current transaction, to be evaluated once more after its commit.
    pub armed: Vec<(RunId, WaitNo)>,
    /// Waits (0: the run itself) that could not be decided because a row is locked by another transaction; their
    /// dispatches stay queued.
    pub unsettled: HashSet<(RunId, WaitNo)>,
    /// Number of wake-ups that only the sweep found, in the current transaction.
    pub rescued: i64,
    /// Keys (automation, key) that a run of the batch has locked, in modes other than `parallel`: its effect on them is
    /// not in the tables yet.
    pub touched: HashSet<(AutomationId, String)>,
    /// How many runs have started in the batch in mode `parallel`, by (automation, key).
    pub entered: HashMap<(AutomationId, String), usize>,
    /// Limits of which the current transaction occupies a place.
    pub places: HashSet<i64>,
    /// Automations that were paused in the batch because they were executed too often.
    pub paused: HashSet<AutomationId>,
    /// Refusals of gates, counted by automation, trigger and reason.
    pub refused: HashMap<Refused, i64>,
    /// Triggers (automation, number) for which the batch has begun a hold.
    pub held: Vec<(AutomationId, i16)>,
    /// Dispatches that are not to be tried in this turn: they are tried again later.
    pub put_off: HashSet<i64>,
    /// The run that another executor executes and behind which the current dispatch is ordered: the dispatch can only
    /// restart it.
    pub behind: Option<RunId>,
    /// A run that another executor executed was ended for a run that restarts it: the batch ends, so that this is
    /// committed.
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

    /// Resets the floor if a batch of any claimer was rolled back, or dispatches were queued at lower places, since the
    /// last call: a dispatch below the floor may not be done after all.
    pub(super) fn refresh(&mut self) {
        let returned = shared().claims_returned.load(Ordering::Acquire);
        if returned != self.returned {
            self.returned = returned;
            self.floor = 0;
        }
        self.next_floor = self.floor;
    }

    /// The id from which the queue is to be read.
    pub fn floor(&mut self) -> i64 {
        self.refresh();
        self.floor
    }

    /// A batch begins: forgets the state of the batch before.
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

    /// Publishes the highest id that this process has claimed, for the executor that comes after it should this process
    /// die.
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
