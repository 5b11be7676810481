//! Rules that derive events from changes: registered and dropped.
use automation_core::check::{self, Names};
use automation_core::definition::Problem;
use automation_core::derive::Deriver;
use automation_core::topic::grants::Right;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::capture::attach;
use crate::define;
use crate::definitions::hearing;
use crate::definitions::topics;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::text::Text;
use crate::pg::{identity, names};
use crate::store::derived_events::{self, StoredRule};
use crate::store::kinds::{self, Kind};
use crate::store::log;

/// Most bytes of a rule's name.
const MAX_NAME: usize = 200;

/// Gives the changes of a kind for which a condition holds a further topic. Returns the name of the rule.
#[pg_extern]
fn derive_event(
    kind: Option<Text>,
    topic: Option<Text>,
    condition: Option<Text>,
    name: default!(Option<Text>, "NULL"),
) -> Result<Text, ErrorReport> {
    let kind = kind.as_deref();
    let topic = topic.as_deref();
    let condition = condition.as_deref();
    let name = name.as_deref();
    (|| {
        let kind = kind.ok_or_else(|| EngineError::null_argument("kind"))?;
        let topic = topic.ok_or_else(|| EngineError::null_argument("topic"))?;
        let condition = condition.ok_or_else(|| EngineError::null_argument("condition"))?;
        derive(kind, topic, condition, name.unwrap_or(topic)).map(Text)
    })()
    .or_report()
}

fn derive(kind: &str, topic: &str, condition: &str, name: &str) -> EngineResult<String> {
    let found = watched(kind)?;
    check_rights(&found)?;
    if name.trim().is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(EngineError::invalid(format!("invalid name \"{name}\" of a derived event"))
            .detail(format!("A name has 1 to {MAX_NAME} bytes and no control characters.")));
    }
    let rule = Deriver::parse(name, topic, &condition.into())
        .map_err(|problems| problems.first().map_or_else(|| EngineError::bug("no problem"), reported))?;
    topics::check_published(topic)?;
    let seen = Names {
        roots: vec!["event", "old", "prev", "new", "next", "payload", "ctx"],
        kinds: Some(Vec::new()),
        triggers: Some(Vec::new()),
        ..Names::filter(define::recorded_shape(&found))
    };
    if let Some(error) = check::check_condition(&rule.condition, &seen).first() {
        return Err(EngineError::expression(&format!("condition of derived event \"{name}\""), condition, error));
    }
    if let Some(known) = derived_events::lock(kind, name) {
        check_maker(&found, &known)?;
    }
    let saved = derived_events::save(&StoredRule {
        kind: kind.to_owned(),
        name: name.to_owned(),
        topic: topic.to_owned(),
        condition: condition.to_owned(),
        created_by: identity::current_user(),
    });
    if saved {
        let details = serde_json::json!({ "kind": kind, "name": name, "topic": topic, "condition": condition });
        log::audit("event.derived", "", &details);
    }
    Ok(name.to_owned())
}

/// Removes a rule of derive_event(). True if it was there.
#[pg_extern]
fn drop_derived_event(kind: Text, name: Text) -> Result<bool, ErrorReport> {
    let kind = &*kind;
    let name = &*name;
    remove(kind, name).or_report()
}

fn remove(kind: &str, name: &str) -> EngineResult<bool> {
    let found = watched(kind)?;
    let Some(known) = derived_events::lock(kind, name) else {
        check_rights(&found)?;
        return Ok(false);
    };
    check_maker(&found, &known)?;
    derived_events::remove(kind, name);
    log::audit("event.derivation_dropped", "", &serde_json::json!({ "kind": kind, "name": name }));
    Ok(true)
}

fn watched(kind: &str) -> EngineResult<Kind> {
    // A table that was dropped is not watched, though its kind may not be forgotten yet.
    let is_there = |found: &Kind| found.relation.is_none_or(|relation| names::relation_name(relation).is_some());
    kinds::find(kind).filter(is_there).ok_or_else(|| {
        let known = kinds::all();
        let others = known.iter().map(|known| known.kind.as_str()).filter(|known| *known != kind);
        let close = automation_core::suggest::nearest(kind, others);
        EngineError::unknown_kind(kind).hint(match close {
            Some(close) => format!("Did you mean \"{close}\"?"),
            None => format!("Watch the table first: SELECT automation.watch_table('{kind}')."),
        })
    })
}

/// A role that may have the changes of a table recorded may also name them; the changes of a kind without a table can
/// be named by a role that may read the kind.
fn check_rights(kind: &Kind) -> EngineResult<()> {
    let Some(relation) = kind.relation else { return hearing::check_kind(Right::Listen, kind) };
    attach::check_rights(relation, &names::relation_name(relation).unwrap_or_default())
}

/// A rule is changed and dropped by the role that made it, and by those that the kind belongs to.
fn check_maker(kind: &Kind, rule: &StoredRule) -> EngineResult<()> {
    let user = identity::current_user();
    let is_kinds = match kind.relation {
        Some(relation) => attach::is_steward(kind, relation),
        None => identity::has_role(user, kind.owner),
    };
    if is_kinds || identity::has_role(user, rule.created_by) {
        return Ok(());
    }
    let creator = names::role_name(rule.created_by).unwrap_or_default();
    Err(EngineError::not_allowed(format!(
        "must be able to act as \"{creator}\" to change derived event \"{}\"",
        rule.name
    ))
    .detail(format!("It was defined by \"{creator}\".")))
}

fn reported(problem: &Problem) -> EngineError {
    match (&problem.text, &problem.error.hint) {
        (Some(text), _) => EngineError::expression(&problem.place, text, &problem.error),
        (None, Some(hint)) => EngineError::invalid(problem.error.message.clone()).hint(hint),
        (None, None) => EngineError::invalid(problem.error.message.clone()),
    }
}
