//! JSON-RPC client of one daemon. It reuses one idle connection; concurrent calls open their own, so a `cancel` never
//! queues behind the `send` it cancels.

#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::header::AUTHORIZATION;
use nexus3_protocol::envelope::encode_request;
use nexus3_protocol::{Id, MethodSpec, Response, json};

use crate::connection::{Connection, ConnectionFault, HttpRequest, HttpResponse, json_post};
use crate::{ClientFault, Endpoint, Token};

/// Default timeout of a call.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a response body.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The target of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallTarget<'a> {
    /// The daemon itself.
    Daemon,
    /// The agent with this id.
    Agent(&'a str),
}

/// A client of one daemon.
pub struct Client {
    endpoint: Endpoint,
    token: Option<Token>,
    timeout: Duration,
    last_id: AtomicU64,
    idle_connection: Mutex<Option<Connection>>,
}

/// A client of one agent; created by [`Client::agent`].
pub struct AgentClient<'a> {
    pub(crate) client: &'a Client,
    pub(crate) agent_id: String,
}

impl Client {
    /// Creates a client of the daemon at `endpoint`. It connects at the first call.
    #[must_use]
    pub fn new(endpoint: Endpoint, token: Option<Token>) -> Self {
        Self {
            endpoint,
            token,
            timeout: CALL_TIMEOUT,
            last_id: AtomicU64::new(0),
            idle_connection: Mutex::new(None),
        }
    }

    /// Sets the timeout of a call, including the time to connect.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The daemon's address.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns a client of one of the daemon's agents.
    #[must_use]
    pub fn agent(&self, agent_id: impl Into<String>) -> AgentClient<'_> {
        AgentClient { client: self, agent_id: agent_id.into() }
    }

    /// Calls a method. Dropping the future closes its connection; the daemon may still execute the request.
    ///
    /// # Errors
    /// When no response arrives, when it is not a valid response to this request, or when the daemon returns an error.
    pub async fn call<M: MethodSpec>(
        &self,
        target: CallTarget<'_>,
        params: &M::Params,
    ) -> Result<M::Output, ClientFault> {
        let method = M::METHOD.name();
        let id = self.next_id();
        let request =
            self.post_request(target, encode_request(Some(&id), method, params).map_err(request_fault)?)?;
        let Ok(outcome) = tokio::time::timeout(self.timeout, self.exchange(method, request)).await else {
            let endpoint = self.endpoint.clone();
            return Err(ClientFault::Timeout { endpoint, method, after: self.timeout });
        };
        let response = outcome?;
        let (endpoint, status) = (self.endpoint.clone(), response.status);
        decode_response::<M>(&response, &id)
            .map_err(|reason| ClientFault::Protocol { endpoint, method, status, reason })?
            .map_err(|error| ClientFault::Rpc { status, error })
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn next_id(&self) -> Id<'static> {
        Id::from(self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn post_request(
        &self,
        target: CallTarget<'_>,
        body: Vec<u8>,
    ) -> Result<HttpRequest, ClientFault> {
        Ok(self.with_authorization(
            json_post(&self.endpoint, &target_path(target)?, body).map_err(request_fault)?,
        ))
    }

    pub(crate) fn with_authorization(&self, mut request: HttpRequest) -> HttpRequest {
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.authorization());
        }
        request
    }

    async fn exchange(
        &self,
        method: &'static str,
        mut request: HttpRequest,
    ) -> Result<HttpResponse, ClientFault> {
        if let Some(connection) = self.take_idle() {
            // Lets the runtime poll its sockets, so that a close by the peer is noticed before the request is written.
            tokio::task::yield_now().await;
            match connection.exchange(request, RESPONSE_BYTES_MAX).await {
                Err(ConnectionFault::Unsent(unsent)) => request = *unsent,
                outcome => return self.finish_exchange(method, outcome),
            }
        }
        let connection = Connection::connect(&self.endpoint)
            .await
            .map_err(|source| ClientFault::Connect { endpoint: self.endpoint.clone(), source })?;
        let outcome = connection.exchange(request, RESPONSE_BYTES_MAX).await;
        self.finish_exchange(method, outcome)
    }

    pub(crate) fn finish_exchange(
        &self,
        method: &'static str,
        outcome: Result<(HttpResponse, Option<Connection>), ConnectionFault>,
    ) -> Result<HttpResponse, ClientFault> {
        let transport = |reason| ClientFault::Transport { endpoint: self.endpoint.clone(), method, reason };
        match outcome {
            Ok((response, connection)) => {
                self.store_idle(connection);
                Ok(response)
            }
            Err(ConnectionFault::Unsent(_)) => {
                let source =
                    io::Error::new(ErrorKind::ConnectionAborted, "the peer closed the connection at once");
                Err(ClientFault::Connect { endpoint: self.endpoint.clone(), source })
            }
            Err(ConnectionFault::Broken(fault)) => Err(transport(error_chain(&fault))),
            Err(ConnectionFault::Oversized(response)) => Err(ClientFault::Protocol {
                endpoint: self.endpoint.clone(),
                method,
                status: response.status,
                reason: format!("more than {RESPONSE_BYTES_MAX} bytes"),
            }),
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle_connection.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn store_idle(&self, connection: Option<Connection>) {
        if connection.is_some() {
            *self.idle_connection.lock().unwrap_or_else(PoisonError::into_inner) = connection;
        }
    }
}

pub(crate) fn request_fault(fault: impl std::fmt::Display) -> ClientFault {
    ClientFault::Request(format!("cannot encode the request: {fault}"))
}

/// Returns the HTTP path of a target. The id is inserted without escaping, so only characters that are safe in a path
/// are accepted.
pub(crate) fn target_path(target: CallTarget<'_>) -> Result<String, ClientFault> {
    match target {
        CallTarget::Daemon => Ok("/".to_owned()),
        CallTarget::Agent(id) if is_path_safe(id) => Ok(format!("/agent/{id}")),
        CallTarget::Agent(id) => Err(ClientFault::Request(format!(
            "invalid agent id {id:?}: use letters, digits, '.', '_' and '-'"
        ))),
    }
}

fn is_path_safe(id: &str) -> bool {
    !id.is_empty()
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Decodes a response. The outer error means that it is not a valid response to this request; the inner one is the
/// daemon's error.
pub(crate) fn decode_response<M: MethodSpec>(
    response: &HttpResponse,
    id: &Id<'_>,
) -> Result<Result<M::Output, nexus3_protocol::RpcError>, String> {
    let response =
        Response::parse(&response.body).map_err(|fault| format!("no JSON-RPC response ({fault})"))?;
    // The daemon uses a null id when it rejects a request before it has parsed it.
    let is_rejected_unparsed = response.outcome.is_err() && response.id.is_null();
    if response.id != *id && !is_rejected_unparsed {
        return Err(format!("a response to request {} instead of {}", response.id.raw(), id.raw()));
    }
    match response.outcome {
        Ok(result) => {
            json::from_json(&result).map(Ok).map_err(|fault| format!("an unexpected result ({fault})"))
        }
        Err(error) => Ok(Err(error)),
    }
}

pub(crate) fn error_chain(fault: &hyper::Error) -> String {
    let mut text = fault.to_string();
    let mut cause = fault.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
