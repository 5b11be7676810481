//! The engine's log of findings that belong to no single run, the audit of changes by users, and dead letters.
use std::cell::RefCell;
use std::collections::HashMap;

use automation_core::ids::{AutomationId, EventId, RunId};
use pgrx::pg_sys;

use crate::pg::clock::{self, Micros};
use crate::pg::engine_sql::{Arg, execute, query, query_one};
use crate::pg::identity::{as_engine, current_user};
use crate::pg::names;

const WRITE: &str = "
    INSERT INTO automation_internal.log (level, code, automation_id, owner, run_id, event_id, message, detail, times)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
 RETURNING id";

const AGAIN: &str = "
    UPDATE automation_internal.log AS l
       SET times = l.times + $2, event_id = COALESCE($3, l.event_id)
     WHERE l.id = $1";

/// So long the same entry is counted instead of written again, in microseconds.
const FOLDED: Micros = 60_000_000;
/// Most entries of one code that one process writes for one owner in a minute.
const MOST_PER_MINUTE: u32 = 1000;
const MINUTE: Micros = 60_000_000;
/// So many entries are remembered for folding.
const REMEMBERED: usize = 1000;
/// How many old rows are forgotten at once.
const SLICE: i64 = 10_000;

/// The fields by which two entries count as the same: code, automation, owner, message and detail.
type Same = (String, Option<AutomationId>, Option<pg_sys::Oid>, String, Option<String>);

/// How many entries there were, by owner and code.
type Counts = HashMap<(Option<pg_sys::Oid>, String), u32>;

thread_local! {
    /// The rows of entries that may be repeated, and when they were written.
    static RECENT: RefCell<HashMap<Same, (i64, Micros)>> = RefCell::new(HashMap::new());
    /// The minute that is counted, and how many entries each owner had in it, by code.
    static COUNTED: RefCell<(Micros, Counts)> = RefCell::new((0, Counts::new()));
}

/// An entry of the log.
#[derive(Default)]
pub struct Entry<'a> {
    pub code: &'a str,
    pub automation_id: Option<AutomationId>,
    pub owner: Option<pg_sys::Oid>,
    pub run_id: Option<RunId>,
    pub event_id: Option<EventId>,
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

/// A warning that may come again and again: for a minute the same is counted in the row that is there.
pub fn repeated_warning(entry: &Entry<'_>, times: i64) {
    let now = clock::now();
    let text = |text: &str| text.to_owned();
    let same = (text(entry.code), entry.automation_id, entry.owner, text(entry.message), entry.detail.map(text));
    let recent = RECENT.with_borrow(|recent| recent.get(&same).copied());
    if let Some((row, at)) = recent.filter(|(_, at)| now - at < FOLDED && now >= *at) {
        // The row may be gone: by retention, or because the transaction that wrote it was rolled back.
        if as_engine(|| execute(AGAIN, &[row.into(), times.into(), entry.event_id.map(|id| id.0).into()])) == 1 {
            RECENT.with_borrow_mut(|recent| recent.insert(same, (row, at)));
            return;
        }
    }
    if let Some(row) = write_times("warning", entry, times) {
        RECENT.with_borrow_mut(|recent| {
            if recent.len() >= REMEMBERED {
                recent.clear();
            }
            recent.insert(same, (row, now));
        });
    }
}

fn write(level: &str, entry: &Entry<'_>) {
    write_times(level, entry, 1);
}

/// Writes an entry, unless its owner has had very many in this minute: the log must not fill the disk.
fn write_times(level: &str, entry: &Entry<'_>, times: i64) -> Option<i64> {
    let now = clock::now();
    let count = COUNTED.with_borrow_mut(|(minute, counts)| {
        if now / MINUTE != *minute {
            (*minute, *counts) = (now / MINUTE, HashMap::new());
        }
        let count = counts.entry((entry.owner, entry.code.to_owned())).or_default();
        *count = count.saturating_add(1);
        *count
    });
    if count > MOST_PER_MINUTE + 1 {
        return None;
    }
    let left_out = format!("further entries \"{}\" of this minute are left out: there are very many", entry.code);
    let last = Entry { code: "entries_left_out", owner: entry.owner, message: &left_out, ..Default::default() };
    let entry = if count > MOST_PER_MINUTE { &last } else { entry };
    let args = [
        level.into(),
        entry.code.into(),
        entry.automation_id.map(|id| id.0).into(),
        entry.owner.into(),
        entry.run_id.map(|id| id.0).into(),
        entry.event_id.map(|id| id.0).into(),
        entry.message.into(),
        entry.detail.into(),
        times.into(),
    ];
    as_engine(|| query_one(WRITE, &args, |row| row.int8(1))).flatten()
}

// The oldest rows have the lowest ids: only so many of them are looked at.
const PRUNE_LOG: &str = "
    DELETE FROM automation_internal.log AS l
     USING (SELECT o.id, o.at FROM automation_internal.log AS o ORDER BY o.id LIMIT $2) AS oldest
     WHERE l.id = oldest.id AND oldest.at < $1";

const PRUNE_AUDIT: &str = "
    DELETE FROM automation_internal.audit AS u
     USING (SELECT o.id, o.at FROM automation_internal.audit AS o ORDER BY o.id LIMIT $2) AS oldest
     WHERE u.id = oldest.id AND oldest.at < $1";

/// Forgets a slice of the entries that are older than that.
pub fn prune_log(before: Micros) -> u64 {
    as_engine(|| execute(PRUNE_LOG, &[Arg::timestamp(before), SLICE.into()]))
}

/// Forgets a slice of the audit's rows that are older than that.
pub fn prune_audit(before: Micros) -> u64 {
    as_engine(|| execute(PRUNE_AUDIT, &[Arg::timestamp(before), SLICE.into()]))
}

const TALKATIVE: &str = "
    SELECT l.owner
      FROM automation_internal.log AS l
     WHERE l.owner IS NOT NULL
     GROUP BY l.owner
    HAVING pg_catalog.count(*) > $1";

const PRUNE_OWNER: &str = "
    DELETE FROM automation_internal.log AS l
     USING (SELECT o.id FROM automation_internal.log AS o
             WHERE o.owner = $1 ORDER BY o.id DESC OFFSET $2 LIMIT $3) AS oldest
     WHERE l.id = oldest.id";

/// Forgets a slice of the entries that each owner has beyond so many.
pub fn prune_owners(most: i64) {
    as_engine(|| {
        for owner in query(TALKATIVE, &[most.into()], |row| row.oid(1)).into_iter().flatten() {
            execute(PRUNE_OWNER, &[owner.into(), most.into(), SLICE.into()]);
        }
    });
}

const AUDIT: &str = "
    INSERT INTO automation_internal.audit (at, role_id, role, action, automation, details, owner)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Records an act of the current user that concerns no other role's things: the row is for that user alone.
pub fn audit(action: &str, automation: &str, details: &serde_json::Value) {
    audit_of(None, action, automation, details);
}

/// Records an act of the current user on something of `owner`; that role sees the row as well. The owner stands in
/// the row itself: names of automations are free again after a drop, and the next owner of a name must not see the
/// row.
pub fn audit_of(owner: Option<pg_sys::Oid>, action: &str, automation: &str, details: &serde_json::Value) {
    audit_as(&names::role_name(current_user()).unwrap_or_default(), owner, action, automation, details);
}

/// Records an act of the engine itself on something of `owner`, under a name that tells which part of the engine it
/// was.
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

/// Keeps a run or event that the engine gave up on as a dead letter.
pub fn dead_letter(entry: &Entry<'_>, error: &str) {
    as_engine(|| {
        execute(
            DEAD_LETTER,
            &[
                Arg::timestamp(clock::now()),
                entry.run_id.map(|id| id.0).into(),
                entry.event_id.map(|id| id.0).into(),
                entry.automation_id.map(|id| id.0).into(),
                entry.owner.into(),
                entry.code.into(),
                Arg::json(error),
            ],
        )
    });
}

/// A dead letter: a run, an event or a message that the engine gave up on.
pub struct Letter {
    pub owner: Option<pgrx::pg_sys::Oid>,
    pub run_id: Option<RunId>,
    pub event_id: Option<EventId>,
}

const LETTER: &str = "
    SELECT d.owner, d.run_id, d.event_id
      FROM automation_internal.dead_letter AS d
     WHERE d.id = $1
       FOR UPDATE";

/// Locks a dead letter.
pub fn letter(id: i64) -> Option<Letter> {
    as_engine(|| {
        query_one(LETTER, &[id.into()], |row| Letter {
            owner: row.oid(1),
            run_id: row.int8(2).map(RunId),
            event_id: row.int8(3).map(EventId),
        })
    })
}

const FORGET_LETTER: &str = "DELETE FROM automation_internal.dead_letter AS d WHERE d.id = $1";

/// Deletes a dead letter that is being tried again.
pub fn forget_letter(id: i64) {
    as_engine(|| execute(FORGET_LETTER, &[id.into()]));
}
