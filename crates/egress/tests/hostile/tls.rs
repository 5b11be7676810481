//! Receivers with TLS: the right certificate is believed, every wrong one is not, and nothing is sent to it.
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egress::Outcome;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use super::receiver::{Receiver, network, policy, request_with};
use super::{GRACE, TIMEOUT};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority() -> Authority {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).expect("a certificate").pem();
    Authority { issuer: Issuer::new(params, key), pem }
}

/// A receiver that shows a certificate for `name` and counts what it could read.
fn receiver(authority: &Authority, name: &str, change: impl Fn(&mut CertificateParams)) -> (Receiver, Arc<ReadBytes>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    change(&mut params);
    let certificate = params.signed_by(&key, &authority.issuer).expect("a certificate");
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a private key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .expect("a server");
    let (config, read) = (Arc::new(config), Arc::new(ReadBytes::default()));
    let counted = Arc::clone(&read);
    let receiver = Receiver::start(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        let mut tls = rustls::StreamOwned::new(connection, stream);
        let mut piece = [0; 4096];
        if let Ok(read) = tls.read(&mut piece)
            && read > 0
        {
            counted.0.fetch_add(read, std::sync::atomic::Ordering::SeqCst);
            let _ = tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    (receiver, read)
}

#[derive(Default)]
struct ReadBytes(std::sync::atomic::AtomicUsize);

impl ReadBytes {
    fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

fn send(port: u16, host: &str, anchors: Option<&str>) -> Outcome {
    let url = format!("https://{host}:{port}/hook");
    let request = request_with(&url, &policy(host, Some("127.0.0.0/8")), Duration::from_secs(5));
    let localhost = Arc::new(Localhost);
    egress::send(&request, &egress::Network { names: localhost, ..network(anchors) })
}

struct Localhost;
impl egress::Resolve for Localhost {
    fn resolve(&self, _: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
        Ok(vec![[127, 0, 0, 1].into()])
    }
}

#[test]
fn a_receiver_under_an_additional_anchor_is_believed() {
    let authority = authority();
    let (receiver, _) = receiver(&authority, "hooks.test", |_| ());
    let outcome = send(receiver.port, "hooks.test", Some(&authority.pem));
    assert_eq!(outcome, Outcome::Answer { status: 200, retry_after: None, body: b"ok".to_vec() });
}

#[test]
fn nothing_is_sent_to_a_receiver_that_cannot_show_who_it_is() {
    let (ours, foreign) = (authority(), authority());
    let expired = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    };
    let early = |params: &mut CertificateParams| params.not_before = rcgen::date_time_ymd(2999, 1, 1);
    let cases = [
        ("another name", receiver(&ours, "other.test", |_| ())),
        ("a name below", receiver(&ours, "a.hooks.test", |_| ())),
        ("another authority", receiver(&foreign, "hooks.test", |_| ())),
        ("expired", receiver(&ours, "hooks.test", expired)),
        ("not valid yet", receiver(&ours, "hooks.test", early)),
    ];
    for (what, (receiver, read)) in cases {
        let outcome = send(receiver.port, "hooks.test", Some(&ours.pem));
        assert!(matches!(outcome, Outcome::NotSent(_)), "{what}: {outcome:?}");
        assert_eq!(read.count(), 0, "{what}");
    }
    let (receiver, read) = receiver(&ours, "hooks.test", |_| ());
    assert!(matches!(send(receiver.port, "hooks.test", None), Outcome::NotSent(_)), "without the anchor");
    assert_eq!(read.count(), 0);
}

#[test]
fn a_certificate_for_an_address_is_checked_too() {
    let authority = authority();
    let (right, _) = receiver(&authority, "127.0.0.1", |_| ());
    assert!(matches!(send(right.port, "127.0.0.1", Some(&authority.pem)), Outcome::Answer { status: 200, .. }));
    let (wrong, _) = receiver(&authority, "127.0.0.2", |_| ());
    assert!(matches!(send(wrong.port, "127.0.0.1", Some(&authority.pem)), Outcome::NotSent(_)));
}

#[test]
fn a_receiver_without_tls_or_that_hangs_in_the_handshake_is_not_sent() {
    let plain = Receiver::start(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert!(matches!(send(plain.port, "hooks.test", None), Outcome::NotSent(_)));
    let hanging = Receiver::start(|stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let url = format!("https://hooks.test:{}/", hanging.port);
    let request = request_with(&url, &policy("hooks.test", Some("127.0.0.0/8")), TIMEOUT);
    let began = Instant::now();
    let outcome = egress::send(&request, &egress::Network { names: Arc::new(Localhost), ..network(None) });
    assert!(matches!(outcome, Outcome::NotSent(_)), "{outcome:?}");
    assert!(began.elapsed() < TIMEOUT + GRACE);
}
