//! What the engine has to say that belongs to no single run, and who changed what.
use pgrx::pg_sys;

use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::{as_engine, current_user};
use crate::pg::{clock, names};

const WRITE: &str = "
    INSERT INTO automation_internal.log (level, code, automation_id, owner, run_id, event_id, message, detail)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

/// An entry of the log.
#[derive(Default)]
pub struct Entry<'a> {
    pub code: &'a str,
    pub automation_id: Option<i32>,
    pub owner: Option<pg_sys::Oid>,
    pub run_id: Option<i64>,
    pub event_id: Option<i64>,
    pub message: &'a str,
    pub detail: Option<&'a str>,
}

pub fn info(entry: &Entry<'_>) {
    write("info", entry);
}

pub fn warning(entry: &Entry<'_>) {
    write("warning", entry);
}

pub fn error(entry: &Entry<'_>) {
    write("error", entry);
}

fn write(level: &str, entry: &Entry<'_>) {
    as_engine(|| {
        execute(
            WRITE,
            &[
                level.into(),
                entry.code.into(),
                entry.automation_id.into(),
                entry.owner.into(),
                entry.run_id.into(),
                entry.event_id.into(),
                entry.message.into(),
                entry.detail.into(),
            ],
        )
    });
}

const AUDIT: &str = "
    INSERT INTO automation_internal.audit (at, role_id, role, action, automation, details, owner)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Records an act of the current user that concerns no other role's things: the row is for that user alone.
pub fn audit(action: &str, automation: &str, details: &serde_json::Value) {
    audit_of(None, action, automation, details);
}

/// Records an act of the current user on something of `owner`, who sees the row as well. The owner stands in the row
/// itself: names of automations are free again after a drop, and their next owner has no business with it.
pub fn audit_of(owner: Option<pg_sys::Oid>, action: &str, automation: &str, details: &serde_json::Value) {
    audit_as(&names::role_name(current_user()).unwrap_or_default(), owner, action, automation, details);
}

/// Records an act of the engine itself on something of `owner`, under a name that tells which part of the engine it was.
pub fn audit_as(name: &str, owner: Option<pg_sys::Oid>, action: &str, automation: &str, details: &serde_json::Value) {
    let user = current_user();
    as_engine(|| {
        execute(
            AUDIT,
            &[
                Arg::timestamp(clock::now()),
                user.into(),
                name.into(),
                action.into(),
                automation.into(),
                Arg::jsonb(&details.to_string()),
                owner.into(),
            ],
        )
    });
}

const DEAD_LETTER: &str = "
    INSERT INTO automation_internal.dead_letter (at, run_id, event_id, automation_id, owner, reason, error)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Keeps what the engine gave up on.
pub fn dead_letter(entry: &Entry<'_>, error: &str) {
    as_engine(|| {
        execute(
            DEAD_LETTER,
            &[
                Arg::timestamp(clock::now()),
                entry.run_id.into(),
                entry.event_id.into(),
                entry.automation_id.into(),
                entry.owner.into(),
                entry.code.into(),
                Arg::json(error),
            ],
        )
    });
}

/// Something the engine gave up on.
pub struct Letter {
    pub owner: Option<pgrx::pg_sys::Oid>,
    pub run_id: Option<i64>,
    pub event_id: Option<i64>,
}

const LETTER: &str = "
    SELECT d.owner, d.run_id, d.event_id
      FROM automation_internal.dead_letter AS d
     WHERE d.id = $1
       FOR UPDATE";

/// Locks a dead letter.
pub fn letter(id: i64) -> Option<Letter> {
    as_engine(|| {
        query_one(LETTER, &[id.into()], |row| Letter { owner: row.oid(1), run_id: row.int8(2), event_id: row.int8(3) })
    })
}

const FORGET_LETTER: &str = "DELETE FROM automation_internal.dead_letter AS d WHERE d.id = $1";

/// It is being tried again.
pub fn forget_letter(id: i64) {
    as_engine(|| execute(FORGET_LETTER, &[id.into()]));
}
