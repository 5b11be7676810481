//! The destinations that the administrator allows: hosts by name, ports, and networks by cidr. A destination that no
//! rule names is refused.
use std::fmt;
use std::net::SocketAddr;

use url::Host;

use crate::address::Cidr;

/// The destinations that one role may reach.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// May a request travel without TLS?
    pub allow_plain: bool,
    /// Ports that a rule without a port opens.
    pub ports: Vec<u16>,
    pub rules: Vec<Rule>,
    /// The addresses on which this server listens; never dialled, even if a rule allows them. An unspecified
    /// address stands for every address of this machine.
    pub own: Vec<SocketAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub host: HostPattern,
    /// Only this port, which then need not be among the policy's.
    pub port: Option<u16>,
    /// Only addresses in this network, which may then be a private one.
    pub cidr: Option<Cidr>,
}

impl Rule {
    pub(crate) fn names(&self, host: &Host<String>, port: u16) -> bool {
        self.host.matches(host) && self.port.is_none_or(|named| named == port)
    }
}

/// An exact host, or `*.suffix` for every name below a suffix, by whole labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    Exact(Host<String>),
    Below(String),
}

impl HostPattern {
    /// Reads a pattern as a URL's host is read, so that both are compared in the same spelling.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("*.") {
            Some(suffix) => match parse_host(suffix)? {
                Host::Domain(name) => Some(HostPattern::Below(name)),
                Host::Ipv4(_) | Host::Ipv6(_) => None,
            },
            None => parse_host(text).map(HostPattern::Exact),
        }
    }

    pub fn matches(&self, host: &Host<String>) -> bool {
        match (self, host) {
            (HostPattern::Exact(exact), host) => exact == host,
            (HostPattern::Below(suffix), Host::Domain(name)) => {
                name.strip_suffix(suffix.as_str()).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
            }
            (HostPattern::Below(_), _) => false,
        }
    }

    /// As `matches`, for a host in text.
    pub fn matches_text(&self, host: &str) -> bool {
        parse_host(host).is_some_and(|host| self.matches(&host))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(host) => write!(f, "{host}"),
            HostPattern::Below(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

/// A host by itself, read the way a URL's host is; an IPv6 address may stand without its brackets.
fn parse_host(text: &str) -> Option<Host<String>> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    if let Ok(address) = text.parse() {
        return Some(Host::Ipv6(address));
    }
    let host = Host::parse(text).ok()?;
    is_dialable(&host).then_some(host)
}

/// Names of ordinary labels only: those that a resolver, a certificate and a Host header all read alike.
pub(crate) fn is_dialable(host: &Host<String>) -> bool {
    let Host::Domain(name) = host else { return true };
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        HostPattern::parse(text).expect(text)
    }

    #[test]
    fn a_suffix_matches_whole_labels_only() {
        let below = pattern("*.Example.com");
        for host in ["a.example.com", "a.b.example.com", "A.EXAMPLE.COM"] {
            assert!(below.matches_text(host), "{host}");
        }
        for host in ["example.com", "badexample.com", "example.com.evil.org", ".example.com", "a.example.com."] {
            assert!(!below.matches_text(host), "{host}");
        }
    }

    #[test]
    fn an_exact_pattern_is_read_like_a_url() {
        assert!(pattern("API.example.com").matches_text("api.EXAMPLE.com"));
        assert!(!pattern("example.com").matches_text("a.example.com"));
        assert_eq!(pattern("0x7f.1"), pattern("127.0.0.1"));
        assert_eq!(pattern("::1"), pattern("[::1]"));
        assert_eq!(pattern("*.example.com").to_string(), "*.example.com");
    }

    #[test]
    fn what_is_no_host_is_no_pattern() {
        for text in ["", "*", "*.", "a..b", "*.127.0.0.1", "a b", "a/b", "a@b", "https://a", "a:443", "*.*.com", "é.fr"]
        {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
    }
}
