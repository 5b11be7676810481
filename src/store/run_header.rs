//! What every run has, whichever table its row is in: a dispatch, a hold, a live run, an ended run.
use automation_core::ids::{AutomationId, EventId, RunId, VersionId};
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::Arg;

/// The part of a run that never changes with its state, but for the start that a queued run has later.
#[derive(Clone, Debug)]
pub struct RunHeader {
    pub id: RunId,
    /// The event that the run is about.
    pub event_id: EventId,
    pub event_at: Micros,
    pub started_at: Micros,
    /// The run that started it and waits for it.
    pub parent: Option<RunId>,
    /// The role whose rights its steps have.
    pub owner: pg_sys::Oid,
    pub automation_id: AutomationId,
    pub version_id: VersionId,
    /// The number of the trigger, -1 for a run started by hand.
    pub trigger_no: i16,
    /// How many runs before it led to its event.
    pub depth: i16,
    pub kind: Option<String>,
    pub entity_id: Option<String>,
    /// The value of the automation's key expression.
    pub key: Option<String>,
    /// The key that runs have in common which exclude each other.
    pub mode_key: Option<String>,
    pub tenant: Option<String>,
}

/// The numbers of runs, for a statement.
pub fn run_numbers(runs: &[RunId]) -> Arg {
    let numbers: Vec<i64> = runs.iter().map(|run| run.0).collect();
    Arg::int8s(&numbers)
}

/// Makes the fields of the header readable as those of the type that has it.
macro_rules! has_run_header {
    ($($type:ty),*) => {$(
        impl std::ops::Deref for $type {
            type Target = $crate::store::run_header::RunHeader;

            fn deref(&self) -> &Self::Target {
                &self.header
            }
        }

        impl std::ops::DerefMut for $type {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.header
            }
        }
    )*};
}
pub(crate) use has_run_header;
