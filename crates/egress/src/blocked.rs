//! The reasons why a request may not leave. The texts are shown to the automation's owner, which must not learn from
//! them the address to which a name resolves inside this network: they never hold an address that the owner did not
//! write.
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    NotAUrl,
    /// A character that other readers of the same text might understand differently.
    OddCharacter,
    Scheme,
    /// http, while only https is allowed.
    Plain,
    UserInfo,
    Host,
    Port,
    /// No rule names this host and port.
    NoRule,
    /// A rule names the host, but it lies in a network that only a rule with its cidr opens.
    Network,
    /// One of the addresses at which this very server listens.
    OwnAddress,
}

impl Blocked {
    /// The reason as a text, to follow "blocked by policy: ".
    pub fn reason(self) -> &'static str {
        match self {
            Blocked::NotAUrl => "the URL cannot be read",
            Blocked::OddCharacter => {
                "the URL contains a space, a control character, a backslash or a character outside ASCII"
            }
            Blocked::Scheme => "the URL's scheme is neither https nor http",
            Blocked::Plain => "the URL's scheme is http, and automation_engine.http_allow_plain is off",
            Blocked::UserInfo => "the URL contains a user name or password",
            Blocked::Host => "the URL's host is not a name or address that can be dialled",
            Blocked::Port => "the URL's port is neither in automation_engine.http_ports nor named by an egress rule",
            Blocked::NoRule => "no egress rule allows this host and port to the automation's owner",
            Blocked::Network => "the host lies in a network that no egress rule opens to the automation's owner",
            Blocked::OwnAddress => "the host and port are this server's own",
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocked by policy: {}", self.reason())
    }
}

impl std::error::Error for Blocked {}
