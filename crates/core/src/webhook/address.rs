//! The address of a receiver: scheme, host and port as written, path and query with values in them.

use crate::expr::{Budget, ExprError, ExprErrorKind, Scope};
use crate::template::{Part, Template};
use std::ops::Range;

/// Most bytes of an address.
const MAX_URL: usize = 8_192;

/// An address.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    template: Template,
    origin: Origin,
}

/// The receiver that an address leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Whether it is https.
    pub secure: bool,
    /// In lower case; an IPv6 address is without its brackets.
    pub host: String,
    /// As written, or the scheme's own.
    pub port: u16,
}

impl Address {
    /// Reads an address. Everything up to the path must be literal: a role that may fill a table must not decide where
    /// its rows are sent.
    pub fn parse(text: &str) -> Result<Address, ExprError> {
        let origin = origin(text)?;
        let template = Template::parse(text)?;
        for part in template.parts() {
            if let Part::Text(literal) = part
                && let Some(c) = literal.chars().find(|c| c.is_control() || c.is_whitespace() || *c == '\\')
            {
                let at = text.find(c).unwrap_or_default();
                return Err(wrong(at..at + c.len_utf8(), format!("a url cannot contain {}", named(c)))
                    .with_hint("Write it percent-encoded."));
            }
        }
        let address = Address { template, origin };
        if address.template.is_constant() {
            check_path(text)?;
        }
        Ok(address)
    }

    /// The address as written.
    pub fn text(&self) -> &str {
        self.template.text()
    }

    /// The address with its expressions.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// The receiver that the address leads to.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The address with values in place. Each is one piece of a path or one value of a query: characters that have a
    /// meaning in a url are encoded.
    pub fn render(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<String, ExprError> {
        let mut out = String::new();
        for part in self.template.parts() {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Expr(expr, start) => {
                    let value = expr.eval(scope, budget).map_err(|error| error.shifted(*start))?;
                    let text = value.to_text().unwrap_or_default();
                    // DELETE /orders/{{ new.id }} must not become DELETE /orders/
                    if text.is_empty() && !out.contains(['?', '#']) {
                        let span = *start..*start + expr.text().len();
                        return Err(wrong(span, "a value in the path of a url is empty")
                            .with_hint("Give the step a condition, or a default: {{ new.note | default('none') }}."));
                    }
                    encode(&text, &mut out);
                }
            }
        }
        check_path(&out)?;
        Ok(out)
    }
}

fn wrong(span: Range<usize>, message: impl Into<String>) -> ExprError {
    ExprError::new(ExprErrorKind::InvalidValue, span, message)
}

fn named(c: char) -> String {
    if c == ' ' { "a space".to_owned() } else { format!("\"{}\"", c.escape_default()) }
}

const EXAMPLE: &str = "A url is like https://api.example.com/hooks/{{ new.id }}.";

fn origin(text: &str) -> Result<Origin, ExprError> {
    let scheme_end = text.find("://").ok_or_else(|| wrong(0..text.len(), "invalid url").with_hint(EXAMPLE))?;
    let scheme = &text[..scheme_end];
    let start = scheme_end + 3;
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |length| start + length);
    let authority = &text[start..end];
    if scheme.contains("{{") || authority.contains("{{") {
        let at = text.find("{{").unwrap_or_default();
        return Err(wrong(at..at + 2, "scheme, host and port of a url must be literal").with_hint(EXAMPLE));
    }
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => {
            return Err(
                wrong(0..scheme_end, format!("a url cannot have the scheme \"{scheme}\"")).with_hint("Use https.")
            );
        }
    };
    if authority.contains('@') {
        let hint = "Give them in a header: {\"Authorization\": {\"secret\": \"name\"}}.";
        return Err(wrong(start..end, "a url cannot contain a user or a password").with_hint(hint));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let Some((host, after)) = rest.split_once(']') else {
                return Err(wrong(start..end, "invalid host").with_hint(EXAMPLE));
            };
            if host.parse::<core::net::Ipv6Addr>().is_err() {
                return Err(wrong(start..end, format!("invalid address \"{host}\"")));
            }
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').unwrap_or("-")) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if !authority.starts_with('[') && !is_host(host) {
        let error = wrong(start..start + host.len(), format!("invalid host \"{host}\""));
        return Err(match host.is_ascii() {
            true => error.with_hint(EXAMPLE),
            false => error.with_hint("Write the name in its ASCII form, which begins with xn--."),
        });
    }
    let port = match port {
        None if secure => 443,
        None => 80,
        Some(text) => text.parse::<u16>().ok().filter(|port| *port > 0 && !text.starts_with('+')).ok_or_else(|| {
            wrong(end - text.len().min(end - start)..end, "invalid port")
                .with_hint("A port is a number from 1 to 65535.")
        })?,
    };
    Ok(Origin { secure, host: host.to_ascii_lowercase(), port })
}

/// Labels of letters, digits and hyphens, separated by dots.
fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    host.len() <= 253 && !host.is_empty() && host.split('.').all(label)
}

/// A host as a rule or a secret names it: a name, an address, or `*.suffix`. In lower case, None if the text is no
/// host.
pub fn host_pattern(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<core::net::Ipv6Addr>() {
        return Some(address.to_string());
    }
    let suffix = text.strip_prefix("*.");
    // "*.com" would be nearly everywhere, and "*." names no host, so both are mistakes.
    if suffix.is_some_and(|suffix| !suffix.trim_end_matches('.').contains('.')) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix('.').unwrap_or(&lower);
    is_host(suffix.unwrap_or(text)).then(|| lower.to_owned())
}

/// Does the path lead where it seems to lead? A value of ".." would go elsewhere on the same host.
fn check_path(url: &str) -> Result<(), ExprError> {
    if url.len() > MAX_URL {
        return Err(wrong(0..0, "the url of a webhook is too long")
            .with_detail(format!("It has {} bytes, at most {MAX_URL} are possible.", url.len())));
    }
    let path_end = url.find(['?', '#']).unwrap_or(url.len());
    let dots = |segment: &str| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    if url[..path_end].split('/').skip(3).any(dots) {
        return Err(wrong(0..0, "the path of a url cannot contain \".\" or \"..\" as a segment"));
    }
    Ok(())
}

/// Percent-encodes all but letters, digits and the characters that have no meaning in any part of a url.
fn encode(value: &str, out: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            other => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                out.push('%');
                out.push(HEX[usize::from(other >> 4)] as char);
                out.push(HEX[usize::from(other & 15)] as char);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, host_pattern};
    use crate::expr::{Budget, FixedScope};
    use crate::value::{Timestamp, Value};

    fn rendered(text: &str, value: &str) -> String {
        let roots = Value::object(vec![("new".into(), Value::object(vec![("v".into(), Value::text(value))]))]);
        let scope = FixedScope::new(roots, Timestamp(0));
        let address = Address::parse(text).and_then(|address| address.render(&scope, &mut Budget::default()));
        address.unwrap_or_else(|error| error.message)
    }

    #[test]
    fn a_value_stays_one_piece_of_the_path() {
        let hook = "https://a.example/x/{{ new.v }}?q={{ new.v }}";
        assert_eq!(rendered(hook, "a b"), "https://a.example/x/a%20b?q=a%20b");
        assert_eq!(rendered(hook, "/../?x=1&y#@h:1"), {
            let v = "%2F..%2F%3Fx%3D1%26y%23%40h%3A1";
            format!("https://a.example/x/{v}?q={v}")
        });
        assert_eq!(rendered(hook, "é\r\n\0"), "https://a.example/x/%C3%A9%0D%0A%00?q=%C3%A9%0D%0A%00");
        assert_eq!(rendered(hook, ""), "a value in the path of a url is empty");
        assert_eq!(rendered("https://a.example/?q={{ new.v }}", ""), "https://a.example/?q=");
        assert_eq!(rendered(hook, ".."), "the path of a url cannot contain \".\" or \"..\" as a segment");
        assert_eq!(rendered("https://a.example/x/.{{ new.v }}/b", "."), rendered(hook, ".."));
    }

    #[test]
    fn nobody_but_the_author_says_where_it_goes() {
        for text in [
            "https://{{ new.v }}/",
            "https://a.example{{ new.v }}/",
            "https://a.example:{{ new.v }}/",
            "{{ new.v }}://a.example/",
            "https://a.example{{ '/' }}x",
        ] {
            let error = Address::parse(text).unwrap_err().message;
            assert_eq!(error, "scheme, host and port of a url must be literal", "{text}");
        }
        for text in [
            "",
            "x",
            "https://",
            "https:///x",
            "ftp://a.example",
            "https://u:p@a.example/",
            "https://a.example:0/",
            "https://a.example:99999/",
            "https://a.example:/",
            "https://a.example:+1/",
            "https://a..example/",
            "https://[::1/",
            "https://[zz]/",
            "https://[::1]x/",
            "https://a b/",
            "https://a.example\\@b.example/",
            "https://a.example/ x",
            "https://a.example/\n",
            "https://ü.example/",
            "https://a.example/a/../b",
            "https://a.example/%2E%2e/b",
            "javascript://a.example/",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_says_whom_it_leads_to() {
        for (text, secure, host, port) in [
            ("https://A.Example", true, "a.example", 443),
            ("HTTP://a.example?x={{ new.v }}", false, "a.example", 80),
            ("https://a.example:8443/x", true, "a.example", 8443),
            ("https://[::1]:9/", true, "::1", 9),
            ("https://127.0.0.1#x", true, "127.0.0.1", 443),
        ] {
            let address = Address::parse(text).unwrap();
            let origin = address.origin();
            assert_eq!((origin.secure, origin.host.as_str(), origin.port), (secure, host, port), "{text}");
        }
    }

    #[test]
    fn a_pattern_names_a_host_or_what_it_ends_in() {
        assert_eq!(host_pattern("API.Example.com").as_deref(), Some("api.example.com"));
        assert_eq!(host_pattern("*.example.com").as_deref(), Some("*.example.com"));
        assert_eq!(host_pattern("[::0001]").as_deref(), Some("::1"));
        for text in ["*", "*.com", "*.", "a.*.com", "*a.example.com", "", " a", "a b", "https://a.example", "a:80"] {
            assert_eq!(host_pattern(text), None, "{text}");
        }
    }
}
