//! Ordering a run by hand or by a step: the order goes through the event log, and the run starts when the transaction
//! has committed.
use automation_core::by_name::call;
use automation_core::ids::{EventId, RunId};
use automation_core::order::Start;

use crate::definitions::by_name::{Named, typed};
use crate::definitions::tenant_view::check_tenant;
use crate::error::{EngineError, EngineResult};
use crate::event_log::events::{NewEvent, Op, append_event};
use crate::pg::append::next_id;
use crate::pg::catch::PgError;
use crate::pg::server_text;
use crate::provenance;
use crate::store::automations::Automation;
use crate::store::tenant_pauses;

/// Starts a run for a step of another run, which waits for its end.
pub fn start_child(name: &str, payload: &str, parent: RunId) -> Result<RunId, PgError> {
    server_text::check(payload)?;
    let named = Named { function: "start_run", name, tenant: None };
    order(&named, payload, Some(parent)).map_err(|error| error.to_pg())
}

/// Finds an automation that the caller may start now.
pub fn startable(named: &Named<'_>) -> EngineResult<Automation> {
    check_tenant(named.tenant.filter(|tenant| !tenant.is_empty()))?;
    let known = named.find_for_tenant()?;
    let own = provenance::tenant();
    let tenant = named.tenant.filter(|tenant| !tenant.is_empty()).or(own.as_deref());
    if known.status == "active" {
        check_paused(&known, tenant)?;
        return Ok(known);
    }
    Err(EngineError::wrong_state(format!("cannot start automation \"{}\"", known.name))
        .detail(format!("It is {}.", known.status))
        .hint(format!("{}.", typed("activate", &known.name, known.tenant.as_deref()))))
}

/// Refuses a start for a tenant for which an automation of all tenants is paused.
pub fn check_paused(known: &Automation, tenant: Option<&str>) -> EngineResult<()> {
    let Some(tenant) = tenant.filter(|tenant| tenant_pauses::is_paused(known.id, Some(tenant))) else { return Ok(()) };
    Err(EngineError::wrong_state(format!("cannot start automation \"{}\" for tenant \"{tenant}\"", known.name))
        .detail("It is paused for that tenant, see automation.paused_tenants.")
        .hint(format!("{}.", call("resume", &known.name, Some(tenant)))))
}

/// Orders a run: the router starts it when this transaction has committed. `parent` is the run whose step waits for it.
pub fn order(named: &Named<'_>, payload: &str, parent: Option<RunId>) -> EngineResult<RunId> {
    let known = startable(named)?;
    let run_id = RunId(next_id("run_id_seq"));
    let start = Start { automation_id: known.id, version_id: known.version_id, run_id, parent, ..Default::default() };
    let given = named.tenant.filter(|tenant| !tenant.is_empty());
    let (name, theirs) = (known.name.as_str(), known.tenant.as_deref().or(given));
    let own = provenance::tenant();
    if let (Some(own), Some(theirs)) = (own.as_deref(), theirs)
        && own != theirs
    {
        return Err(EngineError::not_allowed(format!("cannot start automation \"{name}\" of tenant \"{theirs}\""))
            .detail(format!("The run that starts it belongs to tenant \"{own}\".")));
    }
    place(name, theirs.or(own.as_deref()), start, Some(payload));
    Ok(run_id)
}

/// Puts an order to start a run into the log. Returns the order's number.
pub fn place(name: &str, tenant: Option<&str>, start: Start, payload: Option<&str>) -> EventId {
    let (topic, order) = (format!("automation.invocation.{name}"), start.order().encode());
    append_event(&NewEvent {
        op: Some(Op::Started),
        topic: Some(&topic),
        tenant: tenant.map(str::as_bytes),
        next: Some(order.as_bytes()),
        payload: payload.map(str::as_bytes),
        ..Default::default()
    })
}
