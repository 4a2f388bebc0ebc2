//! The configuration of TLS.

use std::{path::Path, sync::Arc};

use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, pem::PemObject as _},
    },
};

use super::endpoint::Protocol;
use crate::delivery::DeliveryError;

/// Connects with the certificates of a file, or those of Mozilla.
pub(super) fn connector(protocol: Protocol, ca_file: Option<&Path>) -> Result<TlsConnector, DeliveryError> {
    let roots = match ca_file {
        Some(path) => read_roots(path)
            .map_err(|reason| DeliveryError::Certificates { path: path.to_owned(), reason })?,
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| DeliveryError::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let application_protocol: &[u8] = match protocol {
        Protocol::OtlpGrpc => b"h2",
        Protocol::OtlpHttp | Protocol::Pyroscope => b"http/1.1",
    };
    config.alpn_protocols = vec![application_protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// An error says what is wrong with the file.
fn read_roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())? {
        roots.add(certificate.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("it contains no certificate in the PEM format".to_owned());
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let error = |path: &Path| connector(Protocol::OtlpHttp, Some(path)).err().unwrap().to_string();
        assert!(error(&path).contains("ca.pem"), "{}", error(&path));
        fs::write(&path, "no certificate").unwrap();
        assert!(error(&path).contains("no certificate"), "{}", error(&path));
        fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(error(&path).contains("ca.pem"), "{}", error(&path));
    }

    #[test]
    fn without_a_file_the_certificates_of_mozilla_are_trusted() {
        assert!(connector(Protocol::OtlpGrpc, None).is_ok());
    }
}
