//! Errors of a call, with texts for users that say what failed and what to do.

use std::io::ErrorKind;
use std::time::Duration;

use nexus3_protocol::RpcError;
use nexus3_protocol::discovery::PORT_DEFAULT;

use crate::{Endpoint, TokenFault};

/// Error of a call. The text never contains a token's value.
#[derive(Debug, thiserror::Error)]
pub enum ClientFault {
    /// No connection; the request was not sent.
    #[error("{}", connect_message(.endpoint, .source))]
    Connect {
        /// Address of the daemon.
        endpoint: Endpoint,
        /// The system error.
        source: std::io::Error,
    },
    /// No response in time. The daemon may still execute the request.
    #[error("{endpoint} did not answer {method} within {after:?}; the request may still be running")]
    Timeout {
        /// Address of the daemon.
        endpoint: Endpoint,
        /// The called method.
        method: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The connection failed during the call. Whether the daemon executed the request is unknown.
    #[error("connection to {endpoint} failed during {method}: {reason}; the request may have been executed")]
    Transport {
        /// Address of the daemon.
        endpoint: Endpoint,
        /// The called method.
        method: &'static str,
        /// The cause.
        reason: String,
    },
    /// A response that is not valid for this request.
    #[error(
        "{endpoint} answered {method} with HTTP {status} and {reason}; is it a nexus3 daemon of this version?"
    )]
    Protocol {
        /// Address of the daemon.
        endpoint: Endpoint,
        /// The called method.
        method: &'static str,
        /// HTTP status.
        status: u16,
        /// The cause.
        reason: String,
    },
    /// The daemon returned an error.
    #[error("{error}")]
    Rpc {
        /// HTTP status: 200 when the method returned the error, else the HTTP door rejected the request.
        status: u16,
        /// The error.
        error: RpcError,
    },
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenFault),
    /// The request is invalid; it was not sent.
    #[error("{0}")]
    Request(String),
}

fn connect_message(endpoint: &Endpoint, source: &std::io::Error) -> String {
    let port = match endpoint.port() {
        PORT_DEFAULT => String::new(),
        other => format!(" {other}"),
    };
    if source.kind() == ErrorKind::ConnectionRefused {
        format!("no nexus3 daemon at {endpoint}; start one with: nexus3 serve{port}")
    } else {
        format!(
            "cannot connect to {endpoint}: {source}; if no daemon runs there, start one with: nexus3 serve{port}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(port: u16) -> String {
        let source = ErrorKind::ConnectionRefused.into();
        ClientFault::Connect { endpoint: Endpoint::local(port), source }.to_string()
    }

    #[test]
    fn refused_connection_names_the_command_to_start_a_daemon() {
        assert_eq!(refused(8765), "no nexus3 daemon at 127.0.0.1:8765; start one with: nexus3 serve");
        assert_eq!(refused(9000), "no nexus3 daemon at 127.0.0.1:9000; start one with: nexus3 serve 9000");
    }

    #[test]
    fn other_connect_errors_have_the_cause_and_the_command() {
        let source = std::io::Error::new(ErrorKind::HostUnreachable, "no route to host");
        let text = ClientFault::Connect { endpoint: Endpoint::new("10.0.0.1", 8765), source }.to_string();
        assert!(text.contains("10.0.0.1:8765: no route to host"), "{text}");
        assert!(text.contains("nexus3 serve"), "{text}");
    }
}
