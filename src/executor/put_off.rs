//! Records runs that are tried again and again because they cannot get a lock, cannot serialize or deadlock.
use std::time::Duration;

use super::batch::fail;
use super::claimer::Claimer;
use crate::definitions::versions;
use crate::pg::catch::PgError;
use crate::store::dispatches;
use crate::store::log::{self, Entry};

/// Notes that a claimed dispatch could not be executed for the time `waited`. A run that has not begun fails if that is
/// longer than its automation's timeout; a run that was woken has a timer for its timeout. If `tell`, an entry goes to
/// the log.
pub fn put_off(claimer: &mut Claimer, dispatch_id: i64, waited: Duration, tell: bool, error: &PgError) {
    let Some(dispatch) = dispatches::one(claimer.owner, dispatch_id) else { return };
    versions::load(std::iter::once(dispatch.version_id));
    let timeout = versions::get(dispatch.version_id).ok().and_then(|version| version.program.timeout);
    if dispatch.reason.starts() && timeout.is_some_and(|limit| waited.as_micros() as i64 >= limit) {
        let error = PgError {
            detail: Some(format!(
                "It could not begin for {} s: {} ({}).",
                waited.as_secs(),
                error.message,
                error.sqlstate
            )),
            ..PgError::new("57014", "the run timed out")
        };
        return fail(claimer, dispatch_id, "timed_out", &error);
    }
    if tell {
        let message = format!("the run is tried again until it gets through: {} ({})", error.message, error.sqlstate);
        log::info(&Entry {
            code: "tried_again",
            automation_id: Some(dispatch.automation_id),
            owner: Some(claimer.owner),
            run_id: Some(dispatch.run_id),
            message: &message,
            ..Default::default()
        });
    }
}
