//! Pausing an automation without a tenant for one tenant, and starting it again.
use automation_core::lifecycle::Status;

use crate::definitions::by_name::typed;
use crate::definitions::tenant_view::check_tenant;
use crate::error::{EngineError, EngineResult};
use crate::pg::{identity, names};
use crate::runs::pause::{announce, for_tenant, go_on, tell_paused_for};
use crate::store::automations::Automation;
use crate::store::{gates, tenant_pauses};

/// Pauses or resumes the automation for a tenant. Returns the word by which the functions that change a status report
/// the change.
pub fn transition(known: &Automation, tenant: &str, to: Status) -> EngineResult<&'static str> {
    if known.status != Status::Active.word() {
        return Err(EngineError::wrong_state(format!(
            "automation \"{}\" is {} for all tenants",
            known.name, known.status
        ))
        .hint(format!("{}.", typed("activate", &known.name, None))));
    }
    check_tenant(Some(tenant))?;
    let user = names::role_name(identity::current_user()).unwrap_or_default();
    let changed = match to {
        Status::Active => resume(known, Some(tenant)),
        Status::Paused => pause(known, tenant, &user),
        Status::Draft => {
            return Err(EngineError::wrong_state("an automation cannot be a draft for one tenant")
                .detail(format!("Automation \"{}\" has no tenant: it is for all of them.", known.name))
                .hint(format!("{}.", typed("revert_to_draft", &known.name, None))));
        }
    };
    if changed {
        return Ok("transitioned");
    }
    let action = if to == Status::Active { "automation.resumed" } else { "automation.paused" };
    known.audit(action, serde_json::json!({ "to": to.word(), "tenant": tenant, "no_op": true }));
    Ok("recorded")
}

/// Pauses the automation for a tenant. True if it was not paused for that tenant before.
fn pause(known: &Automation, tenant: &str, user: &str) -> bool {
    if tenant_pauses::is_paused(known.id, Some(tenant)) {
        return false;
    }
    let details = serde_json::json!({ "disabled_by": "user", "blame": user, "tenant": tenant });
    if tenant_pauses::add(known.id, tenant, &details) != Some(true) {
        return false;
    }
    known.audit("automation.paused", serde_json::json!({ "from": "active", "to": "paused", "tenant": tenant }));
    tell_paused_for(known, tenant, user);
    true
}

/// Starts the automation again for a tenant, or for all tenants for which it is paused. True if it was paused for any
/// of them.
pub fn resume(known: &Automation, tenant: Option<&str>) -> bool {
    let resumed = tenant_pauses::remove(known.id, tenant);
    for tenant in &resumed {
        gates::forget_tenant(known.id, tenant);
        let details = serde_json::json!({ "from": "paused", "to": "active", "tenant": tenant });
        known.audit("automation.resumed", details.clone());
        announce(&for_tenant(known, tenant), "automation.resumed", details);
    }
    if !resumed.is_empty() {
        go_on(known.id);
    }
    !resumed.is_empty()
}
