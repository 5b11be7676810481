//! Headers of a message: names as written, values with expressions in them, or secrets.

use super::{NAME_HINT, is_name};
use crate::expr::{Budget, ExprError, ExprErrorKind, Scope};
use crate::template::{Part, Template};
use serde_json::Value as Json;

/// Most headers of a message.
pub const MAX_HEADERS: usize = 50;
/// Most bytes of a name and of a value.
const MAX_NAME: usize = 256;
const MAX_VALUE: usize = 8_192;

/// Headers about the transport or the sender of the message: its author may not set them.
const OURS: [&str; 14] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// The value of a header.
#[derive(Clone, Debug, PartialEq)]
pub enum Header {
    /// A text.
    Text(Template),
    /// A secret of the owner's, put in when the message is sent.
    Secret(String),
}

impl Header {
    /// The text as written; empty for a secret.
    pub fn text(&self) -> &str {
        match self {
            Header::Text(template) => template.text(),
            Header::Secret(_) => "",
        }
    }

    /// The value of the header, or a reference to its secret.
    pub(super) fn render(&self, name: &str, scope: &dyn Scope, budget: &mut Budget) -> Result<Json, ExprError> {
        match self {
            Header::Text(template) => {
                let text = template.render(scope, budget)?;
                check_value(name, &text)?;
                Ok(text.trim().into())
            }
            Header::Secret(secret) => Ok(serde_json::json!({ "secret": secret })),
        }
    }
}

fn wrong(message: impl Into<String>) -> ExprError {
    ExprError::new(ExprErrorKind::InvalidValue, 0..0, message)
}

/// Reads headers: an object of texts and of `{"secret": name}`. An error comes with the name of the header it is about.
pub fn read_headers(given: &Json) -> Result<Vec<(String, Header)>, (String, ExprError)> {
    const HINT: &str = "For example {\"X-Source\": \"shop\", \"Authorization\": {\"secret\": \"api-token\"}}.";
    let Json::Object(fields) = given else {
        return Err((String::new(), wrong("\"headers\" must be a JSON object").with_hint(HINT)));
    };
    if fields.len() > MAX_HEADERS {
        return Err((String::new(), wrong(format!("a webhook has at most {MAX_HEADERS} headers"))));
    }
    let mut read: Vec<(String, Header)> = Vec::new();
    for (name, value) in fields {
        let at = |error: ExprError| (name.clone(), error);
        check_name(name).map_err(at)?;
        if read.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            return Err(at(wrong(format!("header \"{name}\" is given twice"))));
        }
        let header = match value {
            Json::String(text) => {
                let template = Template::parse(text).map_err(at)?;
                for part in template.parts() {
                    if let Part::Text(literal) = part {
                        check_value(name, literal).map_err(at)?;
                    }
                }
                Header::Text(template)
            }
            Json::Object(fields) if fields.len() == 1 && fields.contains_key("secret") => {
                match fields["secret"].as_str().filter(|secret| is_name(secret)) {
                    Some(secret) => Header::Secret(secret.to_owned()),
                    None => {
                        return Err(at(
                            wrong(format!("invalid name of a secret in header \"{name}\"")).with_hint(NAME_HINT)
                        ));
                    }
                }
            }
            _ => {
                return Err(at(
                    wrong(format!("header \"{name}\" must be a text or {{\"secret\": name}}")).with_hint(HINT)
                ));
            }
        };
        read.push((name.clone(), header));
    }
    Ok(read)
}

fn check_name(name: &str) -> Result<(), ExprError> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(token) {
        return Err(wrong(format!("invalid name of a header \"{}\"", name.escape_debug()))
            .with_hint("It has letters, digits and hyphens."));
    }
    if OURS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(wrong(format!("header \"{name}\" cannot be given")).with_hint("The engine sets it itself."));
    }
    Ok(())
}

/// Refuses characters that could end the header and begin another one.
fn check_value(name: &str, value: &str) -> Result<(), ExprError> {
    if value.len() > MAX_VALUE {
        return Err(wrong(format!("the value of header \"{name}\" is too long"))
            .with_detail(format!("It has {} bytes, at most {MAX_VALUE} are possible.", value.len())));
    }
    match value.chars().find(|c| !(' '..='~').contains(c)) {
        Some(c) => Err(wrong(format!("the value of header \"{name}\" cannot contain \"{}\"", c.escape_default()))
            .with_detail("The value of a header is printable ASCII.")),
        None => Ok(()),
    }
}
