//! Checks the topics that users publish on.
use automation_core::topic::canonical;

use crate::error::{EngineError, EngineResult};
use crate::store::kinds;

/// Checks a topic for emit() or a publish step: well formed, not one of the engine's, and not one that is reserved for
/// real changes of a watched entity.
pub fn check_published(topic: &str) -> EngineResult<()> {
    let malformed = topic.is_empty()
        || topic.len() > 1000
        || topic.split('.').any(str::is_empty)
        || topic.contains(['*', '#'])
        || topic.chars().any(|c| c.is_control() || c.is_whitespace());
    if malformed {
        return Err(EngineError::invalid(format!("invalid topic \"{topic}\"")).detail(
            "A topic is segments joined by dots, without white space, \"*\" and \"#\", at most 1000 bytes long.",
        ));
    }
    if topic == "automation" || topic.starts_with("automation.") || topic.starts_with('_') {
        return Err(EngineError::invalid(format!("topic \"{topic}\" is reserved for the engine")));
    }
    // The older spelling of a change reaches the same automations as the present one.
    if let Some((kind, verb)) = canonical(topic).rsplit_once('.')
        && matches!(verb, "created" | "updated" | "deleted" | "truncated")
        && kinds::find(kind).is_some()
    {
        return Err(EngineError::invalid(format!("topic \"{topic}\" is reserved for changes of kind \"{kind}\""))
            .hint("Change the entity, or publish on a topic of your own."));
    }
    Ok(())
}
