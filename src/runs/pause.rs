//! Activating and pausing an automation, for all or for one tenant: the effects on its schedules, holds, jobs and
//! frozen runs, and the audit rows and events that report it.
use automation_core::gate::apart;
use automation_core::ids::AutomationId;
use automation_core::lifecycle::Status;
use automation_core::order::Order;

use super::{bulk, holds};
use crate::definitions::schedules;
use crate::definitions::versions::compile_stored;
use crate::event_log::events::{NewEvent, Op, append_event, append_move};
use crate::pg::key_lock::{Sort, hash, try_take};
use crate::pg::snapshot;
use crate::provenance;
use crate::store::automations::{self, Automation};
use crate::store::{gates, live, log, tenant_pauses};

/// Takes the lock on the executions of an automation, or of a tenant if tenants are counted apart. The transaction that
/// pauses the automation for the tenant holds that lock as well.
pub fn lock_executions(automation: AutomationId, tenant: Option<&str>) -> bool {
    try_take(Sort::Executions, hash(&[&automation.to_string(), tenant.unwrap_or_default()]))
}

/// Pauses an automation, or only for a tenant, with an audit row and an event. False if the automation is not active,
/// or another session is changing it.
pub fn pause_by_system(
    actor: &str,
    automation: AutomationId,
    tenant: Option<&str>,
    details: &serde_json::Value,
) -> bool {
    let details = apart::details(details.clone(), tenant);
    match tenant {
        None => {
            let paused = automations::pause_by_system(automation, &details);
            if paused {
                tell_paused(actor, automation, &details);
            }
            paused
        }
        Some(tenant) => {
            let Some(added) = tenant_pauses::add(automation, tenant, &details) else { return false };
            if let Some(known) = automations::find(automation).filter(|_| added) {
                log::audit_as(actor, Some(known.owner), "automation.paused", &known.name, &details);
                tell_paused_for(&known, tenant, actor);
            }
            true
        }
    }
}

/// Completes the pausing of an automation by the engine: audit row, event, schedules and holds.
pub fn tell_paused(actor: &str, automation: AutomationId, details: &serde_json::Value) {
    let Some(known) = automations::find(automation) else { return };
    let mut audited = details.clone();
    if let Some(tenant) = &known.tenant {
        audited["tenant"] = tenant.as_str().into();
    }
    log::audit_as(actor, Some(known.owner), "automation.paused", &known.name, &audited);
    let told = serde_json::json!({ "from": "active", "to": "paused", "by": actor });
    announce(&known, "automation.paused", told);
    schedules::rest(known.id);
    holds::drop_inactive(known.id, &format!("it was paused by {actor}"));
}

/// Completes a change of status, made by a user or by a definition: an audit row, an event, schedules, holds, and runs
/// that go on.
pub fn tell(known: &Automation, from: Status, to: Status, action: &str) {
    let details = serde_json::json!({ "from": from.word(), "to": to.word() });
    known.audit(action, details.clone());
    match to {
        Status::Active => {
            gates::forget_failures(known.id);
            // Activating the automation is a person's decision in view of the executions so far: they do not count any
            // more.
            gates::forget_executions(known.id);
            go_on(known.id);
            // A version that cannot be read is left out by the router as well, which logs that.
            if let Ok(program) = compile_stored(&known.document) {
                schedules::follow(known.id, &program, true);
            }
        }
        Status::Paused | Status::Draft => {
            schedules::rest(known.id);
            holds::drop_inactive(known.id, &format!("it was made {}", to.word()));
        }
    }
    announce(known, action, details);
}

/// Publishes that an automation's status has changed.
pub fn announce(known: &Automation, action: &str, mut details: serde_json::Value) {
    details["automation"] = known.name.as_str().into();
    if let Some(own) = provenance::automation() {
        details["chain"] = serde_json::json!([own]);
    }
    append_event(&NewEvent {
        op: Some(Op::Emitted),
        kind: Some("automation"),
        entity_id: Some(known.name.as_bytes()),
        topic: Some(action),
        tenant: known.tenant.as_deref().map(str::as_bytes),
        payload: Some(details.to_string().as_bytes()),
        role: Some(known.owner),
        ..Default::default()
    });
}

/// Lets bulk jobs and runs that a pause has stopped go on.
pub fn go_on(automation_id: AutomationId) {
    bulk::go_on(automation_id);
    thaw(automation_id);
}

/// Lets runs that were frozen by `on_pause => 'freeze'` go on.
pub fn thaw(automation_id: AutomationId) {
    // The executor that froze a run held the row of the automation, so all frozen runs are visible by now, unless the
    // snapshot of this transaction is older.
    if live::frozen(automation_id).is_empty() && !snapshot::is_fixed() {
        return;
    }
    append_move(&Order::Thaw { automation_id });
}

/// Publishes an event of the tenant for which an automation was paused, and ends the holds of that tenant.
pub fn tell_paused_for(known: &Automation, tenant: &str, actor: &str) {
    let told = serde_json::json!({ "from": "active", "to": "paused", "by": actor, "tenant": tenant });
    announce(&for_tenant(known, tenant), "automation.paused", told);
    holds::drop_inactive_for(known.id, tenant, &format!("it was paused for tenant \"{tenant}\" by {actor}"));
}

/// The automation as the tenant's events name it.
pub fn for_tenant(known: &Automation, tenant: &str) -> Automation {
    Automation { tenant: Some(tenant.to_owned()), ..known.clone() }
}
