//! Detection of a daemon on a port, without a token.

#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use nexus3_protocol::envelope::encode_request;
use nexus3_protocol::json::Json;
use nexus3_protocol::methods::NoParams;
use nexus3_protocol::{Id, Method, Response};
use tokio::time::{Instant, sleep, timeout};

use crate::Endpoint;
use crate::connection::{Connection, ConnectionFault, json_post};

/// Timeout of a probe.
pub const DETECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time to wait for a daemon to start.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay between two probes.
pub const WAIT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of bytes to read of a response, since an unknown service may send any amount.
const PROBE_BYTES_MAX: usize = 64 * 1024;

const PROBE_ID: u64 = 1;

/// Start of a `list_agents` response that exceeds the limit. A daemon without tokens returns the list to any caller.
const AGENT_LIST_PREFIX: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{"agents":["#;

/// Result of a probe: what listens on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detection {
    /// The connection was refused.
    NoServer,
    /// A nexus3 daemon.
    NexusServer,
    /// Another service.
    OtherService,
    /// No connection or no response in time.
    Timeout,
    /// Unknown because of a local system error.
    Error,
}

impl Detection {
    /// Machine-readable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Detection::NoServer => "no_server",
            Detection::NexusServer => "nexus_server",
            Detection::OtherService => "other_service",
            Detection::Timeout => "timeout",
            Detection::Error => "error",
        }
    }
}

/// Probes an address once, within `limit`.
pub async fn detect_server(endpoint: &Endpoint, limit: Duration) -> Detection {
    timeout(limit, probe(endpoint)).await.unwrap_or(Detection::Timeout)
}

/// Probes an address repeatedly until a daemon answers. Returns false when none answers within `limit`.
pub async fn wait_for_server(endpoint: &Endpoint, limit: Duration, poll_interval: Duration) -> bool {
    let started = Instant::now();
    loop {
        let left = limit.saturating_sub(started.elapsed());
        if detect_server(endpoint, left.min(DETECT_TIMEOUT)).await == Detection::NexusServer {
            return true;
        }
        let left = limit.saturating_sub(started.elapsed());
        if left.is_zero() {
            return false;
        }
        sleep(left.min(poll_interval)).await;
    }
}

async fn probe(endpoint: &Endpoint) -> Detection {
    let Ok(body) = encode_request(Some(&Id::from(PROBE_ID)), Method::ListAgents.name(), &NoParams {}) else {
        return Detection::Error;
    };
    let Ok(request) = json_post(endpoint, "/", body) else { return Detection::Error };
    let connection = match Connection::connect(endpoint).await {
        Ok(connection) => connection,
        Err(fault) if fault.kind() == ErrorKind::ConnectionRefused => return Detection::NoServer,
        Err(fault) if fault.kind() == ErrorKind::TimedOut => return Detection::Timeout,
        Err(_) => return Detection::Error,
    };
    match connection.exchange(request, PROBE_BYTES_MAX).await {
        Ok((response, _)) if is_nexus_response(&response.body) => Detection::NexusServer,
        Err(ConnectionFault::Oversized(response)) if response.body.starts_with(AGENT_LIST_PREFIX) => {
            Detection::NexusServer
        }
        Ok(_) | Err(ConnectionFault::Unsent(_) | ConnectionFault::Oversized(_)) => Detection::OtherService,
        Err(ConnectionFault::Broken(fault)) => classify_error(&fault),
    }
}

/// Ignores the HTTP status: a rejection because of the missing token identifies a daemon as well as a list does.
fn is_nexus_response(body: &[u8]) -> bool {
    let Ok(response) = Response::parse(body) else { return false };
    let is_our_id = response.id == Id::from(PROBE_ID);
    match response.outcome {
        Err(_) => is_our_id || response.id.is_null(),
        Ok(Json::Object(members)) => {
            is_our_id && members.iter().any(|(key, value)| key == "agents" && matches!(value, Json::Array(_)))
        }
        Ok(_) => false,
    }
}

/// Classifies a transport error: a peer that violates HTTP or closes the connection is another service; only a local
/// system failure is an error.
fn classify_error(fault: &hyper::Error) -> Detection {
    let kind = fault.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kind {
        None => Detection::OtherService,
        Some(
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData,
        ) => Detection::OtherService,
        Some(ErrorKind::TimedOut) => Detection::Timeout,
        Some(_) => Detection::Error,
    }
}
