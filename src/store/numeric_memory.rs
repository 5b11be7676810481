//! Remembers of numbers that cannot be worked out at the moment whether they were outside the range of their trigger
//! before. A row written before a pause or a change of the trigger does not count; it stays until it is written anew or
//! too old, so that a session that pauses an automation never blocks the router.
use automation_core::ids::AutomationId;
use automation_core::program::Trigger;

use crate::pg::clock::{self, Micros};
use crate::pg::engine_sql::{Arg, execute, query_one};
use crate::pg::identity::as_engine;

const RECALL: &str = "
    SELECT m.armed
      FROM automation_internal.numeric_memory AS m
      JOIN automation_internal.automation AS a ON a.id = m.automation_id AND a.active_since = m.active_since
     WHERE m.automation_id = $1
       AND m.trigger_id = $2
       AND m.key = $3
       AND m.fingerprint = $4";

/// Was the number outside the range? None if nothing is known.
pub fn recall(automation: AutomationId, trigger: &Trigger, key: &str) -> Option<bool> {
    let args = [automation.0.into(), trigger.id.as_str().into(), key.into(), trigger.fingerprint.into()];
    as_engine(|| query_one(RECALL, &args, |row| row.bool(1))).flatten()
}

const REMEMBER: &str = "
    INSERT INTO automation_internal.numeric_memory (automation_id, trigger_id, key, fingerprint, active_since, armed, at)
    SELECT a.id, $2, $3, $4, a.active_since, $5, $6
      FROM automation_internal.automation AS a
     WHERE a.id = $1
       AND a.active_since IS NOT NULL
        ON CONFLICT (automation_id, trigger_id, key) DO UPDATE
       SET fingerprint = excluded.fingerprint, active_since = excluded.active_since, armed = excluded.armed,
           at = excluded.at";

/// Notes whether the number was outside the range.
pub fn remember(automation: AutomationId, trigger: &Trigger, key: &str, armed: bool) {
    let args = [
        automation.0.into(),
        trigger.id.as_str().into(),
        key.into(),
        trigger.fingerprint.into(),
        armed.into(),
        Arg::timestamp(clock::now()),
    ];
    as_engine(|| execute(REMEMBER, &args));
}

const FORGET: &str = "
    DELETE FROM automation_internal.numeric_memory AS m
     WHERE m.automation_id = $1
       AND m.trigger_id = $2
       AND m.key = $3";

/// The number can be worked out again.
pub fn forget(automation: AutomationId, trigger: &Trigger, key: &str) {
    as_engine(|| execute(FORGET, &[automation.0.into(), trigger.id.as_str().into(), key.into()]));
}

/// How long a number is remembered that cannot be worked out.
const MEMORY: Micros = 31 * 86_400_000_000;

const PRUNE: &str = "DELETE FROM automation_internal.numeric_memory AS m WHERE m.at < $1";

/// Forgets numbers that could not be worked out for long.
pub fn prune(now: Micros) {
    as_engine(|| execute(PRUNE, &[Arg::timestamp(now - MEMORY)]));
}
