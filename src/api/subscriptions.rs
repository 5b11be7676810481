//! Subscriptions: telling sessions of applications about events by NOTIFY.
use automation_core::topic;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::definitions::quotas;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::text::Text;
use crate::pg::{clock, identity};
use crate::store::{automations, subscriptions};

/// The longest name of a channel that LISTEN takes.
const MAX_CHANNEL: usize = 63;

/// Has events whose topic matches a pattern told by NOTIFY on a channel: id, topic and ref (kind:id), nothing of their
/// content. Only events that you may see. True if it is new.
#[pg_extern]
fn subscribe(pattern: Text, channel: Text) -> Result<bool, ErrorReport> {
    let pattern = &*pattern;
    let channel = &*channel;
    added(pattern, channel).or_report()
}

/// Ends a subscription of yours. True if there was one.
#[pg_extern]
fn unsubscribe(pattern: Text, channel: Text) -> Result<bool, ErrorReport> {
    let pattern = &*pattern;
    let channel = &*channel;
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
    quotas::room_for_subscription(role, &pattern, channel)?;
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
