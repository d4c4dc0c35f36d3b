//! A server certificate for 127.0.0.1 and its CA, which no system trusts; `certificates/openssl.cnf` says how they were
//! created.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The CA certificate as PEM: a client that trusts it accepts the scripted model's TLS.
pub const TLS_CA_PEM: &str = include_str!("../certificates/ca.pem");

const CERTIFICATE: &[u8] = include_bytes!("../certificates/server.pem");
const KEY: &[u8] = include_bytes!("../certificates/server.key");

/// The TLS acceptor of the scripted model.
pub(crate) fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).expect("the certificate is valid PEM");
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("the key is valid PEM");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key matches the certificate");
    TlsAcceptor::from(Arc::new(config))
}
