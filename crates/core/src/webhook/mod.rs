//! Messages to receivers outside: the order of a `webhook` step, and the message put into the outbox for it.
//!
//! Nothing here sends anything. A value never becomes part of an address's host, of a header's name or of the form of a
//! body: it is one piece of a path, one header value, one JSON value.

mod address;
mod header;
mod rule;

pub use address::{Address, Origin, host_pattern};
pub use header::{Header, MAX_HEADERS, read_headers};
pub use rule::{host_matches, objection};

use crate::expr::{Budget, ExprError, ExprErrorKind, Scope};
use crate::program::Backoff;
use crate::template::{JsonTemplate, Template};
use crate::value::Value;
use serde_json::Value as Json;

/// Most bytes of a body.
pub const MAX_BODY: usize = 1 << 20;
/// How long, in milliseconds, a receiver may take unless the step or the endpoint says otherwise.
pub const DEFAULT_TIMEOUT_MS: i32 = 5_000;
/// The longest timeout that a step or an endpoint can give.
pub const MAX_TIMEOUT_MS: i32 = 30_000;
/// The shortest timeout that a step or an endpoint can give.
pub const MIN_TIMEOUT_MS: i32 = 100;
/// How often a message is sent unless the step or the endpoint says otherwise.
pub const DEFAULT_ATTEMPTS: u32 = 5;
/// The most attempts that a step or an endpoint can give.
pub const MAX_ATTEMPTS: u32 = 100;
/// The methods that a message can have; the first is the default.
pub const METHODS: [&str; 5] = ["POST", "GET", "PUT", "PATCH", "DELETE"];
/// The guarantees of delivery; the first is the default.
pub const DELIVERIES: [&str; 2] = ["at_least_once", "at_most_once"];
/// The hint when the name of an endpoint or secret is no name.
pub const NAME_HINT: &str = "A name has 1 to 64 characters, without control characters and spaces at its ends.";

/// The body of a message whose step gives none (version 1 of it).
const DEFAULT_BODY: &str = r#"{"webhook_version": 1, "event_type": event.topic, "event_id": event.event_id, "rule_id": run.automation, "occurred_at": event.occurred_at, "payload": payload}"#;

/// A message that a step orders.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// The receiver of the message.
    pub receiver: Receiver,
    /// One of `METHODS`.
    pub method: &'static str,
    /// Further headers, in the order of their names.
    pub headers: Vec<(String, Header)>,
    /// The content of the body, None for nothing.
    pub body: Option<JsonTemplate>,
    /// The secret that it is signed with; the endpoint's if it is not given.
    pub secret: Option<String>,
    /// One of `DELIVERIES`.
    pub delivery: &'static str,
    /// How long the receiver may take, in milliseconds.
    pub timeout_ms: Option<i32>,
    /// How often the message is sent at most.
    pub attempts: Option<u32>,
    /// How long to wait between attempts.
    pub backoff: Option<Backoff>,
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Receiver {
    /// To an address.
    Address(Address),
    /// To an endpoint of the owner's.
    Endpoint(String),
}

/// The parts of a message that depend on the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// None for an endpoint, which has an address itself.
    pub url: Option<String>,
    /// An object of texts and of `{"secret": name}`.
    pub headers: serde_json::Map<String, Json>,
    /// The content of the body.
    pub body: Option<String>,
}

impl Webhook {
    /// The body of a step that gives none; a message with method GET or DELETE has no body.
    pub fn default_body(method: &str) -> Option<JsonTemplate> {
        if matches!(method, "GET" | "DELETE") { None } else { JsonTemplate::parse(DEFAULT_BODY).ok() }
    }

    /// Its texts with expressions, and the fields they stand in.
    pub fn templates(&self) -> Vec<(String, &Template)> {
        let mut found = Vec::new();
        if let Receiver::Address(address) = &self.receiver {
            found.push(("url".to_owned(), address.template()));
        }
        found.extend(self.headers.iter().filter_map(|(name, header)| match header {
            Header::Text(template) => Some((format!("headers.{name}"), template)),
            Header::Secret(_) => None,
        }));
        found
    }

    /// The names of the secrets it needs: to sign, and in headers.
    pub fn secrets(&self) -> Vec<(String, &str)> {
        let signed = self.secret.iter().map(|name| ("secret".to_owned(), name.as_str()));
        let sent = self.headers.iter().filter_map(|(name, header)| match header {
            Header::Secret(secret) => Some((format!("headers.{name}"), secret.as_str())),
            Header::Text(_) => None,
        });
        signed.chain(sent).collect()
    }

    /// The message with the values of now. `headers` are those of the endpoint; where both give a header, the step's
    /// counts.
    pub fn render(
        &self,
        mut headers: serde_json::Map<String, Json>,
        scope: &dyn Scope,
        budget: &mut Budget,
    ) -> Result<Rendered, (ExprError, String)> {
        let url = match &self.receiver {
            Receiver::Address(address) => {
                Some(address.render(scope, budget).map_err(|error| (error, address.text().to_owned()))?)
            }
            Receiver::Endpoint(_) => None,
        };
        for (name, header) in &self.headers {
            let value = header.render(name, scope, budget).map_err(|error| (error, header.text().to_owned()))?;
            headers.retain(|other, _| !other.eq_ignore_ascii_case(name));
            headers.insert(name.clone(), value);
        }
        let body = match &self.body {
            Some(template) => {
                let value = template.eval(scope, budget).map_err(|error| (error, template.text().to_owned()))?;
                Some(body_text(&value, &mut headers).map_err(|error| (error, String::new()))?)
            }
            None => None,
        };
        Ok(Rendered { url, headers, body })
    }
}

/// A body as it is sent: JSON, unless the author says that it is something else and gives a text.
fn body_text(value: &Value, headers: &mut serde_json::Map<String, Json>) -> Result<String, ExprError> {
    let given = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let is_json = given.is_none_or(|(_, kind)| kind.as_str().is_none_or(|kind| kind.contains("json")));
    if given.is_none() {
        headers.insert("content-type".into(), "application/json".into());
    }
    let text = match value {
        Value::Text(text) if !is_json => text.to_string(),
        other => other.to_json(),
    };
    if text.len() > MAX_BODY {
        return Err(ExprError::new(ExprErrorKind::OutOfRange, 0..0, "the body of a webhook is too long")
            .with_detail(format!("It has {} bytes, at most {MAX_BODY} are sent.", text.len()))
            .with_hint("Send an id and let the receiver ask for the rest."));
    }
    Ok(text)
}

/// Can an endpoint or a secret have this name?
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().count() <= 64
        && name.trim() == name
        && !name.chars().any(char::is_control)
        && !name.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::FixedScope;
    use crate::value::Timestamp;

    fn scope() -> FixedScope {
        let roots = r#"{"event": {"topic": "orders.updated", "event_id": 5, "occurred_at": "2026-01-05T10:00:00Z"},
            "run": {"automation": "big"}, "payload": {"id": 7}}"#;
        FixedScope::new(Value::from_json(roots).unwrap(), Timestamp(0))
    }

    #[test]
    fn the_usual_body_tells_of_the_event_r004_13() {
        let body = Webhook::default_body("POST").unwrap().eval(&scope(), &mut Budget::default()).unwrap();
        assert_eq!(
            body.to_json(),
            r#"{"webhook_version": 1, "event_type": "orders.updated", "event_id": 5, "rule_id": "big", "occurred_at": "2026-01-05T10:00:00Z", "payload": {"id": 7}}"#
        );
        assert!(Webhook::default_body("GET").is_none());
    }

    #[test]
    fn a_body_is_json_unless_its_author_says_what_else_it_is() {
        let mut headers = serde_json::Map::new();
        assert_eq!(body_text(&Value::text("a=1"), &mut headers).unwrap(), "\"a=1\"");
        assert_eq!(headers["content-type"], "application/json");
        let mut headers = serde_json::Map::from_iter([("Content-Type".to_owned(), Json::from("text/plain"))]);
        assert_eq!(body_text(&Value::text("a=1"), &mut headers).unwrap(), "a=1");
        assert_eq!(body_text(&Value::int(1), &mut headers).unwrap(), "1");
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn the_headers_of_the_step_count_before_those_of_the_endpoint() {
        let step = serde_json::json!({"X-A": "step", "Authorization": {"secret": "own"}});
        let webhook = Webhook {
            receiver: Receiver::Endpoint("e".into()),
            method: "POST",
            headers: read_headers(&step).unwrap(),
            body: Webhook::default_body("POST"),
            secret: None,
            delivery: DELIVERIES[0],
            timeout_ms: None,
            attempts: None,
            backoff: None,
        };
        let endpoint = serde_json::json!({"x-a": "endpoint", "X-B": "endpoint", "Content-Type": "text/x"});
        let Json::Object(endpoint) = endpoint else { panic!() };
        let rendered = webhook.render(endpoint, &scope(), &mut Budget::default()).unwrap();
        let expected = serde_json::json!({"Authorization": {"secret": "own"}, "Content-Type": "text/x",
            "X-A": "step", "X-B": "endpoint"});
        assert_eq!(Json::Object(rendered.headers), expected);
        assert_eq!(webhook.secrets(), [("headers.Authorization".to_owned(), "own")]);
    }

    #[test]
    fn a_body_has_an_end() {
        let long = Value::text("x".repeat(MAX_BODY));
        let error = body_text(&long, &mut serde_json::Map::new()).unwrap_err();
        assert_eq!(error.detail.as_deref(), Some("It has 1048578 bytes, at most 1048576 are sent."));
    }
}
