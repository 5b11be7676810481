//! Entities and events.
use automation_core::gate::tenant_view::MAX_TENANT;
use automation_core::topic::grants::Right;
use automation_core::value::Value;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::topics;
use crate::capture::{attach, naming, read};
use crate::context;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::hearing;
use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::engine_sql::Arg;
use crate::pg::identity::current_user;
use crate::pg::jsonb::Jsonb;
use crate::pg::regclass::Regclass;
use crate::pg::text::{self, Text};
use crate::store::events::{NewEvent, Op, append_event, claim_dedup, name_dedup};
use crate::store::kinds::{self, Watched};
use crate::store::{automations, log};

/// Records every change of a table from now on.
#[pg_extern]
fn watch_table(
    rel: Option<Regclass>,
    kind: default!(Option<Text>, "NULL"),
    id_columns: default!(Option<Vec<Option<Text>>>, "NULL"),
    columns: default!(Option<Vec<Option<Text>>>, "NULL"),
    ignore: default!(Option<Vec<Option<Text>>>, "'{}'"),
    tenant_column: default!(Option<Text>, "NULL"),
) -> Result<Text, ErrorReport> {
    let kind = kind.as_deref();
    let id_columns = id_columns.map(text::strings);
    let columns = columns.map(text::strings);
    let ignore = ignore.map(text::strings);
    let tenant_column = tenant_column.as_deref();
    let request = || {
        let rel = rel.ok_or_else(|| EngineError::invalid("the table to watch must not be null"))?;
        Ok(attach::Request {
            relation: rel.0,
            kind: kind.map(str::to_owned),
            id_columns: id_columns.map(|names| column_names("id_columns", names)).transpose()?,
            columns: columns.map(|names| column_names("columns", names)).transpose()?,
            ignore: column_names("ignore", ignore.unwrap_or_default())?,
            tenant_column: tenant_column.map(str::to_owned),
        })
    };
    request().and_then(attach::watch).map(Text).or_report()
}

/// The names in a list that a caller has given.
fn column_names(argument: &str, names: Vec<Option<String>>) -> EngineResult<Vec<String>> {
    let named =
        |name: Option<String>| name.ok_or_else(|| EngineError::null_argument(&format!("a column of {argument}")));
    names.into_iter().map(named).collect()
}

/// Stops recording changes of a table. True if it was watched.
#[pg_extern]
fn unwatch_table(rel: Regclass) -> Result<bool, ErrorReport> {
    attach::unwatch(rel.0).or_report()
}

/// Gives an entity without a table its state; an event if that is a real change.
#[pg_extern]
fn set_state(kind: Text, id: Text, state: Jsonb) -> Result<Option<i64>, ErrorReport> {
    let kind = &*kind;
    let id = &*id;
    change_state(kind, id, |_| Ok(Some(state.0))).or_report()
}

/// Merges fields into the state of an entity without a table; a null field is removed.
#[pg_extern]
fn patch_state(kind: Text, id: Text, patch: Jsonb) -> Result<Option<i64>, ErrorReport> {
    let kind = &*kind;
    let id = &*id;
    change_state(kind, id, |old| {
        let serde_json::Value::Object(patch) = patch.0 else {
            return Err(EngineError::invalid("a patch must be a JSON object"));
        };
        let mut state = match old {
            Some(serde_json::Value::Object(fields)) => fields.clone(),
            _ => serde_json::Map::new(),
        };
        for (name, value) in patch {
            if value.is_null() {
                state.remove(&name);
            } else {
                state.insert(name, value);
            }
        }
        Ok(Some(serde_json::Value::Object(state)))
    })
    .or_report()
}

/// Removes an entity without a table.
#[pg_extern]
fn remove_state(kind: Text, id: Text) -> Result<Option<i64>, ErrorReport> {
    let kind = &*kind;
    let id = &*id;
    change_state(kind, id, |_| Ok(None)).or_report()
}

/// Current state of an entity as expressions see it, NULL if there is none.
#[pg_extern(stable)]
fn state(kind: Text, id: Text) -> Result<Option<Jsonb>, ErrorReport> {
    let kind = &*kind;
    let id = &*id;
    read::state(kind, id)
        .and_then(|text| {
            // A column of the table may hold a document that is nested deeper than ours can be.
            text.map(|text| serde_json::from_str(&text).map(Jsonb).map_err(|_| EngineError::too_deep())).transpose()
        })
        .or_report()
}

type Json = serde_json::Value;

/// What a store_state step does: gives an entity its state, or removes it if that is null.
pub fn store_state(kind: &str, id: &str, state: &str) -> Result<Option<i64>, PgError> {
    let state: Json = serde_json::from_str(state).map_err(|error| PgError::new("22023", error.to_string()))?;
    change_state(kind, id, |_| Ok((!state.is_null()).then_some(state))).map_err(|error| error.to_pg())
}

/// Changes the state of an entity under its lock and records the difference. Returns the event's id, None if nothing
/// changed.
fn change_state(
    kind: &str,
    id: &str,
    change: impl FnOnce(Option<&Json>) -> EngineResult<Option<Json>>,
) -> EngineResult<Option<i64>> {
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

/// What a change of state comes to, in the form in which the log keeps it.
pub struct Difference {
    pub op: Op,
    pub changed: Vec<String>,
    pub prev: String,
    pub next: String,
}

/// What differs between two states; None if there is neither.
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

fn record_difference(kind: &str, id: &str, old: Option<&Json>, new: Option<&Json>) -> Option<i64> {
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

/// Publishes an event. With a dedup key, a second emission within a day returns the first event's id instead.
#[pg_extern]
fn emit(
    topic: Option<Text>,
    payload: default!(Option<Jsonb>, "'{}'"),
    dedup_key: default!(Option<Text>, "NULL"),
    tenant: default!(Option<Text>, "NULL"),
) -> Result<i64, ErrorReport> {
    let topic = topic.as_deref();
    let dedup_key = dedup_key.as_deref();
    let tenant = tenant.as_deref();
    let payload = payload.map_or(Json::Null, |payload| payload.0);
    topic
        .ok_or_else(|| EngineError::null_argument("topic"))
        .and_then(|topic| emit_event(topic, &payload, dedup_key, tenant))
        .or_report()
}

/// Most bytes of a dedup key. An index holds it beside a tenant and a topic, and an entry of an index has a limit.
const MAX_DEDUP_KEY: usize = 1000;

/// Tenants of the engine's own are for nobody else.
pub fn check_tenant(tenant: Option<&str>) -> EngineResult<()> {
    match tenant {
        Some(tenant) if tenant.is_empty() || tenant.starts_with('_') => {
            Err(EngineError::invalid(format!("invalid tenant \"{tenant}\""))
                .hint("A tenant is not empty; names that begin with an underscore are reserved."))
        }
        Some(tenant) if tenant.len() > MAX_TENANT => Err(EngineError::invalid("the name of the tenant is too long")
            .detail(format!("It has {} bytes, and can have {MAX_TENANT}.", tenant.len()))),
        _ => Ok(()),
    }
}

/// A key that the index of dedup keys can hold.
fn check_dedup_key(key: Option<&str>) -> EngineResult<()> {
    match key.map(str::len).filter(|length| *length > MAX_DEDUP_KEY) {
        Some(length) => Err(EngineError::invalid("the dedup key is too long")
            .detail(format!("It has {length} bytes, and can have {MAX_DEDUP_KEY}."))
            .hint("Use a digest of it, such as md5(key).")),
        None => Ok(()),
    }
}

fn emit_event(topic: &str, payload: &Json, dedup_key: Option<&str>, tenant: Option<&str>) -> EngineResult<i64> {
    topics::check_published(topic)?;
    check_tenant(tenant)?;
    check_dedup_key(dedup_key)?;
    let own = context::tenant();
    let tenant = tenant.or(own.as_deref());
    if let Some(key) = dedup_key {
        let first = claim_dedup(tenant, topic, key);
        if first != 0 {
            return Ok(first);
        }
    }
    let text = payload.to_string();
    let id = append_event(&NewEvent {
        op: Some(Op::Emitted),
        topic: Some(topic),
        tenant: tenant.map(str::as_bytes),
        dedup_key,
        payload: Some(text.as_bytes()),
        // The role whose rights emit() has been called with, as for any privilege: a function that runs with its owner's
        // rights emits as its owner, and cannot emit as its caller.
        role: Some(current_user()),
        ..Default::default()
    });
    if let Some(key) = dedup_key {
        name_dedup(tenant, topic, key, id);
    }
    Ok(id)
}
