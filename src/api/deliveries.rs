//! redeliver(): sends a message once more.
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::{clock, identity};
use crate::store::{log, outbox};

/// Sends a message of yours once more. Its receiver sees the same message id. Returns the new delivery.
#[pg_extern(sql = false)]
fn redeliver(id: Option<i64>) -> Result<i64, ErrorReport> {
    id.ok_or_else(|| EngineError::null_argument("id")).and_then(again).or_report()
}

fn again(id: i64) -> EngineResult<i64> {
    let unknown = || {
        EngineError::undefined(format!("delivery {id} does not exist"))
            .hint("List the deliveries you may see with: SELECT id, automation, state FROM automation.deliveries.")
    };
    let (owner, state) = outbox::find(id).ok_or_else(unknown)?;
    if !identity::has_role(identity::current_user(), owner) {
        return Err(unknown());
    }
    if matches!(state.as_str(), "queued" | "sending") {
        return Err(EngineError::wrong_state(format!("delivery {id} is still on its way"))
            .detail(format!("It is {state}."))
            .hint("See next_at of automation.deliveries for when it is sent next."));
    }
    let new = outbox::queue_again(id, clock::now()).ok_or_else(unknown)?;
    log::audit_of(Some(owner), "delivery.redelivered", "", &serde_json::json!({ "delivery": id, "as": new }));
    Ok(new)
}
