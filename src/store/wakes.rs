//! The wake-index: which changes, events, signals and ends of runs may end a wait.
use std::collections::HashSet;

use automation_core::ids::{AutomationId, RunId, VersionId, WaitNo};
use pgrx::pg_sys;

use crate::pg::append::{append_plain, text_varlena};
use crate::pg::engine_sql::{Arg, Row, execute, query};
use crate::pg::identity::as_engine;
use crate::pg::table_scan::has_pages;

/// Where a wake can come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The state of an entity.
    State,
    /// A topic.
    Topic,
    /// A topic that matches a pattern.
    Pattern,
    /// A signal.
    Signal,
    /// Another run.
    Run,
}

impl Source {
    fn code(self) -> u8 {
        match self {
            Source::State => b's',
            Source::Topic => b't',
            Source::Pattern => b'p',
            Source::Signal => b'g',
            Source::Run => b'r',
        }
    }

    fn letter(self) -> &'static str {
        match self {
            Source::State => "s",
            Source::Topic => "t",
            Source::Pattern => "p",
            Source::Signal => "g",
            Source::Run => "r",
        }
    }
}

/// Whose wait it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub run_id: RunId,
    pub wait_no: WaitNo,
    pub owner: pg_sys::Oid,
    pub automation_id: AutomationId,
    pub version_id: VersionId,
}

/// A row of the index.
#[derive(Clone, Debug, PartialEq)]
pub struct Wake {
    pub waiter: Waiter,
    pub source: Source,
    pub kind: String,
    /// None: the wait is for any entity of the kind.
    pub entity_id: Option<String>,
}

pub fn insert(rows: &[Wake]) -> bool {
    append_plain(
        "wake_index",
        rows.iter().map(|row| {
            [
                Some(pg_sys::Datum::from(row.waiter.run_id.0)),
                Some(pg_sys::Datum::from(row.waiter.wait_no.0)),
                Some(pg_sys::Datum::from(row.waiter.owner)),
                Some(pg_sys::Datum::from(row.waiter.automation_id.0)),
                Some(pg_sys::Datum::from(row.waiter.version_id.0)),
                Some(pg_sys::Datum::from(row.source.code() as i8)),
                Some(text_varlena(&row.kind)),
                row.entity_id.as_ref().map(|id| text_varlena(id)),
            ]
        }),
    )
}

const DELETE: &str = "
    DELETE FROM automation_internal.wake_index AS w
     USING unnest($1::bigint[], $2::bigint[]) AS k (run_id, wait_no)
     WHERE w.run_id = k.run_id
       AND w.wait_no = k.wait_no";

/// Removes the rows of these waits.
pub fn delete(waits: &[(RunId, WaitNo)]) {
    let (runs, numbers): (Vec<i64>, Vec<i64>) = waits.iter().map(|(run, no)| (run.0, i64::from(no.0))).unzip();
    if !runs.is_empty() {
        as_engine(|| execute(DELETE, &[Arg::int8s(&runs), Arg::int8s(&numbers)]));
    }
}

const OF_RUN: &str = "SELECT w.wait_no FROM automation_internal.wake_index AS w WHERE w.run_id = $1";

/// The waits of a run that have rows in the index.
pub fn of_run(run: RunId) -> HashSet<WaitNo> {
    as_engine(|| query(OF_RUN, &[run.0.into()], |row| row.int4(1).map(WaitNo))).into_iter().flatten().collect()
}

/// The key of an event or change whose waiters are looked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub source: Source,
    pub kind: String,
    /// None: waits for any entity and for each of them.
    pub entity_id: Option<String>,
}

// Each part fits the index: a known id, the waits for any, and, where the change itself means all, every wait.
pub const FIND: &str = "
    SELECT k.place, w.run_id, w.wait_no, w.owner, w.automation_id, w.version_id
      FROM ROWS FROM (unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bigint[]))
           AS k (source, kind, entity_id, place)
     CROSS JOIN LATERAL (
           SELECT e.run_id, e.wait_no, e.owner, e.automation_id, e.version_id
             FROM automation_internal.wake_index AS e
            WHERE e.source = k.source::\"char\" AND e.kind = k.kind AND e.entity_id = k.entity_id
            UNION ALL
           SELECT e.run_id, e.wait_no, e.owner, e.automation_id, e.version_id
             FROM automation_internal.wake_index AS e
            WHERE e.source = k.source::\"char\" AND e.kind = k.kind AND e.entity_id IS NULL) AS w
     ORDER BY k.place, w.run_id, w.wait_no";
pub const FIND_ANY: &str = "
    SELECT k.place, w.run_id, w.wait_no, w.owner, w.automation_id, w.version_id
      FROM ROWS FROM (unnest($1::text[]), unnest($2::text[]), unnest($3::bigint[])) AS k (source, kind, place)
      JOIN automation_internal.wake_index AS w ON w.source = k.source::\"char\" AND w.kind = k.kind
     ORDER BY k.place, w.run_id, w.wait_no";

/// The waits for one of these keys: (place of the key, waiter). A waiter may be found more than once.
pub fn find(keys: &[Key]) -> Vec<(usize, Waiter)> {
    let read = |row: &Row<'_>| {
        let waiter = Waiter {
            run_id: RunId(row.int8(2)?),
            wait_no: WaitNo(row.int4(3)?),
            owner: row.oid(4)?,
            automation_id: AutomationId(row.int4(5)?),
            version_id: VersionId(row.int4(6)?),
        };
        Some((row.int8(1)? as usize, waiter))
    };
    let numbered: Vec<(i64, &Key)> = keys.iter().enumerate().map(|(place, key)| (place as i64, key)).collect();
    let (exact, any): (Vec<_>, Vec<_>) = numbered.into_iter().partition(|(_, key)| key.entity_id.is_some());
    let column = |of: &[(i64, &Key)], text: fn(&Key) -> &str| -> Vec<String> {
        of.iter().map(|(_, key)| text(key).to_owned()).collect()
    };
    let places = |of: &[(i64, &Key)]| -> Vec<i64> { of.iter().map(|(place, _)| *place).collect() };
    let mut found = Vec::new();
    as_engine(|| {
        if !exact.is_empty() {
            let args = [
                Arg::texts(&column(&exact, |key| key.source.letter())),
                Arg::texts(&column(&exact, |key| &key.kind)),
                Arg::texts(&column(&exact, |key| key.entity_id.as_deref().unwrap_or_default())),
                Arg::int8s(&places(&exact)),
            ];
            found.extend(query(FIND, &args, read));
        }
        if !any.is_empty() {
            let args = [
                Arg::texts(&column(&any, |key| key.source.letter())),
                Arg::texts(&column(&any, |key| &key.kind)),
                Arg::int8s(&places(&any)),
            ];
            found.extend(query(FIND_ANY, &args, read));
        }
    });
    found.into_iter().flatten().collect()
}

/// Does any run wait for an entity of this kind?
pub fn is_awaited(kind: &str) -> bool {
    any() && !find(&[Key { source: Source::State, kind: kind.to_owned(), entity_id: None }]).is_empty()
}

const OF_KIND: &str = "
    SELECT DISTINCT w.owner
      FROM automation_internal.wake_index AS w
     WHERE (w.source = 's' AND w.kind = $1)
        OR (w.source IN ('t', 'p') AND pg_catalog.split_part(w.kind, '.', 1) = $1)";

/// The owners of runs that wait for entities of a kind, or for events whose topics begin with its name.
pub fn listeners_of_kind(kind: &str) -> Vec<pg_sys::Oid> {
    if !any() {
        return Vec::new();
    }
    as_engine(|| query(OF_KIND, &[kind.into()], |row| row.oid(1))).into_iter().flatten().collect()
}

// Goes from one pattern to the next along the index, however many runs wait for each.
const PATTERNS: &str = "
    WITH RECURSIVE p AS (
        (SELECT w.kind FROM automation_internal.wake_index AS w WHERE w.source = 'p' ORDER BY w.kind LIMIT 1)
        UNION ALL
        SELECT (SELECT w.kind FROM automation_internal.wake_index AS w
                 WHERE w.source = 'p' AND w.kind > p.kind ORDER BY w.kind LIMIT 1)
          FROM p
         WHERE p.kind IS NOT NULL)
    SELECT p.kind FROM p WHERE p.kind IS NOT NULL";

/// The patterns that some run waits for.
pub fn patterns() -> Vec<String> {
    as_engine(|| query(PATTERNS, &[], |row| row.text(1))).into_iter().flatten().collect()
}

/// May a run have a wait in the wake-index? Never false while one has.
pub fn any() -> bool {
    has_pages("wake_index")
}
