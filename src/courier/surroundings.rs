//! The settings that govern requests to the outside; read again when they change.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use egress::{Network, SystemNames, client_config};

use crate::gucs;
use crate::pg::listen;
use crate::pg::report;

pub struct Surroundings {
    /// None if TLS cannot be set up at all; then no request is sent.
    pub network: Option<Network>,
    pub allow_plain: bool,
    pub strict_signing: bool,
    pub ports: Vec<u16>,
    /// The addresses on which this server itself listens.
    pub own: Vec<SocketAddr>,
}

impl Surroundings {
    pub fn read() -> Self {
        let (addresses, port) = listen::addresses();
        Surroundings {
            network: network(),
            allow_plain: gucs::http_allow_plain(),
            strict_signing: gucs::http_strict_signing(),
            ports: gucs::http_ports(),
            own: own(&addresses, port),
        }
    }
}

fn network() -> Option<Network> {
    let more = gucs::http_ca_file().and_then(|path| match std::fs::read(&path) {
        Ok(pem) => Some(pem),
        Err(error) => {
            // Receivers under these authorities are then not trusted, and their messages wait.
            report::warning(format!(
                "automation_engine courier: could not read automation_engine.http_ca_file \"{path}\": {error}"
            ));
            None
        }
    });
    let tls = client_config(more.as_deref()).or_else(|error| {
        report::warning(format!("automation_engine courier: automation_engine.http_ca_file: {error}"));
        client_config(None)
    });
    match tls {
        Ok(tls) => Some(Network { tls, names: Arc::new(SystemNames) }),
        Err(error) => {
            report::warning(format!("automation_engine courier: {error}"));
            None
        }
    }
}

/// The addresses of `listen_addresses`. A host name in it may be any address of this machine: asking the name service
/// for it would keep the courier waiting.
fn own(listen_addresses: &str, port: u16) -> Vec<SocketAddr> {
    let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let listens =
        listen_addresses.split(',').map(|entry| entry.trim().trim_matches('"')).filter(|entry| !entry.is_empty());
    listens
        .flat_map(|entry| match entry.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) if entry == "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            Err(_) => any.to_vec(),
        })
        .map(|address| SocketAddr::new(address, port))
        .collect()
}
