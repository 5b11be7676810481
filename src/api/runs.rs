//! Starting and stopping runs by hand.
use automation_core::check;
use automation_core::condition::Condition;
use automation_core::expr::{Budget, FixedScope};
use automation_core::ids::RunId;
use automation_core::value::Value;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::definitions::by_name::Named;
use crate::definitions::scope::instant;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::clock;
use crate::pg::identity;
use crate::pg::jsonb::Jsonb;
use crate::pg::text::Text;
use crate::provenance;
use crate::runs::cancel::cancel;
use crate::runs::order::order;
use crate::store::runs;

/// Starts a run by hand. The run's id is known at once; it starts when this transaction has committed.
#[pg_extern]
fn start_run(
    name: Option<Text>,
    payload: default!(Option<Jsonb>, "'{}'"),
    tenant: default!(Option<Text>, "NULL"),
) -> Result<Option<i64>, ErrorReport> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    let (Some(name), Some(payload)) = (name, payload) else { return Ok(None) };
    let named = Named { function: "start_run", name, tenant };
    order(&named, &payload.0.to_string(), None).map(|run| Some(run.0)).or_report()
}

/// Cancels a run that has not ended, with the runs it waits for; of one that executes, the statement under way is
/// interrupted and its effects are rolled back. True if this call did it.
#[pg_extern]
fn cancel_run(id: i64) -> Result<bool, ErrorReport> {
    cancel(RunId(id)).or_report()
}

/// Cancels every run of yours, executing, waiting or queued, for which a condition over `run` holds. Returns how many.
#[pg_extern(name = "cancel_run")]
fn cancel_runs(filter: Text) -> Result<i64, ErrorReport> {
    let filter = &*filter;
    cancel_matching(filter).or_report()
}

fn cancel_matching(filter: &str) -> EngineResult<i64> {
    let condition = Condition::parse_text(filter).map_err(|error| EngineError::expression("filter", filter, &error))?;
    if let Some(error) = check::check_condition(&condition, &check::Names::of_runs()).first() {
        return Err(EngineError::expression("filter", filter, error));
    }
    let user = identity::current_user();
    let mut cancelled = 0;
    for (id, owner, fields) in runs::not_ended() {
        if !identity::has_role(user, owner) {
            continue;
        }
        let run = Value::from_json(&fields).unwrap_or_default();
        let scope = FixedScope::new(Value::object(vec![("run".into(), run)]), instant(clock::engine_now()));
        let holds = condition
            .holds(&scope, &mut Budget::default())
            .map_err(|error| EngineError::expression("filter", filter, &error))?;
        if holds && provenance::run() != Some(id) && cancel(id)? {
            cancelled += 1;
        }
    }
    Ok(cancelled)
}
