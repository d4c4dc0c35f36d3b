//! A certificate for 127.0.0.1 and the authority that signed it, which no system trusts. How they were made is written
//! beside them.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The authority, as PEM: whoever trusts it trusts the scripted model over TLS.
pub const TLS_CA_PEM: &str = include_str!("../certificates/ca.pem");

const CERTIFICATE: &[u8] = include_bytes!("../certificates/server.pem");
const KEY: &[u8] = include_bytes!("../certificates/server.key");

/// What makes TLS of a connection.
pub(crate) fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).expect("the certificate is one");
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("the key is one");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the usual versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key is the certificate's");
    TlsAcceptor::from(Arc::new(config))
}
