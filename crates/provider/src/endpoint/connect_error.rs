//! Why a server could not be asked at all, told so that its user knows what to do: names the server, and the setting that
//! may mend it.

use std::error::Error;

use agent::{Fault, FaultKind};

use super::error_chain;
use crate::error_class::{ErrorClass, ModelError};

/// A server that was not reached.
pub(super) struct ConnectFailure<'u> {
    /// The provider's name.
    pub(super) provider: &'u str,
    /// The server's.
    pub(super) host: &'u str,
}

impl ConnectFailure<'_> {
    pub(super) fn to_model_error(&self, fault: &reqwest::Error) -> ModelError {
        let failing = if fault.is_timeout() {
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
        failing.caused_by(error_chain(fault))
    }

    fn tls_text(&self, fault: &rustls::Error) -> String {
        let Self { provider, host } = self;
        match fault {
            rustls::Error::InvalidCertificate(why) => format!(
                "The certificate of {host} is not trusted: {why}. If an authority of your own has signed it, name that \
                 authority's certificates (PEM) in providers.{provider}.ca_file of config.toml."
            ),
            other => format!(
                "No TLS with {host}: {other}. If it speaks plain http, say http:// in providers.{provider}.base_url."
            ),
        }
    }
}

/// A certificate is the same a moment later, and so is what a server speaks.
fn tls_error_class(fault: &rustls::Error) -> ErrorClass {
    match fault {
        rustls::Error::InvalidCertificate(_)
        | rustls::Error::InvalidMessage(_)
        | rustls::Error::PeerIncompatible(_) => ErrorClass::Refused,
        _ => ErrorClass::Unavailable,
    }
}

/// What went wrong with TLS, if that is what went wrong.
fn find_tls_error<'f>(fault: &'f (dyn Error + 'static)) -> Option<&'f rustls::Error> {
    let mut next = Some(fault);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // One that was wrapped by the system's own is not its source.
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        };
    }
    None
}
