//! Dials exactly the addresses that were checked, and makes sure that one of them answered.
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::blocked::Blocked;
use crate::deadline::{Deadline, is_timeout};
use crate::policy::Policy;

/// Addresses tried one after the other.
const MOST_TRIED: usize = 4;

pub enum Failed {
    Blocked(Blocked),
    /// No address could be reached; nothing was sent.
    Unreachable(String),
}

/// Connects to one of the addresses, in their order.
pub fn connect(addresses: &[SocketAddr], policy: &Policy, deadline: Deadline) -> Result<TcpStream, Failed> {
    if addresses.iter().any(|address| is_own(*address, policy)) {
        return Err(Failed::Blocked(Blocked::OwnAddress));
    }
    let tried = &addresses[..addresses.len().min(MOST_TRIED)];
    let mut last = "the host has no address".to_owned();
    for (i, address) in tried.iter().enumerate() {
        // One address that swallows packets must not use up the time of the others.
        let left = deadline.left().map_err(unreachable)?;
        let share = left / (tried.len() - i) as u32;
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(stream) => return checked(stream, *address),
            Err(error) => last = describe(&error),
        }
    }
    Err(Failed::Unreachable(last))
}

fn checked(stream: TcpStream, wanted: SocketAddr) -> Result<TcpStream, Failed> {
    let peer = stream.peer_addr().map_err(unreachable)?;
    if peer.ip() != wanted.ip() || peer.port() != wanted.port() {
        return Err(Failed::Blocked(Blocked::Network));
    }
    // One request, written in one go: there is nothing to gather.
    stream.set_nodelay(true).map_err(unreachable)?;
    Ok(stream)
}

fn unreachable(error: io::Error) -> Failed {
    Failed::Unreachable(describe(&error))
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        _ if is_timeout(error) => "no connection within the time allowed".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset".to_owned(),
        _ => "no connection to the host".to_owned(),
    }
}

/// Where this server listens on all its addresses, is this one of them?
fn is_own(address: SocketAddr, policy: &Policy) -> bool {
    policy.own.iter().any(|own| own.port() == address.port() && own.ip().is_unspecified())
        && is_this_machine(address.ip())
}

/// A machine talks to itself from the very address it talks to. Asked of the routing table; no packet is sent.
fn is_this_machine(address: IpAddr) -> bool {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let source = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(SocketAddr::new(address, 9))?;
        socket.local_addr()
    });
    match source {
        Ok(source) => source.ip() == address || address.is_loopback() || address.is_unspecified(),
        // Not routable: the address cannot be dialled either.
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_its_own_addresses() {
        assert!(is_this_machine(IpAddr::from([127, 0, 0, 1])));
        assert!(is_this_machine(IpAddr::from([127, 3, 2, 1])));
        assert!(!is_this_machine(IpAddr::from([192, 0, 2, 77])));
    }

    #[test]
    fn a_server_that_listens_everywhere_is_recognised_at_each_of_its_addresses() {
        let policy = Policy { own: vec![([0, 0, 0, 0], 6543).into()], ..Policy::default() };
        assert!(is_own(([127, 0, 0, 9], 6543).into(), &policy));
        assert!(!is_own(([127, 0, 0, 9], 6544).into(), &policy));
    }
}
