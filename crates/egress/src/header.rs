//! Which headers an automation may add to a request.
use std::fmt;

/// Names that the courier writes itself, or whose meaning would change where the message ends or which receiver it
/// reaches.
const OURS: [&str; 14] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "accept-encoding",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The name is not a token.
    Name,
    Reserved,
    /// The value has a character that would end the line, or one that HTTP does not know.
    Value,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeaderError::Name => "a header's name may contain letters, digits and !#$%&'*+-.^_`|~ only",
            HeaderError::Reserved => "this header is written by the courier itself",
            HeaderError::Value => "a header's value may contain neither control characters nor line breaks",
        })
    }
}

pub fn check_header(name: &str, value: &str) -> Result<(), HeaderError> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 256 || !name.bytes().all(token) {
        return Err(HeaderError::Name);
    }
    if OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
        return Err(HeaderError::Reserved);
    }
    if value.len() > 8192 || value.bytes().any(|byte| byte != b'\t' && byte.is_ascii_control()) {
        return Err(HeaderError::Value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_end_its_line() {
        for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "\u{7f}"] {
            assert_eq!(check_header("x-a", value), Err(HeaderError::Value), "{value:?}");
        }
        assert_eq!(check_header("x-a", "a\tb ü"), Ok(()));
    }

    #[test]
    fn names_are_tokens_and_not_ours() {
        for name in ["", "a b", "a:", "a\r\n", "ä", "a\0"] {
            assert_eq!(check_header(name, ""), Err(HeaderError::Name), "{name:?}");
        }
        for name in ["Host", "content-LENGTH", "Webhook-Signature", "Transfer-Encoding"] {
            assert_eq!(check_header(name, ""), Err(HeaderError::Reserved), "{name}");
        }
        assert_eq!(check_header("Authorization", "Bearer x"), Ok(()));
    }
}
