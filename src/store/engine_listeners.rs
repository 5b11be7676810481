//! The automations, runs and subscriptions that listen to the engine's own events, and names for the contents of those
//! events.
use automation_core::ids::{AutomationId, EventId, VersionId};
use automation_core::topic::engine::{Told, Wanted};

use super::{subscriptions, wakes};
use crate::pg::engine_sql::{Arg, execute, query, query_one};
use crate::pg::identity::as_engine;
use crate::pg::table_scan::{each_row, has_pages};

const FORGET: &str = "DELETE FROM automation_internal.engine_listener AS l WHERE l.automation_id = $1";
const ADD: &str = "
    INSERT INTO automation_internal.engine_listener (automation_id, version_id, pattern)
    SELECT DISTINCT $1, $2, p.pattern
      FROM unnest($3::text[]) AS p (pattern)";

/// Replaces the patterns that the current version of an automation listens to.
pub fn replace(automation: AutomationId, version: VersionId, patterns: &[String]) {
    if patterns.is_empty() && !any_trigger() {
        return;
    }
    as_engine(|| {
        execute(FORGET, &[automation.0.into()]);
        if !patterns.is_empty() {
            execute(ADD, &[automation.0.into(), version.0.into(), Arg::texts(patterns)]);
        }
    });
}

fn any_trigger() -> bool {
    let mut any = false;
    each_row("engine_listener", |_| any = true);
    any
}

const TRIGGERS: &str = "
    SELECT l.pattern
      FROM automation_internal.engine_listener AS l
      JOIN automation_internal.automation AS a ON a.id = l.automation_id
     WHERE a.status = 'active'";
const WAITS: &str = "
    SELECT t.topic
      FROM unnest($1::text[]) AS t (topic)
     WHERE EXISTS (SELECT FROM automation_internal.wake_index AS w WHERE w.source = 't' AND w.kind = t.topic)
     UNION ALL
    SELECT '#'
     WHERE EXISTS (SELECT FROM automation_internal.wake_index AS w WHERE w.source = 'p')";

/// The engine's events that active automations and waiting runs listen to. Without a listener, which is usual, this
/// reads no row.
pub fn wanted() -> Wanted {
    let mut patterns: Vec<String> = subscriptions::all().into_iter().map(|told| told.pattern).collect();
    if any_trigger() {
        patterns.extend(as_engine(|| query(TRIGGERS, &[], |row| row.text(1))).into_iter().flatten());
    }
    if has_pages("wake_index") {
        let topics = Told::ALL.map(Told::topic);
        let waits = as_engine(|| query(WAITS, &[Arg::texts(&topics)], |row| row.text(1)));
        // Reading the list of patterns takes longer than finding that there are none.
        if waits.iter().flatten().any(|topic| topic == "#") {
            patterns.extend(wakes::patterns());
        }
        patterns.extend(waits.into_iter().flatten());
    }
    Wanted::by(patterns)
}

const NAME: &str = "SELECT a.name FROM automation_internal.automation AS a WHERE a.id = $1";

pub fn name_of(automation: AutomationId) -> Option<String> {
    as_engine(|| query_one(NAME, &[automation.0.into()], |row| row.text(1))).flatten()
}

// From the event that started a run to the run that caused it, and so on. No chain is longer than its limit.
const ANCESTORS: &str = "
    WITH RECURSIVE up (run_id, place) AS (
        SELECT e.cause_run, 1
          FROM automation_internal.event AS e
         WHERE e.id = $1
         UNION ALL
        SELECT e.cause_run, u.place + 1
          FROM up AS u
          JOIN LATERAL (SELECT h.event_id FROM automation_internal.run_history AS h WHERE h.id = u.run_id
                         UNION ALL
                        SELECT l.event_id FROM automation_internal.run AS l WHERE l.id = u.run_id
                         LIMIT 1) AS r ON true
          JOIN automation_internal.event AS e ON e.id = r.event_id
         WHERE u.place < 100)
    SELECT a.name
      FROM up AS u
      JOIN LATERAL (SELECT h.automation_id FROM automation_internal.run_history AS h WHERE h.id = u.run_id
                     UNION ALL
                    SELECT l.automation_id FROM automation_internal.run AS l WHERE l.id = u.run_id
                     LIMIT 1) AS r ON true
      JOIN automation_internal.automation AS a ON a.id = r.automation_id
     ORDER BY u.place";

/// The automations whose runs led to an event, the nearest first.
pub fn ancestors(event: EventId) -> Vec<String> {
    as_engine(|| query(ANCESTORS, &[event.0.into()], |row| row.text(1))).into_iter().flatten().collect()
}
