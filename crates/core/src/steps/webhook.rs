//! The `webhook` step: puts a message to a receiver outside into the outbox. The message itself is in
//! [`crate::webhook`].

use super::form::{any, text};
use super::{Checked, Done, Effects, Form, Isolation, Performed, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::Scope;
use crate::program::Parts;
use crate::suggest::nearest;
use crate::webhook::{
    Address, DELIVERIES, MAX_ATTEMPTS, MAX_TIMEOUT_MS, METHODS, MIN_TIMEOUT_MS, NAME_HINT, Receiver, Webhook, is_name,
    read_headers,
};
use serde_json::{Map, Value as Json};

impl StepAction for Box<Webhook> {
    const FORM: Form = Form {
        name: "webhook",
        required: &[],
        optional: &[
            text("url"),
            text("endpoint"),
            any("body"),
            text("method"),
            any("headers"),
            text("secret"),
            text("delivery"),
        ],
        retries: true,
        time_limit: TimeLimit::OfWork,
        may_wait: false,
        tells_wait: false,
    };

    /// Methods are kept in capitals, however authors write them. Defaults are not written down, so that two documents
    /// that mean the same are the same.
    fn tidy(step: &mut Map<String, Json>) {
        if let Some(Json::String(method)) = step.get_mut("method") {
            method.make_ascii_uppercase();
        }
        for (field, usual) in [("method", METHODS[0]), ("delivery", DELIVERIES[0])] {
            if step.get(field).is_some_and(|given| *given == usual) {
                step.remove(field);
            }
        }
    }

    /// The step itself only puts the message into the outbox: its timeout is the receiver's, its retry that of the
    /// delivery.
    fn compile(def: &StepDef, tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Box<Webhook>> {
        let (timeout_ms, retry) = (tries.timeout_ms.take(), tries.retry.take());
        let receiver = receiver(def, parts);
        let method = word(def, "method", &METHODS, parts);
        let delivery = word(def, "delivery", &DELIVERIES, parts);
        let secret = name(def, "secret", parts);
        let headers = match def.get("headers").map(read_headers) {
            None => Some(Vec::new()),
            Some(Ok(headers)) => Some(headers),
            Some(Err((header, error))) => {
                let (field, text) = match (header.is_empty(), &def.get("headers").and_then(|all| all[&header].as_str()))
                {
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
            Some(given) => {
                match i32::try_from(given).ok().filter(|ms| (MIN_TIMEOUT_MS..=MAX_TIMEOUT_MS).contains(ms)) {
                    Some(ms) => Some(ms),
                    None => {
                        let hint = "A receiver may take 100 milliseconds to 30 seconds.";
                        parts.wrong("timeout", &format!("invalid timeout of {}", parts.place), hint);
                        return None;
                    }
                }
            }
        };
        let attempts = retry.as_ref().map(|retry| retry.max.saturating_add(1));
        if attempts.is_some_and(|attempts| attempts > MAX_ATTEMPTS) {
            let message = format!("{} is tried again more than {} times", parts.place, MAX_ATTEMPTS - 1);
            parts.wrong("retry", &message, "");
        }
        Some(Box::new(Webhook {
            receiver: receiver?,
            method: method?,
            headers: headers?,
            body: body?,
            secret: secret?,
            delivery: delivery?,
            timeout_ms,
            attempts,
            backoff: retry.map(|retry| retry.backoff),
        }))
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        let templates = self.templates().into_iter().map(|(name, template)| (name, Checked::Template(template)));
        templates.chain(self.body.iter().map(|body| field("body", Checked::Json(body)))).collect()
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        vec![Touch::Message(self)]
    }
}

impl Performed for Box<Webhook> {
    const ISOLATION: Isolation = Isolation::None;

    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
        effects.order(self, scope).map(Done::Result)
    }
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

/// The name of an endpoint or a secret, if it is given; the outer None is for a name that is not allowed.
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

/// One of a few words; the first is the default.
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
