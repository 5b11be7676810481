//! Entities without a table: their state is kept by the engine, and a change of it is an event like the change of a
//! row.
use automation_core::ids::EventId;
use automation_core::topic::grants::Right;
use automation_core::value::Value;

use super::{attach, naming};
use crate::definitions::hearing;
use crate::error::{EngineError, EngineResult};
use crate::event_log::events::{NewEvent, Op, append_event};
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::engine_sql::Arg;
use crate::pg::identity::current_user;
use crate::store::kinds::{self, Watched};
use crate::store::{automations, log};

type Json = serde_json::Value;

/// Performs a store_state step: gives an entity its state, or removes it if that is null.
pub fn store_state(kind: &str, id: &str, state: &str) -> Result<Option<EventId>, PgError> {
    let state: Json = serde_json::from_str(state).map_err(|error| PgError::new("22023", error.to_string()))?;
    change_state(kind, id, |_| Ok((!state.is_null()).then_some(state))).map_err(|error| error.to_pg())
}

/// Changes the state of an entity under its lock and records the difference. Returns the event's id, None if nothing
/// changed.
pub fn change_state(
    kind: &str,
    id: &str,
    change: impl FnOnce(Option<&Json>) -> EngineResult<Option<Json>>,
) -> EngineResult<Option<EventId>> {
    if id.is_empty() || id.len() > 1000 || id.contains('\0') {
        return Err(EngineError::invalid("an entity's id has 1 to 1000 bytes"));
    }
    own_kind(kind)?;
    let now = clock::engine_now();
    let old_text = kinds::lock_state(kind, id, now);
    let old: Option<Json> = old_text.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let new = change(old.as_ref())?;
    if let Some(new) = &new
        && !new.is_object()
    {
        return Err(EngineError::invalid("a state must be a JSON object"));
    }
    let new_text = new.as_ref().map(Json::to_string);
    match &new_text {
        Some(text) => kinds::write_state(kind, id, text, now),
        None => kinds::remove_state(kind, id),
    }
    Ok(record_difference(kind, id, old.as_ref(), new.as_ref()))
}

/// A kind whose state we keep, which belongs to the role that first gives one of its entities a state.
fn own_kind(kind: &str) -> EngineResult<()> {
    let found = match kinds::find(kind) {
        Some(found) => found,
        None => {
            attach::check_kind_name(kind)?;
            naming::check(kind, None)?;
            let watched = Watched {
                table: None,
                kind,
                relation: None,
                table_owner: None,
                id_columns: &[],
                columns: None,
                ignored: &[],
                tenant_column: None,
            };
            if kinds::save(&watched, current_user()) {
                automations::note_change();
                log::audit("kind.created", "", &serde_json::json!({ "kind": kind }));
            }
            // Another session may have been quicker.
            kinds::find(kind).ok_or_else(|| EngineError::unknown_kind(kind))?
        }
    };
    if found.relation.is_some() {
        return Err(EngineError::wrong_object(format!("kind \"{kind}\" is a watched table"))
            .hint("Change its rows with SQL; the change is recorded by itself."));
    }
    hearing::check_kind(Right::Emit, &found)
}

/// A change of state in the form in which the log keeps it.
pub struct Difference {
    pub op: Op,
    pub changed: Vec<String>,
    pub prev: String,
    pub next: String,
}

/// The difference between two states; None if there is neither.
pub fn difference(old: Option<&Json>, new: Option<&Json>) -> Option<Difference> {
    let value = |json: Option<&Json>| json.map(Value::from_serde).unwrap_or_default();
    let op = match (old, new) {
        (None, None) => return None,
        (None, Some(_)) => Op::Created,
        (Some(_), None) => Op::Deleted,
        (Some(_), Some(_)) => Op::Updated,
    };
    let empty = serde_json::Map::new();
    let fields = |json: Option<&'_ Json>| json.and_then(Json::as_object).cloned().unwrap_or_else(|| empty.clone());
    let (before, after) = (fields(old), fields(new));
    let differs = |name: &&String| value(before.get(*name)) != value(after.get(*name));
    let mut changed: Vec<String> = before.keys().chain(after.keys()).filter(differs).cloned().collect();
    changed.sort();
    changed.dedup();
    // An update keeps only the changed fields of the old state; a field that is gone now must be readable as null.
    let mut next = after.clone();
    let prev: Json = if op == Op::Updated {
        for name in &changed {
            next.entry(name.clone()).or_insert(Json::Null);
        }
        changed.iter().map(|name| (name.clone(), before.get(name).cloned().unwrap_or_default())).collect()
    } else {
        Json::Object(before.clone())
    };
    Some(Difference { op, changed, prev: prev.to_string(), next: Json::Object(next).to_string() })
}

fn record_difference(kind: &str, id: &str, old: Option<&Json>, new: Option<&Json>) -> Option<EventId> {
    let Difference { op, changed, prev, next } = difference(old, new)?;
    if op == Op::Updated && changed.is_empty() {
        return None;
    }
    Some(append_event(&NewEvent {
        op: Some(op),
        kind: Some(kind),
        entity_id: Some(id.as_bytes()),
        changed: (op == Op::Updated).then(|| Arg::texts(&changed).datum()).flatten(),
        prev: (op != Op::Created).then_some(prev.as_bytes()),
        next: (op != Op::Deleted).then_some(next.as_bytes()),
        role: Some(current_user()),
        ..Default::default()
    }))
}
