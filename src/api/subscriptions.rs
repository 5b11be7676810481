//! Telling sessions outside of events.
use automation_core::topic;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::{EngineError, EngineResult, OrReport};
use crate::gucs;
use crate::pg::key_lock::{Sort, wait_for};
use crate::pg::{clock, identity, names};
use crate::store::{automations, subscriptions};

/// The longest name of a channel that LISTEN takes.
const MAX_CHANNEL: usize = 63;

/// Has events whose topic matches a pattern told by NOTIFY on a channel: id, topic and ref (kind:id), nothing of what they
/// hold. Only events that you may see. True if it is new.
#[pg_extern]
fn subscribe(pattern: &str, channel: &str) -> Result<bool, ErrorReport> {
    added(pattern, channel).or_report()
}

/// Ends a subscription of yours. True if there was one.
#[pg_extern]
fn unsubscribe(pattern: &str, channel: &str) -> Result<bool, ErrorReport> {
    checked(pattern, channel)
        .map(|pattern| {
            let removed = subscriptions::remove(identity::current_user(), &pattern, channel);
            if removed {
                automations::note_change();
            }
            removed
        })
        .or_report()
}

fn added(pattern: &str, channel: &str) -> EngineResult<bool> {
    let (pattern, role) = (checked(pattern, channel)?, identity::current_user());
    if let Some(most) = gucs::max_subscriptions_per_role() {
        // Sessions of one role come one after the other: none can see what another has not committed.
        wait_for(Sort::Subscriptions, i64::from(role.to_u32()));
        let has = subscriptions::others(role, &pattern, channel);
        if has >= i64::from(most) {
            let (name, setting) =
                (names::role_name(role).unwrap_or_default(), "automation_engine.max_subscriptions_per_role");
            return Err(EngineError::over_quota("subscriptions", &name, has, most, setting));
        }
    }
    let added = subscriptions::add(role, &pattern, channel, clock::now());
    if added {
        automations::note_change();
    }
    Ok(added)
}

/// The pattern as it is kept.
fn checked(pattern: &str, channel: &str) -> EngineResult<String> {
    if pattern.is_empty() {
        return Err(EngineError::invalid("the pattern is empty").hint("Use # for every topic."));
    }
    topic::validate(pattern).map_err(|error| EngineError::expression("pattern", pattern, &error))?;
    if channel.is_empty() || channel.len() > MAX_CHANNEL {
        return Err(EngineError::invalid(format!("the name of a channel has 1 to {MAX_CHANNEL} bytes")));
    }
    Ok(topic::canonical(pattern))
}
