//! Kinds of entities, and the state of those that have no table.
use std::collections::HashMap;

use pgrx::pg_sys;

use crate::pg::engine_sql::{Arg, execute, query, query_one};
use crate::pg::identity::as_engine;
use crate::pg::table_scan::each_row;

/// Name of the row trigger of a watched table. Sorts before every name a person gives, so that a row's change is
/// recorded before other triggers of the table can change the row again.
pub const ROW_TRIGGER: &str = "!automation_engine";

/// A kind of entity.
#[derive(Clone, Debug)]
pub struct Kind {
    pub kind: String,
    /// The watched table, None for a kind whose state we keep.
    pub relation: Option<pg_sys::Oid>,
    pub id_columns: Vec<String>,
    /// The columns to record, None for all.
    columns: Option<Vec<String>>,
    ignored: Vec<String>,
    /// The role that watched the table, or first gave an entity a state.
    pub owner: pg_sys::Oid,
    /// The owner of the table when it was watched.
    pub table_owner: Option<pg_sys::Oid>,
}

impl Kind {
    /// Whether events carry a column of the table, and its changes are events.
    pub fn records(&self, column: &String) -> bool {
        let wanted = self.columns.as_ref().is_none_or(|columns| columns.contains(column));
        self.id_columns.contains(column) || (wanted && !self.ignored.contains(column))
    }
}

const FIND: &str = "
    SELECT k.kind, k.relation, k.id_columns, k.columns, k.columns IS NULL, k.ignored, k.created_by,
           k.table_owner
      FROM automation_internal.entity_kind AS k
     WHERE k.kind = $1";

pub fn find(kind: &str) -> Option<Kind> {
    as_engine(|| query_one(FIND, &[kind.into()], read))
}

const FIND_BY_RELATION: &str = "
    SELECT k.kind, k.relation, k.id_columns, k.columns, k.columns IS NULL, k.ignored, k.created_by,
           k.table_owner
      FROM automation_internal.entity_kind AS k
     WHERE k.relation = $1";

pub fn find_by_relation(relation: pg_sys::Oid) -> Option<Kind> {
    as_engine(|| query_one(FIND_BY_RELATION, &[relation.into()], read))
}

fn read(row: &crate::pg::engine_sql::Row<'_>) -> Kind {
    Kind {
        kind: row.text(1).unwrap_or_default(),
        relation: row.oid(2),
        id_columns: row.text_array(3),
        columns: (!row.bool(5).unwrap_or(true)).then(|| row.text_array(4)),
        ignored: row.text_array(6),
        owner: row.oid(7).unwrap_or(pg_sys::InvalidOid),
        table_owner: row.oid(8),
    }
}

const ALL: &str = "
    SELECT k.kind, k.relation, k.id_columns, k.columns, k.columns IS NULL, k.ignored, k.created_by,
           k.table_owner
      FROM automation_internal.entity_kind AS k
     ORDER BY k.kind";

pub fn all() -> Vec<Kind> {
    as_engine(|| query(ALL, &[], read))
}

/// The owners of kinds without a table.
pub fn stateless() -> HashMap<String, pg_sys::Oid> {
    let mut found = HashMap::new();
    each_row("entity_kind", |row| {
        if let (Some(kind), None, Some(owner)) = (row.text(1), row.oid(2), row.oid(7)) {
            found.insert(kind, owner);
        }
    });
    found
}

/// The tenant column of each kind that has one.
pub fn tenant_columns() -> HashMap<String, String> {
    let mut found = HashMap::new();
    each_row("entity_kind", |row| {
        if let (Some(kind), Some(column)) = (row.text(1), row.text(6)) {
            found.insert(kind, column);
        }
    });
    found
}

const SAVE: &str = "
    INSERT INTO automation_internal.entity_kind AS k
           (kind, relation, id_columns, columns, ignored, tenant_column, created_by, created_at, table_owner,
            watched_as)
    VALUES ($1, $2, $3, CASE WHEN $4 THEN $5 END, $6, $7, $8, pg_catalog.clock_timestamp(), $9, $10)
        ON CONFLICT (kind) DO UPDATE
       SET id_columns = excluded.id_columns, columns = excluded.columns, ignored = excluded.ignored,
           tenant_column = excluded.tenant_column, created_at = excluded.created_at, table_owner = excluded.table_owner,
           watched_as = excluded.watched_as
     WHERE k.relation = excluded.relation
       AND (k.relation, k.id_columns, k.columns, k.ignored, k.tenant_column)
           IS DISTINCT FROM
           (excluded.relation, excluded.id_columns, excluded.columns, excluded.ignored, excluded.tenant_column)";

pub struct Watched<'a> {
    pub kind: &'a str,
    pub relation: Option<pg_sys::Oid>,
    /// The table's owner.
    pub table_owner: Option<pg_sys::Oid>,
    /// The table's name, with its schema.
    pub table: Option<&'a str>,
    pub id_columns: &'a [String],
    pub columns: Option<&'a [String]>,
    pub ignored: &'a [String],
    pub tenant_column: Option<&'a str>,
}

const WATCHED_AS: &str = "SELECT k.watched_as FROM automation_internal.entity_kind AS k WHERE k.relation = $1";

/// The name that a table had when it was watched, if it is not its present name.
pub fn watched_as(relation: pg_sys::Oid) -> Option<String> {
    let name = as_engine(|| query_one(WATCHED_AS, &[relation.into()], |row| row.text(1))).flatten()?;
    (crate::pg::names::relation_name(relation).as_deref() != Some(name.as_str())).then_some(name)
}

const FORGET_FORMER: &str = "DELETE FROM automation_internal.former_kind AS f WHERE f.kind = $1";

/// Keeps a kind that is new, or changes one, which stays its owner's. False if nothing changed, or if another session
/// has just given the name to something else.
pub fn save(watched: &Watched<'_>, by: pg_sys::Oid) -> bool {
    as_engine(|| {
        execute(FORGET_FORMER, &[watched.kind.into()]);
        let saved = execute(
            SAVE,
            &[
                watched.kind.into(),
                watched.relation.into(),
                Arg::texts(watched.id_columns),
                watched.columns.is_some().into(),
                Arg::texts(watched.columns.unwrap_or_default()),
                Arg::texts(watched.ignored),
                watched.tenant_column.into(),
                by.into(),
                watched.table_owner.into(),
                watched.table.into(),
            ],
        );
        saved > 0
    })
}

const REMOVE: &str = "
    WITH gone AS (
        DELETE FROM automation_internal.entity_kind AS k WHERE k.kind = $1
     RETURNING k.kind, k.created_by, k.table_owner)
    INSERT INTO automation_internal.former_kind AS f (kind, created_by, table_owner)
    SELECT g.kind, g.created_by, g.table_owner
      FROM gone AS g
        ON CONFLICT (kind) DO UPDATE
       SET created_by = excluded.created_by, table_owner = excluded.table_owner";

pub fn remove(kind: &str) {
    super::derived_events::forget_kind(kind);
    as_engine(|| execute(REMOVE, &[kind.into()]));
}

const HAND_ON: &str = "
    UPDATE automation_internal.entity_kind AS k
       SET relation = $2
     WHERE k.kind = $1
       AND k.relation IS NOT NULL
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = k.relation)";

/// Gives the kind of a table that was dropped, if it is not forgotten yet, to another table, with its derived events.
pub fn hand_on(kind: &str, relation: pg_sys::Oid) {
    as_engine(|| execute(HAND_ON, &[kind.into(), relation.into()]));
}

/// The roles that a name which is free again belonged to: the one that watched the table, and the table's owner.
pub fn former(kind: &str) -> Option<(pg_sys::Oid, Option<pg_sys::Oid>)> {
    as_engine(|| query_one(FORMER, &[kind.into()], |row| row.oid(1).map(|owner| (owner, row.oid(2))))).flatten()
}

const FORMER: &str = "
    SELECT f.created_by, f.table_owner
      FROM automation_internal.former_kind AS f
     WHERE f.kind = $1";

const FORGET_DROPPED: &str = "
    WITH gone AS (
        DELETE FROM automation_internal.entity_kind AS k
         WHERE k.relation IS NOT NULL
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = k.relation)
     RETURNING k.kind, k.created_by, k.table_owner)
    INSERT INTO automation_internal.former_kind AS f (kind, created_by, table_owner)
    SELECT g.kind, g.created_by, g.table_owner
      FROM gone AS g
        ON CONFLICT (kind) DO UPDATE
       SET created_by = excluded.created_by, table_owner = excluded.table_owner";

/// Frees the names of kinds whose tables were dropped.
pub fn forget_dropped() -> u64 {
    let derived = super::derived_events::count();
    let forgotten = as_engine(|| execute(FORGET_DROPPED, &[]));
    if forgotten > 0 && super::derived_events::count() != derived {
        super::automations::note_change();
    }
    forgotten
}

// Reads pg_inherits and takes no lock on the tables: a session that holds one must not hold up housekeeping.
const REMEMBER_PARTITIONS: &str = "
    WITH RECURSIVE tree (relation, below) AS (
        SELECT k.relation, i.inhrelid
          FROM automation_internal.entity_kind AS k
          JOIN pg_catalog.pg_inherits AS i ON i.inhparent = k.relation
        UNION ALL
        SELECT t.relation, i.inhrelid
          FROM tree AS t
          JOIN pg_catalog.pg_inherits AS i ON i.inhparent = t.below)
    INSERT INTO automation_internal.watched_partition AS w (leaf, relation)
    SELECT t.below, t.relation
      FROM tree AS t
      JOIN pg_catalog.pg_class AS c ON c.oid = t.below AND c.relispartition AND c.relkind <> 'p'
        ON CONFLICT (leaf) DO UPDATE
       SET relation = excluded.relation
     WHERE w.relation <> excluded.relation";
const FORGET_PARTITIONS: &str = "
    DELETE FROM automation_internal.watched_partition AS w
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = w.leaf)
        OR NOT EXISTS (SELECT FROM automation_internal.entity_kind AS k WHERE k.relation = w.relation)
        OR EXISTS (SELECT FROM automation_internal.entity_kind AS k WHERE k.relation = w.leaf)";

/// Notes which tables are partitions of watched ones now, and forgets partitions that are gone or watched on their own.
pub fn remember_partitions() {
    as_engine(|| {
        execute(FORGET_PARTITIONS, &[]);
        execute(REMEMBER_PARTITIONS, &[]);
    });
}

// The row lock of the upsert makes the writers of one entity take turns, so each sees the state the other left.
const LOCK_STATE: &str = "
    SELECT s.state::json
      FROM automation_internal.entity_state AS s
     WHERE s.kind = $1 AND s.entity_id = $2
       FOR UPDATE";
const WRITE_STATE: &str = "
    INSERT INTO automation_internal.entity_state AS s (kind, entity_id, state, changed_at)
    VALUES ($1, $2, $3, $4)
        ON CONFLICT (kind, entity_id) DO UPDATE
       SET state = excluded.state,
           changed_at = CASE WHEN s.state = excluded.state THEN s.changed_at ELSE excluded.changed_at END";
const REMOVE_STATE: &str = "DELETE FROM automation_internal.entity_state AS s WHERE s.kind = $1 AND s.entity_id = $2";
const READ_STATE: &str = "
    SELECT s.state::json
      FROM automation_internal.entity_state AS s
     WHERE s.kind = $1 AND s.entity_id = $2";
// A lock on the entity's name, for the first writer of an entity that has no row to lock yet. Not an advisory lock:
// any role can take those.
const CLAIM_STATE: &str = "
    INSERT INTO automation_internal.entity_state AS s (kind, entity_id, state, changed_at)
    VALUES ($1, $2, 'null', $3)
        ON CONFLICT (kind, entity_id) DO NOTHING";

/// Locks the entity and returns its state; None if it does not exist (a placeholder row then holds the lock).
pub fn lock_state(kind: &str, id: &str, now: i64) -> Option<String> {
    as_engine(|| {
        execute(CLAIM_STATE, &[kind.into(), id.into(), Arg::timestamp(now)]);
        query_one(LOCK_STATE, &[kind.into(), id.into()], |row| row.text(1)).flatten().filter(|text| text != "null")
    })
}

pub fn write_state(kind: &str, id: &str, state: &str, now: i64) {
    as_engine(|| execute(WRITE_STATE, &[kind.into(), id.into(), Arg::jsonb(state), Arg::timestamp(now)]));
}

pub fn remove_state(kind: &str, id: &str) {
    as_engine(|| execute(REMOVE_STATE, &[kind.into(), id.into()]));
}

pub fn read_state(kind: &str, id: &str) -> Option<String> {
    as_engine(|| query_one(READ_STATE, &[kind.into(), id.into()], |row| row.text(1)).flatten())
        .filter(|text| text != "null")
}
