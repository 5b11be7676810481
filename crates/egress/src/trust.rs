//! The trust anchors for receivers' certificates: the operating system's, and those of a file that the administrator
//! names.
use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

#[derive(Debug, PartialEq, Eq)]
pub enum TrustError {
    /// The file of additional anchors holds none, or something that is no certificate.
    Anchors(String),
    Tls(String),
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrustError::Anchors(why) => write!(f, "the trust anchors cannot be read: {why}"),
            TrustError::Tls(why) => write!(f, "TLS cannot be set up: {why}"),
        }
    }
}

impl std::error::Error for TrustError {}

/// How connections are secured. `more` is PEM text with additional trust anchors.
pub fn client_config(more: Option<&[u8]>) -> Result<Arc<ClientConfig>, TrustError> {
    let mut roots = RootCertStore::empty();
    // Broken certificates of the system's store are left out; a receiver under one is then not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(pem) = more {
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| TrustError::Anchors(error.to_string()))?;
            roots.add(certificate).map_err(|error| TrustError::Anchors(error.to_string()))?;
            added += 1;
        }
        if added == 0 {
            return Err(TrustError::Anchors("the file holds no certificate".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Requests of different roles must not be tied together by a resumed session.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_an_error() {
        for pem in [&b""[..], b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(client_config(Some(pem)), Err(TrustError::Anchors(_))));
        }
        assert!(client_config(None).is_ok());
    }
}
