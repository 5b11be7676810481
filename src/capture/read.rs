//! The current state of an entity, as expressions see it, and its id as events spell it.
#![allow(unsafe_code)]
use std::ffi::CString;

use automation_core::topic::grants::Right;
use pgrx::pg_sys;

use crate::definitions::hearing;
use crate::error::{EngineError, EngineResult};
use crate::pg::catch::PgError;
use crate::pg::key_type::KeyType;
use crate::pg::names;
use crate::pg::server_text;
use crate::pg::statement::{Spi, Statement};
use crate::pg::subtransaction::in_subtransaction;
use crate::store::kinds::{self, Kind};

/// An entity as it was read.
pub struct Entity {
    /// Its state as JSON text, None if it does not exist.
    pub state: Option<String>,
    pub id: OwnId,
}

/// An entity's id as its events spell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnId {
    pub text: String,
    /// Every event of the entity has the same `wake_key`. If not (intervals, collations that ignore case, kinds that do
    /// not exist yet), only a wait for all entities of the kind hears of all its changes.
    pub is_only: bool,
}

impl OwnId {
    /// An id that is a text, or that can never name a row of its table.
    fn as_given(id: &str) -> Self {
        OwnId { text: id.to_owned(), is_only: true }
    }
}

/// The state as JSON text, None if the entity does not exist. Reads a watched table as the current user, with the
/// rights and row policies that user has.
pub fn state(kind: &str, id: &str) -> EngineResult<Option<String>> {
    entity(kind, id).map(|entity| entity.state)
}

/// The entity's state, and its id as events spell it.
pub fn entity(kind: &str, id: &str) -> EngineResult<Entity> {
    let found = kinds::find(kind).ok_or_else(|| {
        EngineError::unknown_kind(kind)
            .hint("Watch its table with automation.watch_table(), or give it a state with automation.set_state().")
    })?;
    match found.relation {
        None => hearing::check_kind(Right::Listen, &found)
            .map(|()| Entity { state: kinds::read_state(kind, id), id: OwnId::as_given(id) }),
        Some(_) => read_row(&found, id)
            .map_err(|error| EngineError::statement(&format!("reading the state of \"{kind}\""), "", &error, None)),
    }
}

/// The id alone, for an entity that was not read: a condition may be decided without reading it, or reading may be
/// refused.
pub fn own_id(kind: &str, id: &str) -> OwnId {
    match kinds::find(kind) {
        None => OwnId { is_only: false, ..OwnId::as_given(id) },
        Some(found) if found.relation.is_none() => OwnId::as_given(id),
        Some(found) => match key_values(&found, id) {
            Some(values) => {
                let cast = || spelled(&key_types(&found)?, &values);
                in_subtransaction(cast).unwrap_or_else(|_| OwnId::as_given(id))
            }
            None => OwnId::as_given(id),
        },
    }
}

fn read_row(kind: &Kind, id: &str) -> Result<Entity, PgError> {
    let nothing = || Entity { state: None, id: OwnId::as_given(id) };
    let Some(table) = kind.relation.and_then(names::relation_name) else { return Ok(nothing()) };
    let Some(values) = key_values(kind, id) else { return Ok(nothing()) };
    let clauses: Vec<String> = kind
        .id_columns
        .iter()
        .enumerate()
        .map(|(i, column)| format!("t.{} OPERATOR(pg_catalog.=) ${}", names::quote_identifier(column), i + 1))
        .collect();
    let sql = format!("SELECT t.* FROM {table} AS t WHERE {} LIMIT 1", clauses.join(" AND "));
    in_subtransaction(|| {
        let spi = Spi::open();
        let statement = Statement::prepare(&spi, &sql, values.len())?;
        let outcome = statement.execute(&spi, &values, 1, usize::MAX)?;
        spi.close();
        let state = outcome.rows.into_iter().next().map(|row| server_text::read(&row).into_owned());
        let columns = key_types(kind)?;
        let mut id = spelled(&columns, &values)?;
        // If equal keys have several texts, the row itself says which one its events have.
        if columns.iter().any(|column| !column.has_one_text)
            && let Some(own) = state.as_deref().and_then(|row| id_in(kind, row))
        {
            id.text = own;
        }
        Ok(Entity { state, id })
    })
    // An id that the key's type cannot read names no row.
    .or_else(|error| if error.sqlstate.starts_with("22") { Ok(nothing()) } else { Err(error) })
}

/// The types of the columns of the key.
fn key_types(kind: &Kind) -> Result<Vec<KeyType>, PgError> {
    let relation = kind.relation.unwrap_or(pg_sys::InvalidOid);
    let of_column = |name: &String| KeyType::of_column(relation, name);
    let types: Option<Vec<KeyType>> = kind.id_columns.iter().map(of_column).collect();
    types.ok_or_else(|| PgError::new("42703", "a column of the key is gone"))
}

/// The id that the values spell after a cast to the types of the key's columns. An error if they cannot be cast.
fn spelled(columns: &[KeyType], values: &[Option<CString>]) -> Result<OwnId, PgError> {
    let is_only = columns.iter().all(|column| column.has_one_spelling);
    let text = match (columns, values) {
        ([column], [Some(value)]) => column.plain(value)?,
        _ => {
            let mut parts = Vec::with_capacity(values.len());
            for (column, value) in columns.iter().zip(values) {
                parts.push(value.as_ref().map_or_else(|| Ok("null".to_owned()), |value| column.json(value))?);
            }
            format!("[{}]", parts.join(","))
        }
    };
    Ok(OwnId { text, is_only })
}

/// The id of a row that is JSON.
fn id_in(kind: &Kind, row: &str) -> Option<String> {
    let row: serde_json::Value = serde_json::from_str(row).ok()?;
    let part = |name: &String| row.get(name);
    match &kind.id_columns[..] {
        [name] => part(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        names => {
            let parts: Option<Vec<String>> = names.iter().map(|name| part(name).map(ToString::to_string)).collect();
            parts.map(|parts| format!("[{}]", parts.join(",")))
        }
    }
}

/// The values of the key columns: the id itself, or the elements of its JSON list. None if they name no row: a letter
/// that the database's encoding lacks is in none.
fn key_values(kind: &Kind, id: &str) -> Option<Vec<Option<CString>>> {
    if kind.id_columns.len() == 1 {
        return Some(vec![Some(server_text::c_string(id).ok()?)]);
    }
    let serde_json::Value::Array(parts) = serde_json::from_str(id).ok()? else { return None };
    if parts.len() != kind.id_columns.len() {
        return None;
    }
    parts
        .into_iter()
        .map(|part| match part {
            serde_json::Value::Null => Some(None),
            serde_json::Value::String(text) => Some(Some(server_text::c_string(&text).ok()?)),
            other => Some(Some(server_text::c_string(&other.to_string()).ok()?)),
        })
        .collect()
}
