//! Secrets and named receivers: set, replaced, dropped; never read.
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use automation_core::expr::ExprError;
use automation_core::webhook::{
    Address, DEFAULT_ATTEMPTS, DEFAULT_TIMEOUT_MS, Header, MAX_ATTEMPTS, MAX_TIMEOUT_MS, MIN_TIMEOUT_MS, NAME_HINT,
    host_matches, host_pattern, is_name, read_headers,
};
use pgrx::datum::Interval;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::{EngineError, EngineResult, OrReport, without_statement};
use crate::pg::jsonb::Jsonb;
use crate::pg::text::Text;
use crate::pg::{clock, identity, names};
use crate::secrets::seal;
use crate::store::endpoints::{self, Endpoint};
use crate::store::{log, secrets};

/// Most bytes of a secret.
const MAX_SECRET: usize = 4096;

/// Keeps a secret of yours, sealed. Replaced, the one before still signs for a day.
#[pg_extern(sql = false)]
fn set_secret(
    name: Option<Text>,
    value: Option<Text>,
    host: Option<Text>,
    owner: Option<Text>,
) -> Result<(), ErrorReport> {
    let name = name.as_deref();
    let value = value.as_deref();
    let host = host.as_deref();
    let owner = owner.as_deref();
    without_statement(|| keep_secret(name, value, host, owner)).or_report()
}

/// The same with the value in a file on the server's machine, so that it stands in no statement.
#[pg_extern(sql = false)]
fn set_secret_from_file(
    name: Option<Text>,
    path: Option<Text>,
    host: Option<Text>,
    owner: Option<Text>,
) -> Result<(), ErrorReport> {
    let name = name.as_deref();
    let path = path.as_deref();
    let host = host.as_deref();
    let owner = owner.as_deref();
    let keep = || {
        let path = path.ok_or_else(|| EngineError::null_argument("path"))?;
        if !identity::may_read_server_files(identity::current_user()) {
            return Err(EngineError::not_allowed("permission denied to read files of the server")
                .detail("Only roles with privileges of the role \"pg_read_server_files\" may do that.")
                .hint("Use automation.set_secret()."));
        }
        let value = read_secret(path)?;
        keep_secret(name, Some(&value), host, owner)
    };
    keep().or_report()
}

/// The content of a file, without the line end that editors put there.
fn read_secret(path: &str) -> EngineResult<String> {
    let unreadable = |why: String| EngineError::unreadable_file(path, why);
    if path.is_empty() || path.contains('\0') {
        return Err(EngineError::invalid("invalid path"));
    }
    // A pipe would keep us waiting for its other end.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| unreadable(format!("{error}.")))?;
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return Err(unreadable("It is not a regular file.".to_owned()));
    }
    let mut text = String::new();
    // The value and its line end, and one byte by which to know that it is too long.
    let read = file.take(MAX_SECRET as u64 + 3).read_to_string(&mut text);
    // The error holds nothing of the file's content.
    read.map_err(|error| unreadable(format!("{error}.")))?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    Ok(value.strip_suffix('\r').unwrap_or(value).to_owned())
}

fn keep_secret(name: Option<&str>, value: Option<&str>, host: Option<&str>, owner: Option<&str>) -> EngineResult<()> {
    let name = given_name(name, "a secret")?;
    let value = value.ok_or_else(|| EngineError::null_argument("value"))?;
    let owner = role_of(owner)?;
    check_value(value)?;
    let host = host.map(pattern).transpose()?;
    let sealed = seal(owner, name, value.as_bytes())?;
    let owner_name = names::role_name(owner).unwrap_or_default();
    secrets::set(owner, &owner_name, name, host.as_deref(), &sealed, clock::now());
    let details = serde_json::json!({ "secret": name, "owner": owner_name, "host": host });
    log::audit_of(Some(owner), "secret.set", "", &details);
    Ok(())
}

/// None of the errors repeats the value.
fn check_value(value: &str) -> EngineResult<()> {
    if value.is_empty() || value.len() > MAX_SECRET {
        return Err(EngineError::invalid(format!("a secret has 1 to {MAX_SECRET} bytes")));
    }
    if value.chars().any(char::is_control) {
        return Err(EngineError::invalid("a secret cannot contain control characters")
            .hint("Was it read from a file with a line end?"));
    }
    if sealed::is_broken_signing_key(value) {
        return Err(EngineError::invalid("invalid signing key")
            .detail("After whsec_ there must be the base64 of 24 to 64 bytes.")
            .hint("Make one with: echo whsec_$(head -c 32 /dev/urandom | base64)"));
    }
    Ok(())
}

/// Forgets a secret of yours. True if it was there.
#[pg_extern(sql = false)]
fn drop_secret(name: Option<Text>, owner: Option<Text>) -> Result<bool, ErrorReport> {
    let name = name.as_deref();
    let owner = owner.as_deref();
    let dropped = || {
        let name = name.ok_or_else(|| EngineError::null_argument("name"))?;
        let owner = role_of(owner)?;
        let dropped = secrets::drop(owner, name);
        if dropped {
            let details = serde_json::json!({ "secret": name, "owner": names::role_name(owner).unwrap_or_default() });
            log::audit_of(Some(owner), "secret.dropped", "", &details);
        }
        Ok::<bool, EngineError>(dropped)
    };
    dropped().or_report()
}

/// Gives a receiver a name that steps can use.
#[pg_extern(sql = false)]
fn set_endpoint(
    name: Option<Text>,
    url: Option<Text>,
    secret: Option<Text>,
    headers: Option<Jsonb>,
    timeout: Option<Interval>,
    max_attempts: Option<i32>,
    owner: Option<Text>,
) -> Result<(), ErrorReport> {
    let name = name.as_deref();
    let url = url.as_deref();
    let secret = secret.as_deref();
    let owner = owner.as_deref();
    let timeout = timeout.map(|timeout| timeout.as_micros());
    keep_endpoint(name, url, secret, headers.map(|headers| headers.0), timeout, max_attempts, owner).or_report()
}

fn keep_endpoint(
    name: Option<&str>,
    url: Option<&str>,
    secret: Option<&str>,
    headers: Option<serde_json::Value>,
    timeout: Option<i128>,
    max_attempts: Option<i32>,
    owner: Option<&str>,
) -> EngineResult<()> {
    let name = given_name(name, "an endpoint")?;
    let url = url.ok_or_else(|| EngineError::null_argument("url"))?;
    let owner = role_of(owner)?;
    let address = Address::parse(url).map_err(|error| EngineError::in_text(url, &error))?;
    if !address.template().is_constant() {
        return Err(EngineError::invalid("the url of an endpoint is literal")
            .hint("Give the whole url to automation.webhook() if a part of it depends on the run."));
    }
    let known = secrets::names(owner);
    let headers = headers.filter(|headers| !headers.is_null());
    let mut needed: Vec<String> = secret.map(str::to_owned).into_iter().collect();
    if let Some(headers) = &headers {
        for (header, value) in read_headers(headers).map_err(|(_, error)| unreadable(error))? {
            match value {
                Header::Secret(secret) => needed.push(secret),
                Header::Text(text) if !text.is_constant() => {
                    return Err(EngineError::invalid(format!("header \"{header}\" of an endpoint is literal"))
                        .hint("Give it to automation.webhook() if it depends on the run."));
                }
                Header::Text(_) => {}
            }
        }
    }
    for secret in needed {
        let Some((_, bound)) = known.iter().find(|(known, _)| *known == secret) else {
            return Err(EngineError::undefined(format!("secret \"{secret}\" does not exist"))
                .hint("Set it first with automation.set_secret()."));
        };
        let host = &address.origin().host;
        if let Some(bound) = bound.as_ref().filter(|bound| !host_matches(bound, host)) {
            return Err(EngineError::invalid(format!("secret \"{secret}\" cannot be sent to \"{host}\""))
                .detail(format!("It is for \"{bound}\".")));
        }
    }
    let timeout_ms = match timeout {
        None => DEFAULT_TIMEOUT_MS,
        Some(micros) => {
            i32::try_from(micros / 1000).ok().filter(|ms| (MIN_TIMEOUT_MS..=MAX_TIMEOUT_MS).contains(ms)).ok_or_else(
                || EngineError::invalid("invalid timeout").hint("A receiver may take 100 milliseconds to 30 seconds."),
            )?
        }
    };
    let max_attempts = max_attempts.unwrap_or(DEFAULT_ATTEMPTS as i32);
    if !(1..=MAX_ATTEMPTS as i32).contains(&max_attempts) {
        return Err(EngineError::invalid(format!("invalid max_attempts {max_attempts}"))
            .hint(format!("It is a number from 1 to {MAX_ATTEMPTS}.")));
    }
    let endpoint = Endpoint {
        url: url.to_owned(),
        secret: secret.map(str::to_owned),
        headers: headers.map(|headers| headers.to_string()),
        timeout_ms,
        max_attempts,
        disabled: None,
    };
    let owner_name = names::role_name(owner).unwrap_or_default();
    endpoints::set(owner, &owner_name, name, &endpoint);
    let host = &address.origin().host;
    let details = serde_json::json!({ "endpoint": name, "owner": owner_name, "host": host });
    log::audit_of(Some(owner), "endpoint.set", "", &details);
    Ok(())
}

fn unreadable(error: ExprError) -> EngineError {
    let refusal = EngineError::invalid(error.message);
    match error.hint {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}

/// Forgets a receiver of yours. True if it was there.
#[pg_extern(sql = false)]
fn drop_endpoint(name: Option<Text>, owner: Option<Text>) -> Result<bool, ErrorReport> {
    let name = name.as_deref();
    let owner = owner.as_deref();
    let dropped = || {
        let name = name.ok_or_else(|| EngineError::null_argument("name"))?;
        let owner = role_of(owner)?;
        let dropped = endpoints::drop(owner, name);
        if dropped {
            let details = serde_json::json!({ "endpoint": name, "owner": names::role_name(owner).unwrap_or_default() });
            log::audit_of(Some(owner), "endpoint.dropped", "", &details);
        }
        Ok::<bool, EngineError>(dropped)
    };
    dropped().or_report()
}

fn given_name<'a>(name: Option<&'a str>, what: &str) -> EngineResult<&'a str> {
    let name = name.ok_or_else(|| EngineError::null_argument("name"))?;
    if !is_name(name) {
        return Err(EngineError::invalid(format!("invalid name of {what}")).hint(NAME_HINT));
    }
    Ok(name)
}

/// A host as rules and secrets name it.
pub fn pattern(host: &str) -> EngineResult<String> {
    host_pattern(host).ok_or_else(|| {
        EngineError::invalid(format!("invalid host \"{host}\""))
            .hint("A host is like api.example.com, *.example.com or 192.0.2.1, without scheme, port and path.")
    })
}

/// The owner of a secret or endpoint: the caller, or a role that the caller could become.
fn role_of(owner: Option<&str>) -> EngineResult<pg_sys::Oid> {
    let caller = identity::current_user();
    let Some(name) = owner else { return Ok(caller) };
    let owner = identity::role_by_name(name).ok_or_else(|| EngineError::unknown_role(name))?;
    if owner != caller && !identity::can_become(caller, owner) {
        return Err(EngineError::not_allowed(format!("must be able to SET ROLE \"{name}\"")));
    }
    Ok(owner)
}
