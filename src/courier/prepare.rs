//! Makes the request of a message: checks the rules of its owner, fills in secrets, signs. Inside the transaction that
//! claims the message.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use egress::{HostPattern, Key, Mask, Policy, Request, Rule, Target, check_header, check_url, sign};
use pgrx::pg_sys;

use super::surroundings::Surroundings;
use crate::pg::clock::{Micros, POSTGRES_EPOCH};
use crate::store::deliveries::Message;
use crate::store::{egress_rules, secrets};

/// The reason why a message is not sent now.
pub enum NotReady {
    /// The egress rules of the owner do not allow it.
    Blocked(String),
    /// It must be signed, or carry a secret, and the secret cannot be had; only the keeper of the secrets can change
    /// that.
    NoSecret(String),
    /// No request can ever be made of it.
    Hopeless(String),
}

/// The egress rules of the owners in a batch, each read once.
#[derive(Default)]
pub struct Policies(HashMap<u32, Arc<Policy>>);

impl Policies {
    fn of(&mut self, owner: pg_sys::Oid, surroundings: &Surroundings) -> Arc<Policy> {
        let policy = self.0.entry(owner.to_u32()).or_insert_with(|| {
            let rules = egress_rules::of(owner).into_iter().filter_map(|rule| {
                // A rule that cannot be read allows nothing.
                let cidr = match rule.cidr {
                    Some(text) => Some(text.parse().ok()?),
                    None => None,
                };
                Some(Rule { host: HostPattern::parse(&rule.host)?, port: rule.port, cidr })
            });
            Arc::new(Policy {
                allow_plain: surroundings.allow_plain,
                ports: surroundings.ports.clone(),
                rules: rules.collect(),
                own: surroundings.own.clone(),
            })
        });
        Arc::clone(policy)
    }
}

/// Makes the request of a message. The time and the signature are new in each attempt, the id is not.
pub fn prepare(
    message: &Message,
    surroundings: &Surroundings,
    policies: &mut Policies,
    now: Micros,
) -> Result<Request, NotReady> {
    if let Some(reason) = &message.disabled {
        let endpoint = message.endpoint.as_deref().unwrap_or_default();
        return Err(NotReady::Hopeless(format!("endpoint \"{endpoint}\" is disabled: {reason}")));
    }
    let policy = policies.of(message.owner, surroundings);
    let target = check_url(&message.url, &policy).map_err(|blocked| NotReady::Blocked(blocked.to_string()))?;
    let body = message.body.clone().unwrap_or_default().into_bytes();
    let mut secrets = Vec::new();
    let mut headers = written_headers(message, &target, now, &mut secrets)?;
    let has =
        |name: &str, headers: &[(String, String)]| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    if !body.is_empty() && !has("content-type", &headers) {
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    if !has("user-agent", &headers) {
        headers.push(("User-Agent".to_owned(), concat!("automation_engine/", env!("CARGO_PKG_VERSION")).to_owned()));
    }
    let (id, timestamp) = (format!("msg_{}", message.message_id), (now + POSTGRES_EPOCH) / 1_000_000);
    let signature = match &message.secret {
        Some(name) => Some(sign(&keys(message.owner, name, &target, now, &mut secrets)?, &id, timestamp, &body)),
        None if surroundings.strict_signing => {
            return Err(NotReady::NoSecret(
                "not signed: the step and its endpoint name no secret, and automation_engine.http_strict_signing is on"
                    .to_owned(),
            ));
        }
        None => None,
    };
    headers.push(("webhook-id".to_owned(), id));
    headers.push(("webhook-timestamp".to_owned(), timestamp.to_string()));
    headers.extend(signature.map(|signature| ("webhook-signature".to_owned(), signature)));
    Ok(Request {
        target,
        method: message.method.clone(),
        headers,
        body,
        timeout: Duration::from_millis(message.timeout_ms.max(1) as u64),
        policy,
        mask: Mask::new(secrets.iter().map(Vec::as_slice)),
    })
}

/// The headers that the step and its endpoint ask for, secrets filled in. The values of these secrets, and their
/// previous values, are noted in `secrets`: the receiver may know both, and neither may be recorded with its answer.
fn written_headers(
    message: &Message,
    target: &Target,
    now: Micros,
    secrets: &mut Vec<Vec<u8>>,
) -> Result<Vec<(String, String)>, NotReady> {
    let Some(text) = &message.headers else { return Ok(Vec::new()) };
    let broken = || NotReady::Hopeless("the headers are not an object of texts".to_owned());
    let written: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).map_err(|_| broken())?;
    let mut headers = Vec::with_capacity(written.len());
    for (name, value) in written {
        let value = match (&value, value.get("secret")) {
            (serde_json::Value::String(text), _) => text.clone(),
            (_, Some(serde_json::Value::String(secret))) => {
                let opened = opened(message.owner, secret, target, now)?;
                secrets.extend(opened.previous);
                secrets.push(opened.value.clone());
                String::from_utf8(opened.value)
                    .map_err(|_| NotReady::Hopeless(format!("secret \"{secret}\" is not text, as a header must be")))?
            }
            _ => return Err(broken()),
        };
        // The value may be a secret: the error message must not show it.
        check_header(&name, &value).map_err(|error| NotReady::Hopeless(format!("header \"{name}\": {error}")))?;
        headers.push((name, value));
    }
    Ok(headers)
}

struct Opened {
    value: Vec<u8>,
    previous: Option<Vec<u8>>,
}

/// The keys that sign: the valid one, and for a while the previous one. Their values are noted in `secrets`.
fn keys(
    owner: pg_sys::Oid,
    name: &str,
    target: &Target,
    now: Micros,
    secrets: &mut Vec<Vec<u8>>,
) -> Result<Vec<Key>, NotReady> {
    let opened = opened(owner, name, target, now)?;
    secrets.extend(std::iter::once(&opened.value).chain(&opened.previous).cloned());
    let key = |value: Vec<u8>| Key::from_secret(&String::from_utf8_lossy(&value));
    Ok(std::iter::once(opened.value).chain(opened.previous).map(key).collect())
}

fn opened(owner: pg_sys::Oid, name: &str, target: &Target, now: Micros) -> Result<Opened, NotReady> {
    let sealed = secrets::get(owner, name, now)
        .ok_or_else(|| NotReady::NoSecret(format!("not sent: secret \"{name}\" does not exist")))?;
    if let Some(host) = &sealed.host {
        let bound = HostPattern::parse(host).is_some_and(|pattern| pattern.matches(target.parsed_host()));
        if !bound {
            return Err(NotReady::Blocked(format!("blocked by policy: secret \"{name}\" is for {host} only")));
        }
    }
    let open = |sealed: &[u8]| {
        crate::secrets::open(owner, name, sealed)
            .map_err(|error| NotReady::NoSecret(format!("not sent: {}", error.message())))
    };
    let value = open(&sealed.value)?;
    // The previous value may have been sealed before a change of the key file; the valid one suffices.
    let previous = sealed.previous.and_then(|sealed| open(&sealed).ok());
    Ok(Opened { value, previous })
}
