//! Messages over TLS: a receiver under an authority of the administrator's own is believed once the file names it, and
//! not before.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use e2e::Cluster;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A receiver at 127.0.0.1 with a certificate of an authority of its own: its port, that authority, how much it could
/// read.
fn receiver() -> (u16, String, Arc<AtomicUsize>) {
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate").pem();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a private key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate.der().to_vec())], private)
        .expect("a server");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (config, read) = (Arc::new(config), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&read);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).expect("a connection"), stream);
            let mut piece = [0; 65536];
            if let Ok(length) = tls.read(&mut piece)
                && length > 0
            {
                counted.fetch_add(length, Ordering::SeqCst);
                let _ = tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    (port, authority, read)
}

#[test]
fn an_authority_of_ones_own_is_believed_when_the_file_names_it() {
    let (port, authority, read) = receiver();
    let cluster = Cluster::start();
    let db = cluster.database("secure");
    db.open_post_office();
    db.execute(&format!("SELECT automation.allow_egress('poster', '127.0.0.1', {port}, '127.0.0.0/8')"));
    let retry = "retry => automation.retry(delays => array_fill(interval '200 milliseconds', ARRAY[50]))";
    db.send_letters("hello", &format!("'https://127.0.0.1:{port}/hook', {retry}"));
    db.write_letters("hello", 1);
    db.wait_until(
        "it is not believed",
        "SELECT last_error LIKE 'the TLS handshake failed%' FROM automation.deliveries",
    );
    assert_eq!(read.load(Ordering::SeqCst), 0);
    let file = cluster.socket_directory().join("authority.pem");
    fs::write(&file, authority).expect("a file of ours");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a file of ours");
    cluster.reload(&[("automation_engine.http_ca_file", file.to_str().expect("a path in UTF-8"))]);
    db.wait_for_state("hello", "delivered", 1);
}
