//! Calls methods of one daemon. Keeps one idle connection for the next call; calls that run at the same time open their
//! own, so a `cancel` never waits behind the `send` it is meant for.

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

/// How long a call may take when nothing else is said.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest answer that is read.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Whom a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallTarget<'a> {
    /// The daemon itself.
    Daemon,
    /// The agent with this id.
    Agent(&'a str),
}

/// A caller of one daemon.
pub struct Client {
    endpoint: Endpoint,
    token: Option<Token>,
    timeout: Duration,
    last_id: AtomicU64,
    idle_connection: Mutex<Option<Connection>>,
}

/// A caller of one agent.
pub struct AgentClient<'a> {
    pub(crate) client: &'a Client,
    pub(crate) agent_id: String,
}

impl Client {
    /// A caller of the daemon at `endpoint`. Nothing is connected before the first call.
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

    /// The same caller with another limit on how long a call may take, connecting included.
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

    /// A caller of one of the daemon's agents.
    #[must_use]
    pub fn agent(&self, agent_id: impl Into<String>) -> AgentClient<'_> {
        AgentClient { client: self, agent_id: agent_id.into() }
    }

    /// Calls a method. Dropping the call closes its connection; the daemon may go on with what it was asked.
    ///
    /// # Errors
    /// When there is no answer, when it is not ours, or when it says no.
    pub async fn call<M: MethodSpec>(
        &self,
        target: CallTarget<'_>,
        params: &M::Params,
    ) -> Result<M::Output, ClientFault> {
        let method = M::METHOD.name();
        let id = self.next_id();
        let ask =
            self.post_request(target, encode_request(Some(&id), method, params).map_err(request_fault)?)?;
        let Ok(answered) = tokio::time::timeout(self.timeout, self.exchange(method, ask)).await else {
            let endpoint = self.endpoint.clone();
            return Err(ClientFault::Timeout { endpoint, method, after: self.timeout });
        };
        let answer = answered?;
        let (endpoint, status) = (self.endpoint.clone(), answer.status);
        decode_response::<M>(&answer, &id)
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

    pub(crate) fn with_authorization(&self, mut ask: HttpRequest) -> HttpRequest {
        if let Some(token) = &self.token {
            ask.headers_mut().insert(AUTHORIZATION, token.authorization());
        }
        ask
    }

    async fn exchange(
        &self,
        method: &'static str,
        mut ask: HttpRequest,
    ) -> Result<HttpResponse, ClientFault> {
        if let Some(link) = self.take_idle() {
            // Lets the runtime look at its sockets, so that a close which has already arrived is seen before writing.
            tokio::task::yield_now().await;
            match link.exchange(ask, RESPONSE_BYTES_MAX).await {
                Err(ConnectionFault::Unsent(unsent)) => ask = *unsent,
                outcome => return self.finish_exchange(method, outcome),
            }
        }
        let link = Connection::connect(&self.endpoint)
            .await
            .map_err(|source| ClientFault::Connect { endpoint: self.endpoint.clone(), source })?;
        let outcome = link.exchange(ask, RESPONSE_BYTES_MAX).await;
        self.finish_exchange(method, outcome)
    }

    pub(crate) fn finish_exchange(
        &self,
        method: &'static str,
        outcome: Result<(HttpResponse, Option<Connection>), ConnectionFault>,
    ) -> Result<HttpResponse, ClientFault> {
        let transport = |reason| ClientFault::Transport { endpoint: self.endpoint.clone(), method, reason };
        match outcome {
            Ok((answer, link)) => {
                self.store_idle(link);
                Ok(answer)
            }
            Err(ConnectionFault::Unsent(_)) => {
                let source = io::Error::new(ErrorKind::ConnectionAborted, "the peer closed at once");
                Err(ClientFault::Connect { endpoint: self.endpoint.clone(), source })
            }
            Err(ConnectionFault::Broken(fault)) => Err(transport(error_chain(&fault))),
            Err(ConnectionFault::Oversized(answer)) => Err(ClientFault::Protocol {
                endpoint: self.endpoint.clone(),
                method,
                status: answer.status,
                reason: format!("more than {RESPONSE_BYTES_MAX} bytes"),
            }),
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle_connection.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn store_idle(&self, link: Option<Connection>) {
        if link.is_some() {
            *self.idle_connection.lock().unwrap_or_else(PoisonError::into_inner) = link;
        }
    }
}

pub(crate) fn request_fault(fault: impl std::fmt::Display) -> ClientFault {
    ClientFault::Request(format!("the request cannot be written: {fault}"))
}

/// The id goes into the path as it is, so only characters that mean nothing there may pass.
pub(crate) fn target_path(target: CallTarget<'_>) -> Result<String, ClientFault> {
    match target {
        CallTarget::Daemon => Ok("/".to_owned()),
        CallTarget::Agent(id) if is_path_safe(id) => Ok(format!("/agent/{id}")),
        CallTarget::Agent(id) => {
            Err(ClientFault::Request(format!("{id:?} is no agent id: use letters, digits, '.', '_' and '-'")))
        }
    }
}

fn is_path_safe(id: &str) -> bool {
    !id.is_empty()
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// The outer fault says why the bytes are not an answer to this request; the inner one is the daemon's.
pub(crate) fn decode_response<M: MethodSpec>(
    answer: &HttpResponse,
    id: &Id<'_>,
) -> Result<Result<M::Output, nexus3_protocol::RpcError>, String> {
    let response =
        Response::parse(&answer.body).map_err(|fault| format!("no JSON-RPC response ({fault})"))?;
    // A request that could not be read, or was refused at the door, is answered with a null id.
    let refused_unread = response.outcome.is_err() && response.id.is_null();
    if response.id != *id && !refused_unread {
        return Err(format!("the answer to request {} instead of {}", response.id.raw(), id.raw()));
    }
    match response.outcome {
        Ok(result) => {
            json::from_json(&result).map(Ok).map_err(|fault| format!("an unknown result ({fault})"))
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
