//! Whether a role may run automations here, now.
use automation_core::ids::{AutomationId, RunId};
use pgrx::pg_sys;

use super::log::{self, Entry};
use crate::gucs;
use crate::pg::engine_sql::query;
use crate::pg::identity::{self, as_engine};
use crate::pg::read_only;

/// Why this role's automations cannot run here, now; None if they can. Asked of the catalog caches after taking in the
/// changes of other sessions, so the answer is as new as a new log-in would get and depends on no role's rights.
pub fn refusal(owner: pg_sys::Oid) -> Option<String> {
    let Some(role) = identity::login_rights(owner) else {
        return Some(format!("role {} does not exist any more", owner.to_u32()));
    };
    let name = &role.name;
    if role.superuser && !gucs::allow_superuser_automations() {
        Some(format!("role \"{name}\" is a superuser and automation_engine.allow_superuser_automations is off"))
    } else if !role.can_login {
        Some(format!("role \"{name}\" is not permitted to log in"))
    } else if role.has_expired {
        Some(format!("role \"{name}\" has expired"))
    } else if role.without_connections {
        Some(format!("role \"{name}\" has a connection limit of 0"))
    } else if !role.can_connect {
        Some(format!("role \"{name}\" may not connect to this database"))
    } else if read_only::of_role(owner) {
        Some(format!("role \"{name}\" has default_transaction_read_only on"))
    } else {
        None
    }
}

const LAST: &str = "
    SELECT l.message
      FROM automation_internal.log AS l
     WHERE l.owner = $1
       AND l.code IN ('owner_refused', 'owner_accepted')
     ORDER BY l.id DESC
     LIMIT 1";

/// Says in the log why an owner's work does not run, once per reason.
pub fn log_refusal(owner: pg_sys::Oid, reason: &str) {
    let last = as_engine(|| query(LAST, &[owner.into()], |row| row.text(1))).into_iter().flatten().next();
    if last.as_deref() != Some(reason) {
        log::error(&Entry { code: "owner_refused", owner: Some(owner), message: reason, ..Default::default() });
    }
}

/// Says in the log that the work of an owner that was refused goes on.
pub fn log_acceptance(owner: pg_sys::Oid) {
    let name = crate::pg::names::role_name(owner).unwrap_or_default();
    let message = format!("role \"{name}\" may run its automations again");
    log::info(&Entry { code: "owner_accepted", owner: Some(owner), message: &message, ..Default::default() });
}

const RETIRE: &str = "
    UPDATE automation_internal.automation AS a
       SET status = 'paused',
           paused_at = pg_catalog.now(),
           disabled_by = 'system',
           disable_details = pg_catalog.jsonb_build_object('reason', 'owner_dropped', 'owner', a.owner_name,
                                                           'disabled_at', pg_catalog.now())
     WHERE a.status = 'active'
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid = a.owner)
 RETURNING a.id";
const CANCEL: &str = "
    WITH gone AS (
        DELETE FROM automation_internal.dispatch AS d
         WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid = d.owner)
           AND d.reason IN ('t', 'm')
     RETURNING d.*)
    INSERT INTO automation_internal.run_history
           (id, event_id, event_at, started_at, ended_at, owner, automation_id, version_id, trigger_no, attempt, depth,
            status, ended_reason)
    SELECT g.run_id, g.event_id, g.event_at, pg_catalog.now(), pg_catalog.now(), g.owner, g.automation_id, g.version_id,
           g.trigger_no, g.attempt, 0, 'cancelled', 'owner_dropped'
      FROM gone AS g";

const FORGET_WAKES: &str = "
    DELETE FROM automation_internal.dispatch AS d
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid = d.owner)
       AND d.reason NOT IN ('t', 'm')
 RETURNING d.run_id";

/// Pauses the automations of roles that are gone and cancels their queued runs. The oid decides: a role that was
/// renamed is the same owner, a new role of the same name is not. Returns the runs of such roles that were to be woken.
pub fn retire_dropped() -> Vec<RunId> {
    let retired = as_engine(|| query(RETIRE, &[], |row| row.int4(1).map(AutomationId)));
    if !retired.is_empty() {
        super::automations::note_change();
    }
    for id in retired {
        log::error(&Entry {
            code: "owner_dropped",
            automation_id: id,
            message: "automation paused: its owner does not exist any more",
            ..Default::default()
        });
    }
    as_engine(|| {
        crate::pg::engine_sql::execute(CANCEL, &[]);
        query(FORGET_WAKES, &[], |row| row.int8(1).map(RunId)).into_iter().flatten().collect()
    })
}

/// Brings the column that keeps a role's name up to date.
macro_rules! renamed {
    ($table:literal, $role:literal, $name:literal) => {
        concat!(
            "UPDATE automation_internal.",
            $table,
            " AS t SET ",
            $name,
            " = r.rolname FROM pg_catalog.pg_roles AS r WHERE r.oid = t.",
            $role,
            " AND r.rolname <> t.",
            $name
        )
    };
}

const RENAMED: [&str; 4] = [
    renamed!("automation", "owner", "owner_name"),
    renamed!("secret", "owner", "owner_name"),
    renamed!("endpoint", "owner", "owner_name"),
    renamed!("egress_rule", "role", "role_name"),
];

/// Keeps the present names of roles, which are all that is left of them once they are dropped. Views show the name in
/// the catalog while there is one.
pub fn keep_names() {
    as_engine(|| {
        for update in RENAMED {
            crate::pg::engine_sql::execute(update, &[]);
        }
    });
}
