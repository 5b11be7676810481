//! Rules for the hosts and networks to which messages may go: none, until an administrator allows one.
use pgrx::datum::Inet;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::secrets::pattern;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::text::Text;
use crate::pg::{clock, names};
use crate::store::egress_rules::{self, EgressRule};
use crate::store::log;

/// Lets messages of automations that a role owns go to a host. True if that is new.
#[pg_extern(sql = false)]
fn allow_egress(
    role: Option<pg_sys::Oid>,
    host: Option<Text>,
    port: Option<i32>,
    cidr: Option<Inet>,
) -> Result<bool, ErrorReport> {
    let host = host.as_deref();
    change(role, host, port, cidr, true).or_report()
}

/// Takes such a rule back. True if it was there.
#[pg_extern(sql = false)]
fn deny_egress(
    role: Option<pg_sys::Oid>,
    host: Option<Text>,
    port: Option<i32>,
    cidr: Option<Inet>,
) -> Result<bool, ErrorReport> {
    let host = host.as_deref();
    change(role, host, port, cidr, false).or_report()
}

fn change(
    role: Option<pg_sys::Oid>,
    host: Option<&str>,
    port: Option<i32>,
    cidr: Option<Inet>,
    allow: bool,
) -> EngineResult<bool> {
    let role = role.ok_or_else(|| EngineError::null_argument("role"))?;
    let host = host.ok_or_else(|| EngineError::null_argument("host"))?;
    let role_name = names::role_name(role).ok_or_else(|| EngineError::unknown_role(&role.to_u32().to_string()))?;
    let port = port
        .map(|port| {
            u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
                EngineError::invalid(format!("invalid port {port}")).hint("A port is a number from 1 to 65535.")
            })
        })
        .transpose()?;
    let rule = EgressRule { host: pattern(host)?, port, cidr: cidr.map(|cidr| cidr.0) };
    let changed = if allow {
        egress_rules::allow(role, &role_name, &rule, clock::now())
    } else {
        egress_rules::deny(role, &rule)
    };
    if changed {
        let action = if allow { "egress.allowed" } else { "egress.denied" };
        let details = serde_json::json!({ "role": role_name, "host": rule.host, "port": rule.port, "cidr": rule.cidr });
        log::audit_of(Some(role), action, "", &details);
    }
    Ok(changed)
}
