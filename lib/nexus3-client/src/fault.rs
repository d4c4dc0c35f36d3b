//! Why a call has no answer, in words that name the thing and what to do about it.

use std::io::ErrorKind;
use std::time::Duration;

use nexus3_protocol::RpcError;
use nexus3_protocol::discovery::PORT_DEFAULT;

use crate::{Endpoint, TokenFault};

/// Why a call failed. Never shows a token's value.
#[derive(Debug, thiserror::Error)]
pub enum ClientFault {
    /// No connection: nothing of the request was sent.
    #[error("{}", connect_message(.endpoint, .source))]
    Connect {
        /// Where to.
        endpoint: Endpoint,
        /// What the system said.
        source: std::io::Error,
    },
    /// No answer in time. The daemon may still be working on the request.
    #[error("{endpoint} did not answer {method} within {after:?}; it may still be working on it")]
    Timeout {
        /// Who was asked.
        endpoint: Endpoint,
        /// What was asked.
        method: &'static str,
        /// How long the client waited.
        after: Duration,
    },
    /// The connection failed under way. Whether the request was carried out is not known.
    #[error(
        "the connection to {endpoint} failed during {method}: {reason}; it may have been carried out or not"
    )]
    Transport {
        /// Who was asked.
        endpoint: Endpoint,
        /// What was asked.
        method: &'static str,
        /// What happened.
        reason: String,
    },
    /// An answer that is not one of ours.
    #[error(
        "{endpoint} answered {method} with HTTP {status} and {reason}; is it a nexus3 daemon of this version?"
    )]
    Protocol {
        /// Who was asked.
        endpoint: Endpoint,
        /// What was asked.
        method: &'static str,
        /// The HTTP status.
        status: u16,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The daemon said no.
    #[error("{error}")]
    Rpc {
        /// The HTTP status: 200 when the method refused, else the door did.
        status: u16,
        /// What it said.
        error: RpcError,
    },
    /// There is a token, but it must not be used.
    #[error(transparent)]
    Token(#[from] TokenFault),
    /// The request cannot be written; nothing was sent.
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
    fn a_refused_connection_says_how_to_start_a_daemon_on_that_port() {
        assert_eq!(refused(8765), "no nexus3 daemon at 127.0.0.1:8765; start one with: nexus3 serve");
        assert_eq!(refused(9000), "no nexus3 daemon at 127.0.0.1:9000; start one with: nexus3 serve 9000");
    }

    #[test]
    fn any_other_connect_fault_says_what_the_system_said_and_how_to_start_a_daemon() {
        let source = std::io::Error::new(ErrorKind::HostUnreachable, "no route to host");
        let text = ClientFault::Connect { endpoint: Endpoint::new("10.0.0.1", 8765), source }.to_string();
        assert!(text.contains("10.0.0.1:8765: no route to host"), "{text}");
        assert!(text.contains("nexus3 serve"), "{text}");
    }
}
