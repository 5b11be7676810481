//! The guard's verdict is about the address that is really dialled: for any text, and anything a name may resolve to,
//! what a listener sees is what was allowed, and what is blocked reaches nobody.
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use egress::{
    Cidr, HostPattern, Network, Outcome, Policy, Request, Resolve, Rule, check_addresses, check_url, client_config,
    is_public, send,
};
use proptest::prelude::*;

/// A receiver that remembers on which address it was reached and which host it was asked for.
struct Log {
    port: u16,
    seen: Mutex<Vec<(SocketAddr, String)>>,
}

fn log() -> &'static Log {
    static LOG: OnceLock<&'static Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let also = TcpListener::bind(("127.0.0.2", port)).expect("the same port");
        let log: &'static Log = Box::leak(Box::new(Log { port, seen: Mutex::default() }));
        for listener in [listener, also] {
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let local = stream.local_addr().expect("an address");
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    // Written before the answer, so that whoever was answered finds it here; the beginnings of TLS
                    // connections, which end unanswered, would come late and count for another case.
                    if head.starts_with("GET ") || local.ip() != IpAddr::from([127, 0, 0, 1]) {
                        log.seen.lock().expect("a log").push((local, head));
                    }
                    let _ = stream.write_all(b"HTTP/1.1 204 No\r\n\r\n");
                }
            });
        }
        log
    })
}

/// Resolves every name to the same addresses.
struct Always(Vec<IpAddr>);

impl Resolve for Always {
    fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
        Ok(self.0.clone())
    }
}

fn network(addresses: Vec<IpAddr>) -> Network {
    static TLS: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();
    let tls = TLS.get_or_init(|| client_config(None).expect("a configuration"));
    Network { tls: Arc::clone(tls), names: Arc::new(Always(addresses)) }
}

fn post(url: &str, policy: &Policy, addresses: Vec<IpAddr>) -> Option<Outcome> {
    let request = Request {
        target: check_url(url, policy).ok()?,
        method: "GET".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        timeout: Duration::from_secs(2),
        policy: Arc::new(policy.clone()),
        mask: egress::Mask::default(),
    };
    Some(send(&request, &network(addresses)))
}

/// Texts that have fooled guards: many spellings of loopback, of another host, and of the borders between parts.
fn odd_url(port: u16) -> impl Strategy<Value = String> {
    let scheme = prop_oneof![4 => Just("http"), 1 => Just("HTTP"), 1 => Just("https"), 1 => Just("ftp"), 1 => Just("")];
    let slashes = prop_oneof![6 => Just("://"), 1 => Just(":/"), 1 => Just(":///"), 1 => Just(":\\\\"), 1 => Just(":")];
    let user = prop_oneof![6 => Just(""), 1 => Just("good.test@"), 1 => Just("@"), 1 => Just("a:b@"), 1 => Just("good.test#@")];
    let host = prop_oneof![
        Just("127.0.0.1"),
        Just("127.0.0.2"),
        Just("127.1"),
        Just("2130706433"),
        Just("0x7f.1"),
        Just("017700000001"),
        Just("0"),
        Just("[::1]"),
        Just("[::ffff:127.0.0.1]"),
        Just("[::127.0.0.1]"),
        Just("localhost"),
        Just("good.test"),
        Just("GOOD.test"),
        Just("good.test."),
        Just("evil.test"),
        Just("good.test.evil.test"),
        Just("%67ood.test"),
        Just("127.0.0.1%2f.good.test"),
        Just("\u{ff11}27.0.0.1"),
        Just("good\u{3002}test"),
        Just("127。0。0。1"),
        Just("good.test\t"),
        Just("good.test\\.evil.test"),
        Just(""),
        Just("a.good.test"),
    ];
    let port = prop_oneof![4 => Just(format!(":{port}")), 1 => Just(String::new()), 1 => Just(":".to_owned()),
        1 => Just(format!(":0{port}")), 1 => Just(":99999".to_owned())];
    let rest = prop_oneof![
        Just(""),
        Just("/"),
        Just("/x?y=http://127.0.0.2/"),
        Just("?q"),
        Just("#@127.0.0.2"),
        Just("\\@127.0.0.2"),
        Just("/..//127.0.0.2"),
        Just("/\r\nHost: evil.test"),
        Just("@127.0.0.2/"),
        Just(";@127.0.0.2"),
    ];
    (scheme, slashes, user, host, port, rest)
        .prop_map(|(scheme, slashes, user, host, port, rest)| format!("{scheme}{slashes}{user}{host}{port}{rest}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Only `good.test`, and only at 127.0.0.1, is open: then nobody else is ever reached or named.
    #[test]
    fn only_what_was_allowed_is_reached(url in odd_url(log().port), first in any::<bool>(), both in any::<bool>()) {
        let rule = Rule {
            host: HostPattern::parse("good.test").expect("a host"),
            port: None,
            cidr: Some("127.0.0.1/32".parse().expect("a cidr")),
        };
        let policy = Policy { allow_plain: true, ports: vec![80, log().port], rules: vec![rule], own: Vec::new() };
        let one = IpAddr::from([127, 0, 0, if first { 1 } else { 2 }]);
        let addresses = if both { vec![one, [127, 0, 0, 2].into()] } else { vec![one] };
        let outcome = post(&url, &policy, addresses.clone());
        let seen: Vec<(SocketAddr, String)> = std::mem::take(&mut log().seen.lock().expect("a log"));
        for (reached, head) in &seen {
            prop_assert_eq!(reached.ip(), IpAddr::from([127, 0, 0, 1]), "{}", url);
            prop_assert_eq!(&addresses, &vec![IpAddr::from([127, 0, 0, 1])]);
            let line = format!("\r\nHost: good.test:{}\r\n", log().port);
            prop_assert_eq!(head.matches("Host:").count(), 1);
            prop_assert!(head.contains(&line), "{}: {}", url, head);
        }
        prop_assert_eq!(seen.len(), usize::from(matches!(outcome, Some(Outcome::Answer { status: 204, .. }))), "{}", url);
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(bits)))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(0x2002 << 112 | u128::from(bits) << 80))),
    ]
}

/// The same question as `is_public`, answered by the standard library where it can.
fn surely_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_documentation()
                || v4.is_unspecified()
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => surely_private(IpAddr::V4(v4)),
            None => {
                v6.is_loopback()
                    || v6.is_multicast()
                    || v6.is_unspecified()
                    || v6.is_unique_local()
                    || v6.is_unicast_link_local()
            }
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn what_is_dialled_is_what_was_resolved_and_nothing_private(addresses in prop::collection::vec(any_address(), 1..4)) {
        let host = HostPattern::parse("good.test").expect("a host");
        let policy = Policy { ports: vec![443], rules: vec![Rule { host, port: None, cidr: None }], ..Policy::default() };
        let target = check_url("https://good.test/", &policy).expect("a target");
        match check_addresses(&target, &addresses, &policy) {
            Ok(dialled) => {
                let canonical: Vec<IpAddr> = addresses.iter().map(IpAddr::to_canonical).collect();
                prop_assert_eq!(dialled.iter().map(SocketAddr::ip).collect::<Vec<_>>(), canonical);
                prop_assert!(dialled.iter().all(|address| address.port() == 443 && !surely_private(address.ip())));
            }
            Err(_) => prop_assert!(addresses.iter().any(|address| !is_public(*address))),
        }
    }

    #[test]
    fn a_cidr_says_the_same_as_its_range(bits in any::<u32>(), length in 0u8..=32, other in any::<u32>()) {
        let cidr: Cidr = format!("{}/{length}", Ipv4Addr::from_bits(bits)).parse().expect("a cidr");
        let mask = if length == 0 { 0 } else { u32::MAX << (32 - length) };
        prop_assert_eq!(cidr.contains(IpAddr::V4(Ipv4Addr::from_bits(other))), bits & mask == other & mask);
    }

    #[test]
    fn any_text_at_all_is_judged(text in "\\PC*") {
        let _ = check_url(&text, &Policy::default());
        let _ = HostPattern::parse(&text);
        let _ = egress::retry_after(&text, 0);
    }
}
