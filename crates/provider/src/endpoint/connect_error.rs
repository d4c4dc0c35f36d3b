//! Errors of requests that got no HTTP response, such as refused connections and TLS failures. The messages name the
//! server and the setting that may fix the problem.

use std::error::Error;

use agent::{Fault, FaultKind};

use super::error_chain;
use crate::error_class::{ErrorClass, ModelError};

/// Context for the error message of a failed request.
pub(super) struct ConnectFailure<'u> {
    /// Provider name.
    pub(super) provider: &'u str,
    /// Host of the server.
    pub(super) host: &'u str,
}

impl ConnectFailure<'_> {
    pub(super) fn to_model_error(&self, fault: &reqwest::Error) -> ModelError {
        let error = if fault.is_timeout() {
            ModelError::unavailable("API request timed out", "no connection".to_owned())
        } else if let Some(tls) = find_tls_error(fault) {
            ModelError::new(tls_error_class(tls), Fault::new(FaultKind::Model, self.tls_text(tls)))
        } else if fault.is_connect() {
            let Self { provider, host } = self;
            ModelError::unavailable(
                "Failed to connect to API",
                format!("{provider} cannot be reached at {host}"),
            )
        } else {
            let text = format!("HTTP error occurred: the request to {} failed", self.provider);
            ModelError::new(ErrorClass::Unavailable, Fault::new(FaultKind::Model, text))
        };
        error.caused_by(error_chain(fault))
    }

    fn tls_text(&self, fault: &rustls::Error) -> String {
        let Self { provider, host } = self;
        match fault {
            rustls::Error::InvalidCertificate(why) => format!(
                "The certificate of {host} is not trusted: {why}. If a private authority signed it, name its \
                 certificates (PEM) in providers.{provider}.ca_file of config.toml."
            ),
            other => format!(
                "TLS handshake with {host} failed: {other}. If it serves plain http, use http:// in \
                 providers.{provider}.base_url."
            ),
        }
    }
}

/// Classifies a TLS error. Certificate and protocol errors are permanent, so they are not retried.
fn tls_error_class(fault: &rustls::Error) -> ErrorClass {
    match fault {
        rustls::Error::InvalidCertificate(_)
        | rustls::Error::InvalidMessage(_)
        | rustls::Error::PeerIncompatible(_) => ErrorClass::Refused,
        _ => ErrorClass::Unavailable,
    }
}

/// Finds a TLS error among the sources of an error.
fn find_tls_error<'f>(fault: &'f (dyn Error + 'static)) -> Option<&'f rustls::Error> {
    let mut next = Some(fault);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // `source()` of an `io::Error` skips the error that it wraps.
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        };
    }
    None
}
