//! Finds out what listens on a port, without a token.

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

/// How long a probe may take.
pub const DETECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for a daemon that is starting.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait between two probes.
pub const WAIT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A stranger may send what it likes; this much of it is read.
const PROBE_BYTES_MAX: usize = 64 * 1024;

const PROBE_ID: u64 = 1;

/// How a list of agents starts that is too long to be read to its end: a daemon without tokens tells it to everybody.
const AGENT_LIST_PREFIX: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{"agents":["#;

/// What listens on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detection {
    /// Nothing: the connection was refused.
    NoServer,
    /// A nexus3 daemon.
    NexusServer,
    /// Something that is not a nexus3 daemon.
    OtherService,
    /// Something that did not accept or answer in time.
    Timeout,
    /// Not known: the system failed.
    Error,
}

impl Detection {
    /// The word for programs.
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

/// Probes an address again and again until a daemon answers; false when none has within `limit`.
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
    let Ok(ask) = json_post(endpoint, "/", body) else { return Detection::Error };
    let link = match Connection::connect(endpoint).await {
        Ok(link) => link,
        Err(fault) if fault.kind() == ErrorKind::ConnectionRefused => return Detection::NoServer,
        Err(fault) if fault.kind() == ErrorKind::TimedOut => return Detection::Timeout,
        Err(_) => return Detection::Error,
    };
    match link.exchange(ask, PROBE_BYTES_MAX).await {
        Ok((answer, _)) if is_nexus_response(&answer.body) => Detection::NexusServer,
        Err(ConnectionFault::Oversized(answer)) if answer.body.starts_with(AGENT_LIST_PREFIX) => {
            Detection::NexusServer
        }
        Ok(_) | Err(ConnectionFault::Unsent(_) | ConnectionFault::Oversized(_)) => Detection::OtherService,
        Err(ConnectionFault::Broken(fault)) => classify_error(&fault),
    }
}

/// The status is not looked at: a refusal for want of a token is as good a sign as a list.
fn is_nexus_response(body: &[u8]) -> bool {
    let Ok(response) = Response::parse(body) else { return false };
    let answers_us = response.id == Id::from(PROBE_ID);
    match response.outcome {
        Err(_) => answers_us || response.id.is_null(),
        Ok(Json::Object(members)) => {
            answers_us
                && members.iter().any(|(key, value)| key == "agents" && matches!(value, Json::Array(_)))
        }
        Ok(_) => false,
    }
}

/// A peer that talks nonsense or hangs up is somebody else; only what the system itself could not do is an error.
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
