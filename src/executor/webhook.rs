//! A webhook step: puts a message into the outbox. Run and message commit together; the courier delivers the message
//! later.
use automation_core::delivery::backoff_to_json;
use automation_core::expr::{Budget, Scope};
use automation_core::webhook::{DEFAULT_ATTEMPTS, DEFAULT_TIMEOUT_MS, Receiver, Webhook};

use crate::pg::catch::PgError;
use crate::pg::clock;
use crate::pg::server_text;
use crate::pg::subtransaction::in_subtransaction;
use crate::runs::error::from_expression;
use crate::runs::run::Run;
use crate::store::endpoints::{self, Endpoint};
use crate::store::outbox::{self, NewMessage};

/// Puts a message into the outbox. Returns the result of the step as JSON. An error rolls back the effects of this step
/// and no others.
pub fn order(run: &Run, step: &str, webhook: &Webhook, scope: &dyn Scope) -> Result<String, PgError> {
    in_subtransaction(|| {
        let endpoint = match &webhook.receiver {
            Receiver::Endpoint(name) => Some((name.as_str(), usable(run, name)?)),
            Receiver::Address(_) => None,
        };
        let to = endpoint.as_ref().map(|(_, endpoint)| endpoint);
        let message = webhook
            .render(to.map(headers_of).unwrap_or_default(), scope, &mut Budget::default())
            .map_err(|(error, text)| from_expression(&error, &text))?;
        let url = message.url.as_deref().or(to.map(|to| to.url.as_str())).unwrap_or_default();
        let headers = (!message.headers.is_empty()).then(|| serde_json::Value::Object(message.headers).to_string());
        let secret = webhook.secret.as_deref().or(to.and_then(|to| to.secret.as_deref()));
        let backoff = webhook.backoff.as_ref().map(|backoff| backoff_to_json(backoff).to_string());
        let attempts = webhook.attempts.and_then(|attempts| i32::try_from(attempts).ok());
        for text in [Some(url), headers.as_deref(), message.body.as_deref()].into_iter().flatten() {
            server_text::check(text)?;
        }
        let now = clock::now();
        let queued = outbox::insert(&NewMessage {
            owner: run.owner,
            automation_id: run.automation_id,
            run_id: run.id,
            step,
            event_id: Some(run.event_id),
            tenant: run.tenant.as_deref(),
            endpoint: endpoint.as_ref().map(|(name, _)| *name),
            url,
            method: webhook.method,
            headers: headers.as_deref(),
            body: message.body.as_deref(),
            secret,
            delivery: webhook.delivery,
            timeout_ms: webhook.timeout_ms.or(to.map(|to| to.timeout_ms)).unwrap_or(DEFAULT_TIMEOUT_MS),
            max_attempts: attempts.or(to.map(|to| to.max_attempts)).unwrap_or(DEFAULT_ATTEMPTS as i32),
            backoff: backoff.as_deref(),
            created_at: clock::engine_now(),
            // The courier goes by the wall clock, even if this session has set another clock.
            next_at: now,
        });
        let queued = queued.ok_or_else(|| PgError::new("XX000", "a message was not put into the outbox"))?;
        let (id, message_id) = (queued.id, queued.message_id);
        Ok(format!("{{\"delivery_id\":{id},\"message_id\":\"msg_{message_id}\"}}"))
    })
}

fn usable(run: &Run, name: &str) -> Result<Endpoint, PgError> {
    let Some(endpoint) = endpoints::get(run.owner, name) else {
        return Err(PgError {
            hint: Some("Set it with automation.set_endpoint().".into()),
            ..PgError::new("42704", format!("endpoint \"{name}\" does not exist"))
        });
    };
    match &endpoint.disabled {
        None => Ok(endpoint),
        Some(reason) => Err(PgError {
            detail: Some(reason.clone()),
            hint: Some("Set it again with automation.set_endpoint() when it works.".into()),
            ..PgError::new("55000", format!("endpoint \"{name}\" is disabled"))
        }),
    }
}

/// The headers of an endpoint.
fn headers_of(endpoint: &Endpoint) -> serde_json::Map<String, serde_json::Value> {
    endpoint.headers.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}
