//! Quotas: how many automations and subscriptions one role may have, because they cost all roles. The settings are
//! those of the session that asks for one more.
use pgrx::pg_sys;

use crate::error::{EngineError, EngineResult};
use crate::gucs;
use crate::pg::key_lock::{Sort, wait_for};
use crate::pg::names;
use crate::store::{automations, subscriptions};

/// Refuses one automation more than an owner may have. Sessions that define automations at the same time may together
/// exceed the quota.
pub fn room_for_automation(owner: pg_sys::Oid) -> EngineResult<()> {
    let Some(most) = gucs::max_automations_per_role() else { return Ok(()) };
    refuse_over("automations", owner, automations::owned_by(owner), most, "automation_engine.max_automations_per_role")
}

/// Refuses one subscription more than a role may have.
pub fn room_for_subscription(role: pg_sys::Oid, pattern: &str, channel: &str) -> EngineResult<()> {
    let Some(most) = gucs::max_subscriptions_per_role() else { return Ok(()) };
    // Sessions of one role subscribe one after the other: none could see the uncommitted subscriptions of another.
    wait_for(Sort::Subscriptions, i64::from(role.to_u32()));
    let has = subscriptions::others(role, pattern, channel);
    refuse_over("subscriptions", role, has, most, "automation_engine.max_subscriptions_per_role")
}

fn refuse_over(what: &str, role: pg_sys::Oid, has: i64, most: u32, setting: &str) -> EngineResult<()> {
    if has < i64::from(most) {
        return Ok(());
    }
    Err(EngineError::over_quota(what, &names::role_name(role).unwrap_or_default(), has, most, setting))
}
