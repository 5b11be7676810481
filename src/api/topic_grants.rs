//! Rights on topics: whose events a role may hear, and whose automations it may start by its own.
use automation_core::topic::grants::{Grant, Right, prefix_of};
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::{self, EngineError, EngineResult, OrReport};
use crate::pg::text::Text;
use crate::pg::{identity, names};
use crate::store::{kinds, log, topic_grants};

/// Lets a role emit events, under a prefix of topics, that your automations hear, or listen to those that you emit.
#[pg_extern]
fn grant_topic(
    role: Option<Text>,
    prefix: Option<Text>,
    right: Option<Text>,
    of: default!(Option<Text>, "NULL"),
) -> Result<(), ErrorReport> {
    let role = role.as_deref();
    let prefix = prefix.as_deref();
    let right = right.as_deref();
    let of = of.as_deref();
    grant(role, prefix, right, of).or_report()
}

/// Takes back a right that grant_topic() gave.
#[pg_extern]
fn revoke_topic(
    role: Option<Text>,
    prefix: Option<Text>,
    right: Option<Text>,
    of: default!(Option<Text>, "NULL"),
) -> Result<(), ErrorReport> {
    let role = role.as_deref();
    let prefix = prefix.as_deref();
    let right = right.as_deref();
    let of = of.as_deref();
    revoke(role, prefix, right, of).or_report()
}

/// The arguments, checked.
struct Named<'a> {
    role: &'a str,
    grantee: pg_sys::Oid,
    prefix: &'a str,
    right: Right,
    /// None: all roles.
    of: Option<pg_sys::Oid>,
}

fn named<'a>(
    role: Option<&'a str>,
    prefix: Option<&'a str>,
    right: Option<&str>,
    of: Option<&str>,
) -> EngineResult<Named<'a>> {
    let role = role.ok_or_else(|| EngineError::null_argument("role"))?;
    let prefix = prefix.ok_or_else(|| EngineError::null_argument("prefix"))?;
    let right = right.ok_or_else(|| EngineError::null_argument("right"))?;
    let user = identity::current_user();
    let grantee = identity::role_by_name(role).ok_or_else(|| EngineError::unknown_role(role))?;
    let right = Right::parse(right)
        .ok_or_else(|| EngineError::invalid(format!("invalid right \"{right}\"")).hint("Use emit or listen."))?;
    let prefix = prefix_of(prefix).ok_or_else(|| {
        EngineError::invalid(format!("invalid prefix \"{prefix}\" of topics"))
            .detail("A prefix is the first words of topics, joined by dots, without white space, \"*\" and \"#\".")
            .hint("Use 'payments' for payments and all topics below it, '' for all topics.")
    })?;
    if prefix == "automation" || prefix.starts_with("automation.") {
        return Err(EngineError::invalid(format!("prefix \"{prefix}\" is reserved for the engine"))
            .detail("Its own events are heard by roles with the privileges of the automation's owner."));
    }
    let of = match of {
        None if identity::is_superuser(user) => None,
        None => Some(user),
        Some(name) => {
            let of = identity::role_by_name(name).ok_or_else(|| EngineError::unknown_role(name))?;
            if !identity::has_role(user, of) {
                return Err(EngineError::not_allowed(format!("must have the privileges of role \"{name}\""))
                    .detail("Rights on its events and automations are its own to grant and to revoke."));
            }
            Some(of)
        }
    };
    Ok(Named { role, grantee, prefix, right, of })
}

fn grant(role: Option<&str>, prefix: Option<&str>, right: Option<&str>, of: Option<&str>) -> EngineResult<()> {
    let Named { role, grantee, prefix, right, of } = named(role, prefix, right, of)?;
    let user = identity::current_user();
    // The user speaks for `of`; the other side is the grantee's.
    let settled = identity::has_role(user, grantee);
    let added = topic_grants::add(&Grant { right, prefix: prefix.to_owned(), grantee, of, settled }, user);
    if added {
        audit("topic.granted", role, prefix, right, of);
    }
    if let Some(of) = of.filter(|of| !settled && *of != grantee && kinds::find(prefix).is_none()) {
        tell_of_counterpart(role, prefix, right, &names::role_name(of).unwrap_or_default());
    }
    Ok(())
}

fn revoke(role: Option<&str>, prefix: Option<&str>, right: Option<&str>, of: Option<&str>) -> EngineResult<()> {
    let Named { role, grantee, prefix, right, of } = named(role, prefix, right, of)?;
    if topic_grants::remove(grantee, prefix, right, of) {
        audit("topic.revoked", role, prefix, right, of);
    }
    Ok(())
}

fn audit(action: &str, role: &str, prefix: &str, right: Right, of: Option<pg_sys::Oid>) {
    let of = of.and_then(names::role_name);
    log::audit(action, "", &serde_json::json!({ "role": role, "prefix": prefix, "right": right.name(), "of": of }));
}

/// Says which grant of the other side is missing until automations hear.
fn tell_of_counterpart(role: &str, prefix: &str, right: Right, of: &str) {
    let (emitter, listener) = match right {
        Right::Listen => (of, role),
        Right::Emit => (role, of),
    };
    error::notice(
        format!("automations of \"{listener}\" hear events of \"{emitter}\" once \"{role}\" agrees"),
        format!(
            "As \"{role}\": SELECT automation.grant_topic('{of}', '{prefix}', '{}'). A superuser's grant needs no other.",
            right.counterpart().name()
        ),
    );
}
