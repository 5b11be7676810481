//! Finds the runs of a batch that another session is cancelling, or has cancelled before they were queued.
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use automation_core::ids::{EventId, RunId};

use super::bulk::{self, Standing};
use super::claimer::Claimer;
use crate::event_log::events::Event;
use crate::pg::identity;
use crate::pg::key_lock::{self, Sort};
use crate::runs::end::job_of;
use crate::store;
use crate::store::dispatches::{Dispatch, Reason};
use crate::store::live::LiveRun;

/// Runs started by hand for which cancel_run() was called before they were queued, and rows of bulk jobs that are being
/// cancelled.
#[derive(Default)]
pub struct Cancelled {
    /// Runs whose cancellation is committed.
    pub runs: HashSet<RunId>,
    /// Runs whose cancelling transaction is still open; they stay queued until it ends.
    pub undecided: HashSet<RunId>,
}

impl Cancelled {
    /// `events` are the events that the dispatches name, `live` the runs that they wake.
    pub fn of<'l>(
        claimer: &mut Claimer,
        claimed: &[Dispatch],
        events: &HashMap<EventId, Rc<Event>>,
        live: impl Iterator<Item = &'l LiveRun>,
    ) -> Cancelled {
        let ordered =
            claimed.iter().filter(|dispatch| dispatch.reason == Reason::Manual).map(|dispatch| dispatch.run_id);
        // The locks are tested before the requests are read: the request of a transaction that ends in between is
        // found, or its run counts as undecided.
        let (free, undecided): (Vec<RunId>, Vec<RunId>) = ordered.partition(|run| key_lock::is_free(Sort::Run, run.0));
        let manual = claimed.iter().filter(|dispatch| dispatch.reason == Reason::Manual);
        let begun = manual.filter_map(|dispatch| Some((dispatch.run_id, row_of(events.get(&dispatch.event_id)?)?)));
        let rows = begun.chain(live.filter_map(|run| Some((run.id, job_of(run)?))));
        let undecided_rows = rows.filter(|(_, job)| bulk::standing(claimer, *job) == Standing::Undecided);
        let undecided_rows: Vec<RunId> = undecided_rows.map(|(run, _)| run).collect();
        Cancelled {
            runs: identity::as_engine(|| store::runs::take_cancelled(&free)).into_iter().collect(),
            undecided: undecided.into_iter().chain(undecided_rows).collect(),
        }
    }
}

/// The bulk job for whose row an event orders a run.
fn row_of(event: &Event) -> Option<i64> {
    // Most orders belong to no job: those are not parsed here.
    event.next.as_deref().filter(|order| order.contains("\"bulk\""))?;
    event.start()?.item().map(|item| item.job)
}
