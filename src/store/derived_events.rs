//! Rules that derive events from changes.
use pgrx::pg_sys;

use super::automations::note_change;
use crate::pg::clock;
use crate::pg::engine_sql::{Arg, Row, execute, query, query_one};
use crate::pg::identity::as_engine;

/// A rule as it is stored.
#[derive(Clone, Debug)]
pub struct StoredRule {
    pub kind: String,
    pub name: String,
    pub topic: String,
    pub condition: String,
    pub created_by: pg_sys::Oid,
}

fn read(row: &Row<'_>) -> Option<StoredRule> {
    Some(StoredRule {
        kind: row.text(1)?,
        name: row.text(2)?,
        topic: row.text(3)?,
        condition: row.text(4)?,
        created_by: row.oid(5)?,
    })
}

const ALL: &str = "
    SELECT d.kind, d.name, d.topic, d.condition, d.created_by
      FROM automation_internal.derived_event AS d
     ORDER BY d.id";

/// All rules, in the order of registration.
pub fn all() -> Vec<StoredRule> {
    as_engine(|| query(ALL, &[], read)).into_iter().flatten().collect()
}

const FIND: &str = "
    SELECT d.kind, d.name, d.topic, d.condition, d.created_by
      FROM automation_internal.derived_event AS d
     WHERE d.kind = $1 AND d.name = $2
       FOR UPDATE";

/// A rule, locked against other changes of it.
pub fn lock(kind: &str, name: &str) -> Option<StoredRule> {
    as_engine(|| query_one(FIND, &[kind.into(), name.into()], read)).flatten()
}

const SAVE: &str = "
    INSERT INTO automation_internal.derived_event AS d (kind, name, topic, condition, created_by, created_at)
    VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (kind, name) DO UPDATE
       SET topic = excluded.topic, condition = excluded.condition, created_by = excluded.created_by,
           created_at = excluded.created_at
     WHERE (d.topic, d.condition) IS DISTINCT FROM (excluded.topic, excluded.condition)";

/// Adds a rule, or changes one, which keeps its place. False if it was there already.
pub fn save(rule: &StoredRule) -> bool {
    let args = [
        rule.kind.as_str().into(),
        rule.name.as_str().into(),
        rule.topic.as_str().into(),
        rule.condition.as_str().into(),
        rule.created_by.into(),
        Arg::timestamp(clock::now()),
    ];
    let changed = as_engine(|| execute(SAVE, &args)) > 0;
    if changed {
        note_change();
    }
    changed
}

const REMOVE: &str = "DELETE FROM automation_internal.derived_event AS d WHERE d.kind = $1 AND d.name = $2";

pub fn remove(kind: &str, name: &str) {
    as_engine(|| execute(REMOVE, &[kind.into(), name.into()]));
    note_change();
}

const FORGET_KIND: &str = "DELETE FROM automation_internal.derived_event AS d WHERE d.kind = $1";

/// The kind is not watched any more.
pub fn forget_kind(kind: &str) {
    if as_engine(|| execute(FORGET_KIND, &[kind.into()])) > 0 {
        note_change();
    }
}

const COUNT: &str = "SELECT pg_catalog.count(*) FROM automation_internal.derived_event AS d";

pub fn count() -> i64 {
    as_engine(|| query_one(COUNT, &[], |row| row.int8(1))).flatten().unwrap_or_default()
}
