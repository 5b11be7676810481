//! Who may do what: rights are given tier by tier, since PUBLIC gets nothing.
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::text::Text;
use crate::pg::{identity, names};
use crate::store::{log, rights};

/// Lets a role use the engine: as viewer, operator, author or admin.
#[pg_extern]
fn grant_usage(role: Text, tier: Text) -> Result<(), ErrorReport> {
    let role = &*role;
    let tier = &*tier;
    change(role, Some(tier)).or_report()
}

/// Takes all rights that grant_usage() gave to a role.
#[pg_extern]
fn revoke_usage(role: Text) -> Result<(), ErrorReport> {
    let role = &*role;
    change(role, None).or_report()
}

// Each tier has what the ones before it have.
const VIEWER: &[&str] = &[
    "document",
    "timeline",
    "status",
    "evaluate",
    "extract_refs",
    "match_topic",
    "match_filter",
    "next_fire",
    "validate",
    "state",
    "versions",
    "worker_list",
    "running",
];
const OPERATOR: &[&str] = &[
    "start_run",
    "start_with_event",
    "backfill",
    "approve_bulk",
    "cancel_bulk",
    "cancel_run",
    "retry_run",
    "skip_step",
    "signal",
    "redrive",
    "redeliver",
    "activate",
    "pause",
    "resume",
];
const AUTHOR: &[&str] = &[
    "define",
    "define_document",
    "define_text",
    "step_options",
    "trigger_options",
    "text_or_object",
    "dedup",
    "drop_automation",
    "revert_to_draft",
    "watch_table",
    "unwatch_table",
    "derive_event",
    "drop_derived_event",
    "set_state",
    "patch_state",
    "remove_state",
    "emit",
    "subscribe",
    "unsubscribe",
    "grant_topic",
    "revoke_topic",
    "on_created",
    "on_updated",
    "on_deleted",
    "on_changed",
    "on_state",
    "on_numeric",
    "on_event",
    "on_cron",
    "on_interval",
    "on_call",
    "sql",
    "call",
    "publish",
    "notify",
    "store_state",
    "webhook",
    "set_secret",
    "set_secret_from_file",
    "drop_secret",
    "set_endpoint",
    "drop_endpoint",
    "run",
    "set",
    "delay",
    "wait_until",
    "wait_for_event",
    "wait_signal",
    "branch",
    "require",
    "stop",
    "choose",
    "when_holds",
    "repeat_count",
    "repeat_while",
    "repeat_until",
    "for_each",
    "bulk",
    "parallel",
    "sequence",
    "retry",
    "duration",
    "dispatch",
    "drain",
    "set_clock",
    "advance",
];
const ADMIN: &[&str] = &[
    "route",
    "run_timers",
    "sweep",
    "start_workers",
    "stop_workers",
    "grant_usage",
    "revoke_usage",
    "allow_egress",
    "deny_egress",
];

fn change(role: &str, tier: Option<&str>) -> EngineResult<()> {
    if !identity::is_superuser(identity::current_user()) {
        return Err(EngineError::not_allowed("must be superuser to grant or revoke the use of automation_engine"));
    }
    if identity::role_by_name(role).is_none() {
        return Err(EngineError::unknown_role(role));
    }
    let tiers: &[&[&str]] = match tier {
        None => &[],
        Some("viewer") => &[VIEWER],
        Some("operator") => &[VIEWER, OPERATOR],
        Some("author") => &[VIEWER, OPERATOR, AUTHOR],
        Some("admin") => &[VIEWER, OPERATOR, AUTHOR, ADMIN],
        Some(other) => {
            return Err(EngineError::invalid(format!("invalid tier \"{other}\""))
                .hint("Use viewer, operator, author or admin."));
        }
    };
    let functions: Vec<&str> = tiers.iter().flat_map(|tier| tier.iter().copied()).collect();
    rights::replace(&names::quote_identifier(role), &functions, tier.is_some());
    let action = if tier.is_some() { "usage.granted" } else { "usage.revoked" };
    log::audit(action, "", &serde_json::json!({ "role": role, "tier": tier }));
    Ok(())
}
