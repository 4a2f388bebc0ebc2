//! Certificates for servers of tests.

use std::{fs, path::PathBuf, sync::Arc};

use tempfile::TempDir;
use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer};

/// A certificate for a host, and the configuration of a server that has it.
pub(crate) struct Certificate {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) file: PathBuf,
    _directory: TempDir,
}

impl Certificate {
    pub(crate) fn new(host: &str, application_protocol: &[u8]) -> Self {
        let signed = rcgen::generate_simple_self_signed(vec![host.to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key.into())
            .unwrap();
        config.alpn_protocols = vec![application_protocol.to_vec()];
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        fs::write(&file, signed.cert.pem()).unwrap();
        Self { config: Arc::new(config), file, _directory: directory }
    }
}
