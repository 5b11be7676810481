//! Which addresses may be dialled. A name is judged by everything it resolves to, each time anew.
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::blocked::Blocked;
use crate::policy::Policy;
use crate::url_guard::Target;

/// A network: an address and how many of its first bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(address)) => {
                shared_bits(u128::from(net.to_bits()) << 96, u128::from(address.to_bits()) << 96) >= self.bits
            }
            (IpAddr::V6(net), IpAddr::V6(address)) => shared_bits(net.to_bits(), address.to_bits()) >= self.bits,
            _ => false,
        }
    }
}

/// How many leading bits two numbers share.
fn shared_bits(a: u128, b: u128) -> u8 {
    (a ^ b).leading_zeros() as u8
}

impl FromStr for Cidr {
    type Err = ();

    /// `10.0.0.0/8`; without the slash it is one address.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| ())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(()) } else { Ok(Cidr { address, bits }) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Cidr {
    Cidr { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
}

const fn v6(segments: [u16; 8], bits: u8) -> Cidr {
    let [a, b, c, d, e, f, g, h] = segments;
    Cidr { address: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), bits }
}

/// Networks that are not the public internet, or that lead into one that is not.
const CLOSED: [Cidr; 28] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96), // unspecified, loopback, and IPv4 addresses in their oldest wrapping
    v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), // IPv4-translated
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), // translation inside one site
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), // Teredo and other protocol assignments
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), // 6to4
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
];

/// The prefix under which resolvers of networks without IPv4 show public IPv4 hosts.
const NAT64: Cidr = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// Is this an address of the public internet?
pub fn is_public(address: IpAddr) -> bool {
    let address = unwrapped(address);
    if let IpAddr::V6(wrapped) = address
        && NAT64.contains(address)
    {
        return is_public(IpAddr::V4(last_four(wrapped)));
    }
    !CLOSED.iter().any(|closed| closed.contains(address))
}

/// An IPv4 address that travels as IPv6 is dialled, and judged, as IPv4.
fn unwrapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(wrapped) => wrapped.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn last_four(address: Ipv6Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() as u32)
}

/// All the addresses of a host, if every single one may be dialled.
pub fn check_addresses(target: &Target, resolved: &[IpAddr], policy: &Policy) -> Result<Vec<SocketAddr>, Blocked> {
    let mut checked = Vec::with_capacity(resolved.len());
    for address in resolved.iter().copied().map(unwrapped) {
        let allowed =
            policy.rules.iter().filter(|rule| rule.names(&target.host, target.port)).any(|rule| match rule.cidr {
                Some(cidr) => cidr.contains(address),
                None => is_public(address),
            });
        if !allowed {
            return Err(Blocked::Network);
        }
        if is_own(address, target.port, policy) {
            return Err(Blocked::OwnAddress);
        }
        checked.push(SocketAddr::new(address, target.port));
    }
    Ok(checked)
}

/// Does this server listen there? The addresses that an unspecified one stands for are asked of the system when
/// dialling; those that are known without asking are refused here.
fn is_own(address: IpAddr, port: u16, policy: &Policy) -> bool {
    let local = address.is_loopback() || address.is_unspecified();
    policy.own.iter().filter(|own| own.port() == port).any(|own| {
        let listens = unwrapped(own.ip());
        listens == address || (local && (listens.is_unspecified() || listens.is_loopback()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{HostPattern, Rule};
    use crate::url_guard::check_url;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn a_cidr_holds_its_addresses_and_no_others() {
        let cidr: Cidr = "10.32.0.0/11".parse().expect("a cidr");
        assert!(cidr.contains(ip("10.32.0.0")) && cidr.contains(ip("10.63.255.255")));
        assert!(!cidr.contains(ip("10.64.0.0")) && !cidr.contains(ip("10.31.255.255")));
        assert!(!cidr.contains(ip("::ffff:10.32.0.0")));
        assert!("0.0.0.0/0".parse::<Cidr>().expect("all").contains(ip("255.1.2.3")));
        assert!("::1".parse::<Cidr>().expect("one").contains(ip("::1")));
        assert!(!"::1".parse::<Cidr>().expect("one").contains(ip("::2")));
        for text in ["10.0.0.0/33", "::/129", "10/8", "x", "1.2.3.4/", "1.2.3.4/-1"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }

    #[test]
    fn closed_networks_are_known_by_their_first_and_last_address() {
        let closed = [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ];
        for text in closed {
            assert!(!is_public(ip(text)), "{text}");
        }
        let public = [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2606:4700:4700::1111",
            "2a00::1",
        ];
        for text in public {
            assert!(is_public(ip(text)), "{text}");
        }
    }

    fn target(url: &str, policy: &Policy) -> Target {
        check_url(url, policy).expect(url)
    }

    fn policy(cidr: Option<&str>) -> Policy {
        let cidr = cidr.map(|text| text.parse().expect(text));
        let host = HostPattern::parse("in.example.com").expect("a host");
        Policy { ports: vec![443], rules: vec![Rule { host, port: None, cidr }], ..Policy::default() }
    }

    #[test]
    fn one_private_address_among_public_ones_blocks_the_name() {
        let policy = policy(None);
        let target = target("https://in.example.com/", &policy);
        let public = [ip("1.1.1.1"), ip("2606:4700::1")];
        assert_eq!(check_addresses(&target, &public, &policy).map(|all| all.len()), Ok(2));
        let mixed = [ip("1.1.1.1"), ip("10.0.0.1")];
        assert_eq!(check_addresses(&target, &mixed, &policy), Err(Blocked::Network));
    }

    #[test]
    fn a_rule_with_a_cidr_opens_that_network_and_nothing_else() {
        let policy = policy(Some("10.1.0.0/16"));
        let target = target("https://in.example.com/", &policy);
        assert!(check_addresses(&target, &[ip("10.1.2.3")], &policy).is_ok());
        assert!(check_addresses(&target, &[ip("::ffff:10.1.2.3")], &policy).is_ok());
        for other in ["10.2.0.1", "127.0.0.1", "1.1.1.1", "::ffff:10.2.0.1", "64:ff9b::10.1.2.3"] {
            assert_eq!(check_addresses(&target, &[ip(other)], &policy), Err(Blocked::Network), "{other}");
        }
    }

    #[test]
    fn the_server_never_talks_to_itself() {
        let own = |listens: &str| Policy { own: vec![SocketAddr::new(ip(listens), 443)], ..policy(Some("0.0.0.0/0")) };
        let blocked = |listens: &str, dialled: &str| {
            let policy = own(listens);
            check_addresses(&target("https://in.example.com/", &policy), &[ip(dialled)], &policy)
                == Err(Blocked::OwnAddress)
        };
        assert!(blocked("10.0.0.5", "10.0.0.5"));
        assert!(!blocked("10.0.0.5", "10.0.0.6"));
        assert!(blocked("0.0.0.0", "127.0.0.1"));
        assert!(blocked("::", "127.0.0.1"));
        assert!(blocked("127.0.0.1", "127.0.0.2"));
        assert!(blocked("127.0.0.1", "0.0.0.0"));
    }
}
