//! Ordering a run by hand or by a step: the order goes through the event log, and the run starts when the transaction has committed.
use automation_core::by_name::call;

use crate::definitions::by_name::{Named, typed};
use crate::definitions::tenant_view::check_tenant;
use crate::error::{EngineError, EngineResult};
use crate::event_log::events::{NewEvent, Op, append_event};
use crate::pg::append::next_id;
use crate::pg::catch::PgError;
use crate::provenance;
use crate::store::automations::Automation;
use crate::store::tenant_pauses;

/// Starts a run for a step of another run, which waits for its end.
pub fn start_child(name: &str, payload: &str, parent: i64) -> Result<i64, PgError> {
    let named = Named { function: "start_run", name, tenant: None };
    order(&named, payload, serde_json::json!({ "parent": parent })).map_err(|error| error.to_pg())
}

/// An automation that the caller may start now.
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

/// An automation that is for all tenants may be paused for one.
pub fn check_paused(known: &Automation, tenant: Option<&str>) -> EngineResult<()> {
    let Some(tenant) = tenant.filter(|tenant| tenant_pauses::is_paused(known.id, Some(tenant))) else { return Ok(()) };
    Err(EngineError::wrong_state(format!("cannot start automation \"{}\" for tenant \"{tenant}\"", known.name))
        .detail("It is paused for that tenant, see automation.paused_tenants.")
        .hint(format!("{}.", call("resume", &known.name, Some(tenant)))))
}

/// Orders a run: the router starts it when this transaction has committed.
pub fn order(named: &Named<'_>, payload: &str, extra: serde_json::Value) -> EngineResult<i64> {
    let known = startable(named)?;
    let run_id = next_id("run_id_seq");
    let mut order = serde_json::json!({ "automation_id": known.id, "version_id": known.version_id, "run_id": run_id });
    if let (Some(order), serde_json::Value::Object(extra)) = (order.as_object_mut(), extra) {
        order.extend(extra);
    }
    let given = named.tenant.filter(|tenant| !tenant.is_empty());
    let (name, theirs) = (known.name.as_str(), known.tenant.as_deref().or(given));
    let own = provenance::tenant();
    if let (Some(own), Some(theirs)) = (own.as_deref(), theirs)
        && own != theirs
    {
        return Err(EngineError::not_allowed(format!("cannot start automation \"{name}\" of tenant \"{theirs}\""))
            .detail(format!("The run that starts it belongs to tenant \"{own}\".")));
    }
    place(name, theirs.or(own.as_deref()), &order, Some(payload));
    Ok(run_id)
}

/// Puts an order to start a run into the log. Returns the order's number.
pub fn place(name: &str, tenant: Option<&str>, order: &serde_json::Value, payload: Option<&str>) -> i64 {
    let (topic, order) = (format!("automation.invocation.{name}"), order.to_string());
    append_event(&NewEvent {
        op: Some(Op::Started),
        topic: Some(&topic),
        tenant: tenant.map(str::as_bytes),
        next: Some(order.as_bytes()),
        payload: payload.map(str::as_bytes),
        ..Default::default()
    })
}
