//! A receiver on loopback that does what it is told with each connection.
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egress::{HostPattern, Mask, Network, Policy, Request, Rule, SystemNames, check_url, client_config};

pub struct Receiver {
    pub port: u16,
    connections: Arc<AtomicUsize>,
}

impl Receiver {
    /// The threads live as long as the test process.
    pub fn start(behave: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, behave) = (Arc::clone(&connections), Arc::new(behave));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let behave = Arc::clone(&behave);
                std::thread::spawn(move || behave(&mut stream));
            }
        });
        Receiver { port, connections }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads one small request to its end, so that closing does not reset the connection under the answer.
pub fn drain_request(stream: &mut TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
    let mut seen = Vec::new();
    let mut piece = [0; 1024];
    while !seen.ends_with(b"{\"hello\":1}") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(read) => seen.extend_from_slice(&piece[..read]),
        }
    }
}

/// Opens this host, on every port, within a network.
pub fn policy(host: &str, cidr: Option<&str>) -> Policy {
    let host = HostPattern::parse(host).expect(host);
    let cidr = cidr.map(|text| text.parse().expect(text));
    Policy {
        allow_plain: true,
        ports: (1..=u16::MAX).collect(),
        rules: vec![Rule { host, port: None, cidr }],
        own: Vec::new(),
    }
}

pub fn request(port: u16, timeout: Duration) -> Request {
    request_with(&format!("http://127.0.0.1:{port}/hook"), &policy("127.0.0.1", Some("127.0.0.0/8")), timeout)
}

pub fn request_with(url: &str, policy: &Policy, timeout: Duration) -> Request {
    Request {
        target: check_url(url, policy).expect(url),
        method: "POST".to_owned(),
        headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
        body: b"{\"hello\":1}".to_vec(),
        timeout,
        policy: Arc::new(policy.clone()),
        mask: Mask::default(),
    }
}

pub fn network(anchors: Option<&str>) -> Network {
    let tls = client_config(anchors.map(str::as_bytes)).expect("a TLS configuration");
    Network { tls, names: Arc::new(SystemNames) }
}
