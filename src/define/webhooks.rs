//! Checks webhook steps when an automation is saved: whether the names they use exist, and whether egress rules would
//! let their messages out.
use automation_core::program::{Program, Step};
use automation_core::steps::Touch;
use automation_core::suggest::nearest;
use automation_core::webhook::{Address, Receiver, Webhook, host_matches, objection};
use pgrx::pg_sys;

use crate::define::Finding;
use crate::error::EngineError;
use crate::gucs;
use crate::pg::names;
use crate::store::{egress_rules, endpoints, secrets};

fn webhooks(program: &Program) -> impl Iterator<Item = (&Step, &Webhook)> {
    let touches =
        program.steps.iter().flat_map(|step| step.action.touches().into_iter().map(move |touch| (step, touch)));
    touches.filter_map(|(step, touch)| if let Touch::Message(message) = touch { Some((step, message)) } else { None })
}

/// Endpoints and secrets that the owner does not have.
pub fn unknown_names(automation: &str, program: &Program, owner: pg_sys::Oid) -> Vec<Finding> {
    let mut findings = Vec::new();
    if webhooks(program).next().is_none() {
        return findings;
    }
    let known_secrets = secrets::names(owner);
    let owner_name = names::role_name(owner).unwrap_or_default();
    let mut miss = |step: &Step, field: &str, what: &str, name: &str, close: Option<&str>| {
        let path = format!("{}.{field}", step.path);
        let error = EngineError::undefined(format!("{what} \"{name}\" does not exist"))
            .detail(format!("Role \"{owner_name}\" has none of that name. In automation \"{automation}\", at {path}."));
        let error = error.hint(match close {
            Some(close) => format!("Did you mean \"{close}\"?"),
            None => format!("Set it first with automation.set_{what}()."),
        });
        findings.push(Finding { path, error });
    };
    for (step, webhook) in webhooks(program) {
        if let Receiver::Endpoint(name) = &webhook.receiver
            && endpoints::get(owner, name).is_none()
        {
            let known = endpoints::names(owner);
            miss(step, "endpoint", "endpoint", name, nearest(name, known.iter().map(String::as_str)));
        }
        for (field, name) in webhook.secrets() {
            if !known_secrets.iter().any(|(known, _)| known == name) {
                miss(
                    step,
                    &field,
                    "secret",
                    name,
                    nearest(name, known_secrets.iter().map(|(known, _)| known.as_str())),
                );
            }
        }
    }
    findings
}

/// Reasons why messages may not be sent. They may be removed later, so they are no errors.
pub fn doubts(program: &Program, owner: pg_sys::Oid) -> Vec<String> {
    let mut doubts = Vec::new();
    if webhooks(program).next().is_none() {
        return doubts;
    }
    if !gucs::http() {
        doubts.push("automation_engine.http is off: webhooks stay in the outbox".to_owned());
    }
    let (rules, ports) = (egress_rules::of(owner), gucs::http_ports());
    let known_secrets = secrets::names(owner);
    for (step, webhook) in webhooks(program) {
        let (address, own_secret) = match &webhook.receiver {
            Receiver::Address(address) => (Some(address.clone()), None),
            Receiver::Endpoint(name) => {
                let endpoint = endpoints::get(owner, name);
                if let Some(reason) = endpoint.as_ref().and_then(|endpoint| endpoint.disabled.as_ref()) {
                    doubts.push(format!("step \"{}\" will fail: endpoint \"{name}\" is disabled ({reason})", step.id));
                }
                let address = endpoint.as_ref().and_then(|endpoint| Address::parse(&endpoint.url).ok());
                (address, endpoint.and_then(|endpoint| endpoint.secret))
            }
        };
        let Some(address) = address else { continue };
        let allowed = rules.iter().map(|rule| (rule.host.as_str(), rule.port));
        if let Some(why) = objection(address.origin(), gucs::http_allow_plain(), &ports, allowed) {
            doubts.push(format!("step \"{}\" will not be delivered: {why}", step.id));
        }
        let host = &address.origin().host;
        let needed = webhook.secrets().into_iter().map(|(_, name)| name);
        for name in needed.chain(own_secret.as_deref()) {
            let bound = known_secrets.iter().find(|(known, _)| known == name).and_then(|(_, bound)| bound.as_ref());
            if let Some(bound) = bound.filter(|bound| !host_matches(bound, host)) {
                let step = &step.id;
                doubts.push(format!(
                    "step \"{step}\" will not be delivered: secret \"{name}\" is for \"{bound}\", not for \"{host}\""
                ));
            }
        }
        if webhook.secret.is_none() && own_secret.is_none() && gucs::http_strict_signing() {
            doubts.push(format!("step \"{}\" waits for a secret: http_strict_signing is on", step.id));
        }
    }
    doubts
}
