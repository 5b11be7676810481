//! The time of the last change of each field that a condition with `for` reads. Only the holder of the router's cursor
//! writes these times, so no writer waits for another. The list of followed fields is written by every router that
//! finds a new definition; a worker does not wait there for a session whose transaction is open.
use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::as_engine;

const FOLLOW: &str = "
    WITH wanted AS (
        SELECT w.kind, w.field
          FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS w (kind, field)),
    unwanted AS (
        DELETE FROM automation_internal.tracked_field AS t
         WHERE NOT EXISTS (SELECT FROM wanted AS w WHERE w.kind = t.kind AND w.field = t.field)
     RETURNING t.kind, t.field),
    forgotten AS (
        DELETE FROM automation_internal.field_change AS c
         USING unwanted AS u
         WHERE c.kind = u.kind AND c.field = u.field)
    INSERT INTO automation_internal.tracked_field AS t (kind, field, since)
    SELECT w.kind, w.field, $3
      FROM wanted AS w
        ON CONFLICT (kind, field) DO NOTHING";

/// From now on exactly these kinds and fields are followed.
pub fn follow(kinds: &[&str], fields: &[&str], now: Micros) {
    as_engine(|| execute(FOLLOW, &[Arg::texts(kinds), Arg::texts(fields), Arg::timestamp(now)]));
}

/// A change of a field that is followed.
pub struct FieldChange<'a> {
    pub kind: &'a str,
    pub field: &'a str,
    pub entity_id: &'a str,
    pub at: Micros,
}

const RECORD: &str = "
    INSERT INTO automation_internal.field_change AS c (kind, field, entity_id, changed_at)
    SELECT n.kind, n.field, n.entity_id, n.changed_at
      FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3), pg_catalog.unnest($4))
           AS n (kind, field, entity_id, changed_at)
        ON CONFLICT (kind, field, entity_id) DO UPDATE SET changed_at = excluded.changed_at
     WHERE c.changed_at < excluded.changed_at";

/// Notes changes, no two of the same field of an entity.
pub fn record(changes: &[FieldChange<'_>]) {
    let texts = |text: fn(&FieldChange<'_>) -> String| changes.iter().map(text).collect::<Vec<_>>();
    let times: Vec<Micros> = changes.iter().map(|change| change.at).collect();
    let args = [
        Arg::texts(&texts(|change| change.kind.to_owned())),
        Arg::texts(&texts(|change| change.field.to_owned())),
        Arg::texts(&texts(|change| change.entity_id.to_owned())),
        Arg::timestamps(&times),
    ];
    as_engine(|| execute(RECORD, &args));
}

const ALL_CHANGED: &str = "
    UPDATE automation_internal.tracked_field AS t
       SET since = $2
     WHERE t.kind = $1 AND t.since < $2";

/// Every entity of a kind changed: its table was truncated.
pub fn all_changed(kind: &str, at: Micros) {
    as_engine(|| execute(ALL_CHANGED, &[kind.into(), Arg::timestamp(at)]));
}

// No condition asks for more than 30 days. The time of an older change need not be known exactly: it is as if the
// field had been followed since then.
const FORGET_OLD: &str = "
    WITH moved AS (
        UPDATE automation_internal.tracked_field AS t
           SET since = $1
         WHERE t.since < $1)
    DELETE FROM automation_internal.field_change AS c WHERE c.changed_at <= $1";

/// Drops changes that are too old for any condition to tell apart.
pub fn forget_older_than(at: Micros) {
    as_engine(|| execute(FORGET_OLD, &[Arg::timestamp(at)]));
}

const CHANGED_AT: &str = "
    SELECT GREATEST(t.since, k.created_at, c.changed_at)
      FROM automation_internal.tracked_field AS t
      JOIN automation_internal.entity_kind AS k ON k.kind = t.kind
      LEFT JOIN automation_internal.field_change AS c
        ON c.kind = t.kind AND c.field = t.field AND c.entity_id = $3
     WHERE t.kind = $1 AND t.field = $2";

/// The last moment at which the field may have changed, as far as the log has been routed; None if it is not followed.
pub fn changed_at(kind: &str, field: &str, entity_id: &str) -> Option<Micros> {
    as_engine(|| query_one(CHANGED_AT, &[kind.into(), field.into(), entity_id.into()], |row| row.int8(1))).flatten()
}

const STATE_CHANGED_AT: &str = "
    SELECT s.changed_at
      FROM automation_internal.entity_state AS s
     WHERE s.kind = $1 AND s.entity_id = $2";

/// When the state of an entity without a table last changed.
pub fn state_changed_at(kind: &str, entity_id: &str) -> Option<Micros> {
    as_engine(|| query_one(STATE_CHANGED_AT, &[kind.into(), entity_id.into()], |row| row.int8(1))).flatten()
}
