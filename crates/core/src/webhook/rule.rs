//! Would a rule let a message out? Asked when a definition is saved, so that its author sees a problem at once; the
//! courier asks again, with the addresses that the host then has.

use super::Origin;

/// Does a pattern name this host? `*.example.com` names the hosts below example.com, not example.com itself.
pub fn host_matches(pattern: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    match pattern.strip_prefix("*.") {
        Some(suffix) => host
            .len()
            .checked_sub(suffix.len() + 1)
            .is_some_and(|dot| dot > 0 && host.as_bytes()[dot] == b'.' && host[dot + 1..].eq_ignore_ascii_case(suffix)),
        None => host.eq_ignore_ascii_case(pattern),
    }
}

/// Why nothing can be sent to an address; None if it can, as far as is known without asking for the host's addresses.
/// `rules` are hosts and ports, `ports` those that need no rule of their own.
pub fn objection<'a>(
    origin: &Origin,
    allow_plain: bool,
    ports: &[u16],
    rules: impl Iterator<Item = (&'a str, Option<u16>)>,
) -> Option<String> {
    if !origin.secure && !allow_plain {
        return Some("automation_engine.http_allow_plain is off, so only https is sent".to_owned());
    }
    let mut named = false;
    for (host, port) in rules {
        if host_matches(host, &origin.host) {
            named = true;
            if port.map_or_else(|| ports.contains(&origin.port), |port| port == origin.port) {
                return None;
            }
        }
    }
    Some(match named {
        true => format!("no rule of allow_egress() allows port {}", origin.port),
        false => format!("no rule of allow_egress() allows host \"{}\"", origin.host),
    })
}

#[cfg(test)]
mod tests {
    use super::{host_matches, objection};
    use crate::webhook::Address;

    #[test]
    fn a_pattern_is_matched_label_by_label() {
        for (pattern, host, matches) in [
            ("a.example", "a.example", true),
            ("a.example", "A.EXAMPLE.", true),
            ("a.example", "b.a.example", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "b.a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "evilexample.com", false),
            ("*.example.com", ".example.com", false),
            ("*.example.com", "example.com.evil", false),
            ("*.example.com", "ü", false),
        ] {
            assert_eq!(host_matches(pattern, host), matches, "{pattern} {host}");
        }
    }

    #[test]
    fn nothing_goes_out_without_a_rule() {
        let ask = |url: &str, plain: bool, rules: &[(&str, Option<u16>)]| {
            let origin = Address::parse(url).unwrap().origin().clone();
            objection(&origin, plain, &[80, 443], rules.iter().copied())
        };
        let host = Some("no rule of allow_egress() allows host \"a.example\"".to_owned());
        assert_eq!(ask("https://a.example/", false, &[]), host);
        assert_eq!(ask("https://a.example/", false, &[("b.example", None)]), host);
        assert_eq!(ask("https://a.example/", false, &[("a.example", None)]), None);
        let port = Some("no rule of allow_egress() allows port 8443".to_owned());
        assert_eq!(ask("https://a.example:8443/", false, &[("a.example", None)]), port);
        assert_eq!(ask("https://a.example:8443/", false, &[("a.example", None), ("a.example", Some(8443))]), None);
        assert!(ask("https://a.example/", false, &[("a.example", Some(8443))]).is_some());
        assert!(ask("http://a.example/", false, &[("a.example", None)]).unwrap().contains("http_allow_plain"));
        assert_eq!(ask("http://a.example/", true, &[("a.example", None)]), None);
    }
}
