//! The current state of an entity, as expressions see it.
#![allow(unsafe_code)]
use std::ffi::CString;

use automation_core::topic::grants::Right;

use crate::error::{EngineError, EngineResult};
use crate::hearing;
use crate::pg::catch::PgError;
use crate::pg::names;
use crate::pg::statement::{Spi, Statement};
use crate::pg::subtransaction::in_subtransaction;
use crate::store::kinds::{self, Kind};

/// The state as JSON text, None if the entity does not exist. Reads a watched table as the current user, with the
/// rights and row policies that user has.
pub fn state(kind: &str, id: &str) -> EngineResult<Option<String>> {
    let found = kinds::find(kind).ok_or_else(|| {
        EngineError::unknown_kind(kind)
            .hint("Watch its table with automation.watch_table(), or give it a state with automation.set_state().")
    })?;
    match found.relation {
        None => hearing::check_kind(Right::Listen, &found).map(|()| kinds::read_state(kind, id)),
        Some(_) => read_row(&found, id)
            .map_err(|error| EngineError::statement(&format!("reading the state of \"{kind}\""), "", &error, None)),
    }
}

fn read_row(kind: &Kind, id: &str) -> Result<Option<String>, PgError> {
    let Some(table) = kind.relation.and_then(names::relation_name) else { return Ok(None) };
    let Some(values) = key_values(kind, id) else { return Ok(None) };
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
        Ok(outcome.rows.into_iter().next().map(|row| String::from_utf8_lossy(&row).into_owned()))
    })
    // An id that the key's type cannot read names no row.
    .or_else(|error| if error.sqlstate.starts_with("22") { Ok(None) } else { Err(error) })
}

/// The values of the key columns: the id itself, or the elements of its JSON list.
fn key_values(kind: &Kind, id: &str) -> Option<Vec<Option<CString>>> {
    if kind.id_columns.len() == 1 {
        return Some(vec![Some(CString::new(id).ok()?)]);
    }
    let serde_json::Value::Array(parts) = serde_json::from_str(id).ok()? else { return None };
    if parts.len() != kind.id_columns.len() {
        return None;
    }
    parts
        .into_iter()
        .map(|part| match part {
            serde_json::Value::Null => Some(None),
            serde_json::Value::String(text) => Some(Some(CString::new(text).ok()?)),
            other => Some(Some(CString::new(other.to_string()).ok()?)),
        })
        .collect()
}
