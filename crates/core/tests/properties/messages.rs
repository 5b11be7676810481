//! Messages to receivers outside: whatever values a run has, they change neither where a message goes nor its form (R004-13).

use crate::generate::document;
use automation_core::delivery::{Attempt, Next, Outcome};
use automation_core::expr::{Budget, FixedScope};
use automation_core::value::{Timestamp, Value};
use automation_core::webhook::{Address, Header, Receiver, Webhook, host_matches, host_pattern, read_headers};
use proptest::prelude::*;

fn scope(value: &str) -> FixedScope {
    let new = Value::object(vec![("v".into(), Value::text(value))]);
    FixedScope::new(Value::object(vec![("new".into(), new)]), Timestamp(0))
}

/// Texts that mean something to somebody on the way.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[./\\\\:@?#%&=\r\n\t \\[\\]{}\"',;-]{1,8}",
        Just("..".to_owned()),
        Just("%2e%2E".to_owned()),
        Just("\r\nHost: evil.example".to_owned()),
        Just("@evil.example/".to_owned()),
        Just("//evil.example/".to_owned()),
        Just("{{ new.v }}".to_owned()),
    ];
    proptest::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn a_value_never_leaves_its_place_in_a_url(value in hostile()) {
        let address = Address::parse("https://api.example.com:8443/a/{{ new.v }}/b?q={{ new.v }}&r=1").unwrap();
        if let Ok(url) = address.render(&scope(&value), &mut Budget::default()) {
            let again = Address::parse(&url).unwrap();
            prop_assert_eq!(again.origin(), address.origin());
            prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{}", url);
            let (path, query) = url["https://".len()..].split_once('?').unwrap();
            let segments: Vec<&str> = path.split('/').collect();
            prop_assert_eq!((segments.len(), segments[0], segments[1], segments[3]), (4, "api.example.com:8443", "a", "b"));
            prop_assert!(!matches!(segments[2], "" | "." | ".."));
            prop_assert_eq!((query.matches(['&', '?', '#', '/']).count(), query.matches('=').count()), (1, 2));
        }
    }

    #[test]
    fn a_value_never_ends_a_header(value in hostile()) {
        let webhook = Webhook {
            receiver: Receiver::Endpoint("e".into()),
            method: "POST",
            headers: read_headers(&serde_json::json!({"X": "a{{ new.v }}b"})).unwrap(),
            body: None,
            secret: None,
            delivery: "at_least_once",
            timeout_ms: None,
            attempts: None,
            backoff: None,
        };
        if let Ok(rendered) = webhook.render(Default::default(), &scope(&value), &mut Budget::default()) {
            let header = rendered.headers["X"].as_str().unwrap();
            prop_assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{:?}", header);
            prop_assert_eq!(header, format!("a{value}b"));
        }
    }

    #[test]
    fn reading_never_panics_and_what_is_read_is_safe(text in hostile(), given in document()) {
        if let Ok(address) = Address::parse(&text) {
            let host = &address.origin().host;
            prop_assert!(host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte)), "{}", host);
        }
        if let Some(pattern) = host_pattern(&text) {
            prop_assert!(!host_matches(&pattern, "com") || pattern == "com");
        }
        if let Ok(headers) = read_headers(&given) {
            for (name, header) in headers {
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'));
                prop_assert!(!matches!(header, Header::Secret(name) if name.is_empty()));
            }
        }
    }

    #[test]
    fn every_message_ends_and_none_that_may_have_arrived_is_sent_twice_at_most_once(
        outcomes in proptest::collection::vec((0_u8..6, 100_u16..600), 200), at_most_once in any::<bool>(), max in 1_u32..=100, seed in any::<u64>(),
    ) {
        let mut number = 1;
        let mut ended = false;
        for (kind, status) in outcomes {
            let outcome = match kind {
                0 => Outcome::Blocked,
                1 => Outcome::NotSent,
                2 => Outcome::Unknown,
                3 => Outcome::Interrupted,
                _ => Outcome::Answer { status, retry_after: None },
            };
            let next = Attempt { number, max, at_most_once, backoff: None, seed }.then(outcome);
            match next {
                Next::Again { after } => {
                    prop_assert!(after >= 0);
                    let unsure = matches!(outcome, Outcome::Unknown | Outcome::Interrupted);
                    prop_assert!(!(at_most_once && unsure));
                    number += 1;
                }
                Next::Defer { .. } => prop_assert!(false, "only for want of a secret"),
                _ => { ended = true; break }
            }
        }
        prop_assert!(ended || number > 100, "{} of {}", number, max);
        prop_assert!(number <= max + 3);
    }
}
