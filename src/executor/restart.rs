//! Mode `restart` while the run that is to be restarted executes: runs that share an ordering key start one after the
//! other, but the next one need not wait for the end of a statement that it is going to interrupt.
use automation_core::definition::Mode;
use automation_core::ids::RunId;

use super::claimer::Claimer;
use crate::definitions::versions;
use crate::signal::running;
use crate::store::dispatches::{self, Dispatch};

/// The run before this dispatch in its order, if it is the only one, if another executor executes it at this moment,
/// and if the dispatch starts a run of an automation in mode `restart`. The gates decide whether both runs have the
/// same key.
pub fn only_before(claimer: &Claimer, dispatch: &Dispatch, before: &[i64]) -> Option<RunId> {
    let [only] = before else { return None };
    let version = versions::get(dispatch.version_id).ok()?;
    if !claimer.is_worker || !dispatch.reason.starts() || version.program.limits.mode != Mode::Restart {
        return None;
    }
    let earlier = dispatches::one(claimer.owner, *only)?;
    running::executes_elsewhere(earlier.run_id).then_some(earlier.run_id)
}
