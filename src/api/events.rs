//! Functions for entities and events: watching tables, states of entities, emitting.
use automation_core::ids::EventId;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::capture::state::change_state;
use crate::capture::{attach, read};
use crate::definitions::tenant_view::check_tenant;
use crate::definitions::topics;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::event_log::events::{NewEvent, Op, append_event, claim_dedup, name_dedup};
use crate::pg::identity::current_user;
use crate::pg::jsonb::Jsonb;
use crate::pg::regclass::Regclass;
use crate::pg::text::{self, Text};
use crate::provenance;

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

/// The id of an event as SQL has it.
fn number(event: Option<EventId>) -> Option<i64> {
    event.map(|event| event.0)
}

/// Gives an entity without a table its state; an event if that is a real change.
#[pg_extern]
fn set_state(kind: Text, id: Text, state: Jsonb) -> Result<Option<i64>, ErrorReport> {
    let kind = &*kind;
    let id = &*id;
    change_state(kind, id, |_| Ok(Some(state.0))).map(number).or_report()
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
    .map(number)
    .or_report()
}

/// Removes an entity without a table.
#[pg_extern]
fn remove_state(kind: Text, id: Text) -> Result<Option<i64>, ErrorReport> {
    let kind = &*kind;
    let id = &*id;
    change_state(kind, id, |_| Ok(None)).map(number).or_report()
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
        .map(|event| event.0)
        .or_report()
}

/// Most bytes of a dedup key. An index holds it beside a tenant and a topic, and an entry of an index has a limit.
const MAX_DEDUP_KEY: usize = 1000;

/// A key that the index of dedup keys can hold.
fn check_dedup_key(key: Option<&str>) -> EngineResult<()> {
    match key.map(str::len).filter(|length| *length > MAX_DEDUP_KEY) {
        Some(length) => Err(EngineError::invalid("the dedup key is too long")
            .detail(format!("It has {length} bytes, and can have {MAX_DEDUP_KEY}."))
            .hint("Use a digest of it, such as md5(key).")),
        None => Ok(()),
    }
}

fn emit_event(topic: &str, payload: &Json, dedup_key: Option<&str>, tenant: Option<&str>) -> EngineResult<EventId> {
    topics::check_published(topic)?;
    check_tenant(tenant)?;
    check_dedup_key(dedup_key)?;
    let own = provenance::tenant();
    let tenant = tenant.or(own.as_deref());
    if let Some(key) = dedup_key {
        let first = claim_dedup(tenant, topic, key);
        if first != EventId(0) {
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
        // The role whose rights emit() has been called with, as for any privilege: a function that runs with its
        // owner's rights emits as its owner, and cannot emit as its caller.
        role: Some(current_user()),
        ..Default::default()
    });
    if let Some(key) = dedup_key {
        name_dedup(tenant, topic, key, id);
    }
    Ok(id)
}
