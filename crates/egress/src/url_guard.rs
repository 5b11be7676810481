//! Reads a URL once and judges it. The request is made from the parsed parts alone, never from the text again, so
//! that no second reader can understand it differently.
use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use crate::blocked::Blocked;
use crate::policy::{Policy, is_dialable};

/// A URL longer than this is refused; receivers and proxies commonly stop here.
const MOST_BYTES: usize = 8192;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(crate) tls: bool,
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// Path and query as they stand in the request line.
    pub(crate) resource: String,
}

impl Target {
    /// The host in its one spelling; IPv6 in brackets.
    pub fn host(&self) -> String {
        self.host.to_string()
    }

    pub fn parsed_host(&self) -> &Host<String> {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The address, if the URL names one itself.
    pub fn literal(&self) -> Option<IpAddr> {
        match &self.host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        }
    }

    /// The value of the Host header.
    pub(crate) fn authority(&self) -> String {
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.tls { "https" } else { "http" }, self.authority(), self.resource)
    }
}

/// Judges everything about a URL that can be judged before its host is resolved.
pub fn check_url(text: &str, policy: &Policy) -> Result<Target, Blocked> {
    let target = parse(text)?;
    if !target.tls && !policy.allow_plain {
        return Err(Blocked::Plain);
    }
    let mut named = policy.rules.iter().filter(|rule| rule.names(&target.host, target.port)).peekable();
    if named.peek().is_none() {
        return Err(Blocked::NoRule);
    }
    let open = policy.ports.contains(&target.port) || named.any(|rule| rule.port == Some(target.port));
    if !open {
        return Err(Blocked::Port);
    }
    Ok(target)
}

fn parse(text: &str) -> Result<Target, Blocked> {
    if text.len() > MOST_BYTES {
        return Err(Blocked::NotAUrl);
    }
    // The parser would drop, trim or change these characters; other readers of the text would not.
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err(Blocked::OddCharacter);
    }
    let (scheme, rest) = text.split_once(':').ok_or(Blocked::NotAUrl)?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err(Blocked::Scheme),
    };
    let authority = rest.strip_prefix("//").ok_or(Blocked::NotAUrl)?;
    if authority.starts_with('/') {
        return Err(Blocked::NotAUrl);
    }
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Blocked::UserInfo);
    }
    let url = Url::parse(text).map_err(|_| Blocked::NotAUrl)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Blocked::UserInfo);
    }
    let host = url.host().ok_or(Blocked::Host)?.to_owned();
    if !is_dialable(&host) {
        return Err(Blocked::Host);
    }
    let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(Blocked::Port)?;
    let resource = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    Ok(Target { tls, host, port, resource })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{HostPattern, Rule};

    fn rule(host: &str, port: Option<u16>) -> Rule {
        Rule { host: HostPattern::parse(host).expect(host), port, cidr: None }
    }

    fn policy() -> Policy {
        Policy {
            ports: vec![80, 443],
            rules: vec![rule("api.example.com", None), rule("*.hooks.example.com", None), rule("odd.org", Some(8443))],
            ..Policy::default()
        }
    }

    #[test]
    fn nothing_is_allowed_that_no_rule_names() {
        assert_eq!(check_url("https://api.example.com/x", &Policy::default()), Err(Blocked::NoRule));
        assert!(check_url("https://api.example.com/x?y=1#z", &policy()).is_ok());
        assert!(check_url("https://a.hooks.example.com", &policy()).is_ok());
        assert_eq!(check_url("https://example.com/", &policy()), Err(Blocked::NoRule));
    }

    #[test]
    fn plain_http_needs_the_setting() {
        assert_eq!(check_url("http://api.example.com/", &policy()), Err(Blocked::Plain));
        assert!(check_url("http://api.example.com/", &Policy { allow_plain: true, ..policy() }).is_ok());
    }

    #[test]
    fn a_port_needs_the_setting_or_a_rule_that_names_it() {
        assert_eq!(check_url("https://api.example.com:8443/", &policy()), Err(Blocked::Port));
        assert!(check_url("https://odd.org:8443/", &policy()).is_ok());
        assert_eq!(check_url("https://odd.org/", &policy()), Err(Blocked::NoRule));
    }

    #[test]
    fn what_two_readers_could_understand_differently_is_refused() {
        let cases = [
            ("", Blocked::NotAUrl),
            ("api.example.com", Blocked::NotAUrl),
            ("https:api.example.com", Blocked::NotAUrl),
            ("https:/api.example.com", Blocked::NotAUrl),
            ("https:///api.example.com", Blocked::NotAUrl),
            (" https://api.example.com/", Blocked::OddCharacter),
            ("https://api.example.com/\r\nX: y", Blocked::OddCharacter),
            ("https://api.exa\tmple.com/", Blocked::OddCharacter),
            ("https://api.example.com\\@evil.org/", Blocked::OddCharacter),
            ("https:\\\\api.example.com", Blocked::OddCharacter),
            ("https://\u{ff41}pi.example.com/", Blocked::OddCharacter),
            ("https://user@api.example.com/", Blocked::UserInfo),
            ("https://@api.example.com/", Blocked::UserInfo),
            ("https://evil.org:443@api.example.com/", Blocked::UserInfo),
            ("https://api.example.com./", Blocked::Host),
            ("https://api..example.com/", Blocked::Host),
            ("https://a%00b.com/", Blocked::NotAUrl),
            ("https://api.example.com:0/", Blocked::Port),
            ("https://api.example.com:99999/", Blocked::NotAUrl),
            ("ftp://api.example.com/", Blocked::Scheme),
            ("file:///etc/passwd", Blocked::Scheme),
            ("gopher://127.0.0.1:6379/_x", Blocked::Scheme),
            ("javascript:alert(1)", Blocked::Scheme),
        ];
        for (text, blocked) in cases {
            assert_eq!(check_url(text, &policy()), Err(blocked), "{text}");
        }
    }

    #[test]
    fn the_fragment_is_not_sent_and_the_usual_port_not_named() {
        let target = check_url("https://API.example.com:443/a/../b?c=%41#d", &policy()).expect("a target");
        assert_eq!(target.resource, "/b?c=%41");
        assert_eq!(target.authority(), "api.example.com");
        assert_eq!(target.to_string(), "https://api.example.com/b?c=%41");
    }

    #[test]
    fn every_spelling_of_an_address_is_that_address() {
        let policy = Policy { rules: vec![rule("127.0.0.1", None)], ports: vec![443], ..Policy::default() };
        for text in
            ["https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://127.0.0.1"]
        {
            let target = check_url(text, &policy).expect(text);
            assert_eq!(target.literal(), Some(IpAddr::from([127, 0, 0, 1])), "{text}");
        }
    }
}
