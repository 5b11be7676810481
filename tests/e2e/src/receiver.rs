//! A receiver of webhooks on loopback, that remembers its requests and answers as it is told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    /// The first line.
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: String,
    pub at: Instant,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The whole request as a receiver that echoes it sends it back: in clear, as JSON, as base64.
    pub fn echo(&self) -> String {
        let head: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let json: Vec<String> = self.headers.iter().map(|(name, value)| format!("{name:?}: {value:?}")).collect();
        let all = format!("{}\n{head}\n{}", self.line, self.body);
        format!("{all}\n{{{}}}\n{}", json.join(", "), STANDARD.encode(&all))
    }

    /// The message id, which never changes for one message.
    #[track_caller]
    pub fn id(&self) -> &str {
        self.header("webhook-id").expect("a message has an id")
    }

    #[track_caller]
    pub fn timestamp(&self) -> i64 {
        self.header("webhook-timestamp").and_then(|text| text.parse().ok()).expect("a message has a time")
    }

    /// The signatures, each without its version.
    pub fn signatures(&self) -> Vec<&str> {
        let all = self.header("webhook-signature").unwrap_or_default();
        all.split(' ').filter_map(|signature| signature.strip_prefix("v1,")).collect()
    }

    /// Is one of the signatures made with this key?
    pub fn is_signed_with(&self, key: &[u8]) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
        mac.update(format!("{}.{}.{}", self.id(), self.timestamp(), self.body).as_bytes());
        let expected = STANDARD.encode(mac.finalize().into_bytes());
        self.signatures().contains(&expected.as_str())
    }
}

/// How to answer a request.
pub enum Reply {
    /// A status, and further header lines.
    Status(u16, &'static str),
    /// A status and this body.
    Says(u16, String),
    /// Nothing, until the other side goes away.
    Hang,
}

pub struct Receiver {
    pub port: u16,
    seen: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// `reply` gets the number of the request, from 1. The threads live as long as the test.
    pub fn start(reply: impl Fn(usize, &Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let port = listener.local_addr().expect("an address").port();
        let (seen, reply) = (Arc::new(Mutex::new(Vec::new())), Arc::new(reply));
        let written = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (written, reply) = (Arc::clone(&written), Arc::clone(&reply));
                thread::spawn(move || attend(stream, &written, &*reply));
            }
        });
        Receiver { port, seen }
    }

    pub fn agreeable() -> Self {
        Self::start(|_, _| Reply::Status(200, ""))
    }

    pub fn hanging() -> Self {
        Self::start(|_, _| Reply::Hang)
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub fn received(&self) -> Vec<Received> {
        self.seen.lock().expect("a list").clone()
    }

    /// The first `count` requests, waited for.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        let began = Instant::now();
        loop {
            let received = self.received();
            if received.len() >= count {
                return received;
            }
            let waited = began.elapsed();
            assert!(waited < Duration::from_secs(30), "{} requests instead of {count}", received.len());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn attend(mut stream: TcpStream, seen: &Mutex<Vec<Received>>, reply: &dyn Fn(usize, &Received) -> Reply) {
    let Some(received) = read(&mut stream) else { return };
    let number = {
        let mut seen = seen.lock().expect("a list");
        seen.push(received.clone());
        seen.len()
    };
    match reply(number, &received) {
        Reply::Status(status, headers) => {
            let answer = format!("HTTP/1.1 {status} Status\r\n{headers}Content-Length: 4\r\n\r\nsaid");
            let _ = stream.write_all(answer.as_bytes());
        }
        Reply::Says(status, body) => {
            let answer = format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes());
        }
        Reply::Hang => {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
}

fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let mut head_end = None;
    loop {
        let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        head_end = head_end.or_else(|| bytes.windows(4).position(|window| window == b"\r\n\r\n"));
        let Some(end) = head_end else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let line = lines.next()?.to_owned();
        let headers: Vec<(String, String)> =
            lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect();
        let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length: usize = length.map_or(Some(0), |(_, value)| value.parse().ok())?;
        if bytes.len() >= end + 4 + length {
            let body = String::from_utf8_lossy(&bytes[end + 4..end + 4 + length]).into_owned();
            return Some(Received { line, headers, body, at: Instant::now() });
        }
    }
}
