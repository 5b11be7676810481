//! One attempt: resolve, check, dial, send, read, within one deadline.
use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use url::Host;

use crate::address::check_addresses;
use crate::blocked::Blocked;
use crate::connect::{Failed, connect};
use crate::deadline::{Deadline, Timed, is_timeout};
use crate::http1::{MOST_BODY_KEPT, ReadError, read_response, write_request};
use crate::mask::Mask;
use crate::policy::Policy;
use crate::resolve::{Resolve, resolve};
use crate::retry_after::retry_after;
use crate::url_guard::Target;

/// No exchange takes longer, even if its request allows more.
const LONGEST: Duration = Duration::from_secs(30);

/// A request to be sent, and the destinations that its owner may reach.
#[derive(Clone, Debug)]
pub struct Request {
    pub target: Target,
    pub method: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub timeout: Duration,
    pub policy: Arc<Policy>,
    /// Masks the secrets of the request, which no outcome shows.
    pub mask: Mask,
}

/// How names are resolved and the certificates of receivers are checked.
#[derive(Clone)]
pub struct Network {
    pub tls: Arc<ClientConfig>,
    pub names: Arc<dyn Resolve>,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answer {
        status: u16,
        retry_after: Option<Duration>,
        body: Vec<u8>,
    },
    Refused(Blocked),
    /// The attempt failed before the receiver can have read any of the request.
    NotSent(String),
    /// The receiver may have got it.
    Unknown(String),
}

/// Sends one request and returns its outcome, which shows none of the request's secrets. Never takes longer than the
/// request's timeout.
pub fn send(request: &Request, network: &Network) -> Outcome {
    match attempt(request, network) {
        Outcome::Answer { status, retry_after, body } => {
            let mut body = request.mask.apply(&body);
            body.truncate(MOST_BODY_KEPT);
            Outcome::Answer { status, retry_after, body }
        }
        Outcome::Refused(blocked) => Outcome::Refused(blocked),
        Outcome::NotSent(why) => Outcome::NotSent(request.mask.apply_text(&why)),
        Outcome::Unknown(why) => Outcome::Unknown(request.mask.apply_text(&why)),
    }
}

fn attempt(request: &Request, network: &Network) -> Outcome {
    let deadline = Deadline::after(request.timeout.min(LONGEST));
    let addresses = match request.target.literal() {
        Some(address) => Ok(vec![address]),
        None => resolve(&network.names, &request.target.host(), deadline),
    };
    let addresses: Vec<IpAddr> = match addresses {
        Ok(addresses) => addresses,
        Err(why) => return Outcome::NotSent(why),
    };
    let checked = match check_addresses(&request.target, &addresses, &request.policy) {
        Ok(checked) => checked,
        Err(blocked) => return Outcome::Refused(blocked),
    };
    let stream = match connect(&checked, &request.policy, deadline) {
        Ok(stream) => Timed::new(stream, deadline),
        Err(Failed::Blocked(blocked)) => return Outcome::Refused(blocked),
        Err(Failed::Unreachable(why)) => return Outcome::NotSent(why),
    };
    if !request.target.is_tls() {
        return exchange(stream, request);
    }
    match secure(stream, &request.target, network) {
        Ok(stream) => exchange(stream, request),
        Err(why) => Outcome::NotSent(why),
    }
}

/// Completes the TLS handshake, so that everything that fails before it is known not to have been sent.
fn secure(
    mut stream: Timed,
    target: &Target,
    network: &Network,
) -> Result<StreamOwned<ClientConnection, Timed>, String> {
    let name = match &target.host {
        Host::Domain(name) => {
            ServerName::try_from(name.clone()).map_err(|_| "the host's name cannot be in a certificate".to_owned())?
        }
        Host::Ipv4(address) => ServerName::from(IpAddr::V4(*address)),
        Host::Ipv6(address) => ServerName::from(IpAddr::V6(*address)),
    };
    let mut connection =
        ClientConnection::new(Arc::clone(&network.tls), name).map_err(|error| format!("TLS failed: {error}"))?;
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut stream) {
            return Err(if is_timeout(&error) {
                "the TLS handshake did not end in time".to_owned()
            } else {
                format!("the TLS handshake failed: {error}")
            });
        }
    }
    Ok(StreamOwned::new(connection, stream))
}

fn exchange(mut stream: impl Read + Write, request: &Request) -> Outcome {
    let written = write_request(&mut stream, &request.target, &request.method, &request.headers, &request.body);
    // A receiver may refuse before it has read everything: its answer is worth more than the broken pipe.
    if let Err(error) = &written
        && is_timeout(error)
    {
        return Outcome::Unknown("the receiver did not read the request in time".to_owned());
    }
    // A value at the place where the answer is cut must be known as a whole to be masked.
    match read_response(&mut stream, &request.method, MOST_BODY_KEPT + request.mask.margin()) {
        Ok(response) => Outcome::Answer {
            status: response.status,
            retry_after: response.retry_after.and_then(|value| retry_after(&value, seconds_since_1970())),
            body: response.body,
        },
        Err(ReadError::NotHttp(why)) => Outcome::Unknown(why.to_owned()),
        Err(ReadError::Io(error)) if is_timeout(&error) => {
            Outcome::Unknown("the receiver did not answer in time".to_owned())
        }
        Err(ReadError::Io(_)) => {
            Outcome::Unknown("the connection was lost before the receiver had answered".to_owned())
        }
    }
}

fn seconds_since_1970() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64)
}
