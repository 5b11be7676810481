//! Reading a `webhook` step.

use super::parts::Parts;
use super::{Action, Retry};
use crate::definition::StepDef;
use crate::suggest::nearest;
use crate::webhook::{
    Address, DELIVERIES, MAX_ATTEMPTS, MAX_TIMEOUT_MS, METHODS, MIN_TIMEOUT_MS, NAME_HINT, Receiver, Webhook, is_name,
    read_headers,
};
use serde_json::Value as Json;

/// The message that a step orders. Its timeout is the receiver's, its retry that of the delivery: the step itself only
/// puts the message into the outbox.
pub(super) fn webhook(
    def: &StepDef,
    timeout_ms: Option<i64>,
    retry: Option<Retry>,
    parts: &mut Parts<'_>,
) -> Option<Action> {
    let receiver = receiver(def, parts);
    let method = word(def, "method", &METHODS, parts);
    let delivery = word(def, "delivery", &DELIVERIES, parts);
    let secret = name(def, "secret", parts);
    let headers = match def.get("headers").map(read_headers) {
        None => Some(Vec::new()),
        Some(Ok(headers)) => Some(headers),
        Some(Err((header, error))) => {
            let (field, text) = match (header.is_empty(), &def.get("headers").and_then(|all| all[&header].as_str())) {
                (true, _) => ("headers".to_owned(), None),
                (false, text) => (format!("headers.{header}"), text.map(str::to_owned)),
            };
            match text.filter(|_| !error.span.is_empty()) {
                Some(text) => {
                    parts.parsed::<()>(Err(error), &field, &text);
                }
                None => parts.refuse(&field, error),
            }
            None
        }
    };
    let body = match (def.get("body"), method) {
        (Some(_), Some("GET")) => {
            parts.wrong("body", &format!("{} has a body, which GET does not take", parts.place), "Use POST.");
            None
        }
        (Some(given), _) => Some(Some(parts.json(Some(given), "body")?)),
        (None, method) => Some(Webhook::default_body(method.unwrap_or_default())),
    };
    let timeout_ms = match timeout_ms {
        None => None,
        Some(given) => match i32::try_from(given).ok().filter(|ms| (MIN_TIMEOUT_MS..=MAX_TIMEOUT_MS).contains(ms)) {
            Some(ms) => Some(ms),
            None => {
                let hint = "A receiver may take 100 milliseconds to 30 seconds.";
                parts.wrong("timeout", &format!("invalid timeout of {}", parts.place), hint);
                return None;
            }
        },
    };
    let attempts = retry.as_ref().map(|retry| retry.max.saturating_add(1));
    if attempts.is_some_and(|attempts| attempts > MAX_ATTEMPTS) {
        let message = format!("{} is tried again more than {} times", parts.place, MAX_ATTEMPTS - 1);
        parts.wrong("retry", &message, "");
    }
    Some(Action::Webhook(Box::new(Webhook {
        receiver: receiver?,
        method: method?,
        headers: headers?,
        body: body?,
        secret: secret?,
        delivery: delivery?,
        timeout_ms,
        attempts,
        backoff: retry.map(|retry| retry.backoff),
    })))
}

fn receiver(def: &StepDef, parts: &mut Parts<'_>) -> Option<Receiver> {
    match (def.get("url"), def.get("endpoint")) {
        (Some(_), None) => {
            let text = def.text("url");
            parts.parsed(Address::parse(text), "url", text).map(Receiver::Address)
        }
        (None, Some(_)) => name(def, "endpoint", parts)?.map(Receiver::Endpoint),
        _ => {
            let message = format!("{} needs either \"url\" or \"endpoint\"", parts.place);
            parts.wrong("url", &message, "");
            None
        }
    }
}

/// A name, if it is given; the outer None is for one that cannot be.
fn name(def: &StepDef, field: &str, parts: &mut Parts<'_>) -> Option<Option<String>> {
    match def.get(field) {
        None => Some(None),
        Some(Json::String(name)) if is_name(name) => Some(Some(name.clone())),
        Some(_) => {
            parts.wrong(field, &format!("invalid {field} \"{}\" of {}", def.text(field), parts.place), NAME_HINT);
            None
        }
    }
}

/// One of a few words; the first is usual.
fn word(def: &StepDef, field: &str, words: &[&'static str], parts: &mut Parts<'_>) -> Option<&'static str> {
    if def.get(field).is_none() {
        return words.first().copied();
    }
    let given = def.text(field);
    if let Some(word) = words.iter().find(|word| **word == given) {
        return Some(word);
    }
    let hint = match nearest(given, words.iter().copied()) {
        Some(near) => format!("Did you mean \"{near}\"?"),
        None => format!("Use {}.", words.join(", ")),
    };
    parts.wrong(field, &format!("unknown {field} \"{given}\" of {}", parts.place), &hint);
    None
}
