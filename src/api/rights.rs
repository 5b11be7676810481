//! Grants of the engine's functions and views to roles, tier by tier: PUBLIC gets nothing.
use automation_core::definition::{On, StepKind};
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

// Each tier includes the rights of the tiers before it.
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
/// The builders of steps and triggers are for authors as well: see [`builders`].
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
    "set_secret",
    "set_secret_from_file",
    "drop_secret",
    "set_endpoint",
    "drop_endpoint",
    "when_holds",
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

/// The functions that build steps and triggers: one for each kind.
fn builders() -> Vec<String> {
    let steps = StepKind::ALL.into_iter().map(|kind| kind.name().to_owned());
    steps.chain(On::ALL.into_iter().map(|on| format!("on_{}", on.name()))).collect()
}

fn change(role: &str, tier: Option<&str>) -> EngineResult<()> {
    if !identity::is_superuser(identity::current_user()) {
        return Err(EngineError::not_allowed("must be superuser to grant or revoke the use of automation_engine"));
    }
    if identity::role_by_name(role).is_none() {
        return Err(EngineError::unknown_role(role));
    }
    let builders = builders();
    let builders: Vec<&str> = builders.iter().map(String::as_str).collect();
    let tiers: Vec<&[&str]> = match tier {
        None => Vec::new(),
        Some("viewer") => vec![VIEWER],
        Some("operator") => vec![VIEWER, OPERATOR],
        Some("author") => vec![VIEWER, OPERATOR, AUTHOR, &builders],
        Some("admin") => vec![VIEWER, OPERATOR, AUTHOR, &builders, ADMIN],
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
