//! Transport-independent JSON-RPC entry point: parses the body, dispatches, serializes the response. The server maps
//! the response to HTTP.

#[cfg(test)]
mod tests;

use agent::AgentId;
use jiff::tz::TimeZone;
use nexus3_protocol::envelope::{encode_error, encode_result};
use nexus3_protocol::{
    Door, EnvelopeRules, ErrorCode, Id, Incoming, Params, RejectedRequest, Request, RpcError,
};
use runtime::{AgentRef, PoolHandle};

use crate::caller::{Caller, Principal};
use crate::streams::SharedEncodedEvents;

/// Options of a [`Dispatcher`].
#[derive(Debug, Clone)]
pub struct DispatcherOptions {
    /// Time zone of timestamps in responses.
    pub zone: TimeZone,
}

/// Dispatches JSON-RPC requests to an agent pool.
#[derive(Clone)]
pub struct Dispatcher {
    pub(crate) pool: PoolHandle,
    pub(crate) options: DispatcherOptions,
    pub(crate) encoded_events: SharedEncodedEvents,
}

/// The target of a request: the daemon, or one agent.
pub struct Target(pub(crate) TargetKind);

pub(crate) enum TargetKind {
    Daemon,
    Agent(AgentRef),
    /// No agent has this id. Only callers that act as an agent get such a target, and each call on it is denied like
    /// one on an agent out of reach.
    Missing(AgentId),
}

/// Why a target cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetError {
    /// The text is not a valid agent id.
    InvalidName,
    /// No agent has this id.
    AgentNotFound,
}

/// A serialized response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResponse {
    /// How the request was handled.
    pub kind: ResponseKind,
    /// A JSON-RPC response; empty for a notification.
    pub body: Vec<u8>,
}

/// How a request was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// The request was dispatched; the body holds its result or error.
    Completed,
    /// The body was not a valid request; the response holds the error.
    Refused,
    /// The daemon shuts down: the request was not executed. The body holds the error.
    Unavailable,
    /// A notification, which has no response.
    Notification,
}

impl Dispatcher {
    /// Creates a dispatcher for a pool.
    #[must_use]
    pub fn new(pool: PoolHandle, options: DispatcherOptions) -> Self {
        Self { pool, options, encoded_events: SharedEncodedEvents::default() }
    }

    /// Returns the caller a capability token authenticates, or `None` for an unknown token. The token is looked up by
    /// its digest, never compared byte by byte, to avoid a timing side channel.
    #[must_use]
    pub fn capability_caller(&self, token: &[u8]) -> Option<Caller> {
        self.pool.find_ref_by_capability(token).map(Caller::capability)
    }

    /// Returns the daemon as the target.
    #[must_use]
    pub fn daemon_target(&self) -> Target {
        Target(TargetKind::Daemon)
    }

    /// Resolves an agent id to a target, without waking the agent.
    ///
    /// # Errors
    /// When the id is invalid or no agent has it. Only an admin learns the latter: to an agent, a missing agent and
    /// one out of its reach give the same error when it calls them, so that ids cannot be probed.
    pub fn agent_target(&self, id: &str, caller: &Caller) -> Result<Target, TargetError> {
        let id = AgentId::parse(id).map_err(|_| TargetError::InvalidName)?;
        match self.pool.find_ref(&id) {
            Some(agent) => Ok(Target(TargetKind::Agent(agent))),
            None if caller.is_admin() => Err(TargetError::AgentNotFound),
            None => Ok(Target(TargetKind::Missing(id))),
        }
    }

    /// Returns the serial of the agent that the caller acts as; `None` for an admin, and for an unknown agent.
    #[must_use]
    pub fn acting_agent(&self, caller: &Caller) -> Option<u64> {
        match caller.principal(&self.pool) {
            Ok(Principal::Agent(agent)) => Some(agent.serial()),
            Ok(Principal::Admin) | Err(_) => None,
        }
    }

    /// Handles one body, a request or a batch, under the rules of its transport.
    pub async fn respond(
        &self,
        target: &Target,
        caller: &Caller,
        body: &[u8],
        rules: EnvelopeRules,
    ) -> CallResponse {
        match Incoming::parse(body, rules) {
            Ok(Incoming::Single(request)) => self.respond_to_request(target, caller, request).await,
            Ok(Incoming::Batch(requests)) => self.respond_to_batch(target, caller, requests).await,
            Err(refused) => refusal_response(&refused),
        }
    }

    /// Runs the requests of a batch one after the other. Notifications have no response, and a batch without any other
    /// request has none either.
    async fn respond_to_batch(
        &self,
        target: &Target,
        caller: &Caller,
        requests: Vec<Result<Request<'_>, RejectedRequest<'_>>>,
    ) -> CallResponse {
        let mut body = Vec::new();
        for request in requests {
            let response = match request {
                Ok(request) => self.respond_to_request(target, caller, request).await,
                Err(refused) => refusal_response(&refused),
            };
            if response.kind != ResponseKind::Notification {
                body.push(if body.is_empty() { b'[' } else { b',' });
                body.extend(response.body);
            }
        }
        if body.is_empty() {
            return CallResponse { kind: ResponseKind::Notification, body };
        }
        body.push(b']');
        CallResponse { kind: ResponseKind::Completed, body }
    }

    async fn respond_to_request(
        &self,
        target: &Target,
        caller: &Caller,
        request: Request<'_>,
    ) -> CallResponse {
        let Request { method, params, id } = request;
        let Params::Named(params) = params else {
            let error = RpcError::new(ErrorCode::InvalidParams, "params must be an object");
            return refusal_response(&RejectedRequest { id: id.unwrap_or(Id::NULL), error });
        };
        let result = self.dispatch(target, caller, &method, &params).await;
        let Some(id) = id.filter(|id| !id.is_null()) else {
            return CallResponse { kind: ResponseKind::Notification, body: Vec::new() };
        };
        match result.and_then(|output| output.serialize(&id)) {
            Ok(body) => CallResponse { kind: ResponseKind::Completed, body },
            Err(error) => CallResponse { kind: self.error_kind(&error), body: encode_error(&id, &error) },
        }
    }

    /// While the pool stops, it rejects what it would execute at other times.
    fn error_kind(&self, error: &RpcError) -> ResponseKind {
        let is_stopping = error.code == ErrorCode::Busy.number() && self.pool.is_stopping();
        if is_stopping { ResponseKind::Unavailable } else { ResponseKind::Completed }
    }
}

impl Target {
    pub(crate) fn door(&self) -> Door {
        match self.0 {
            TargetKind::Daemon => Door::Daemon,
            TargetKind::Agent(_) | TargetKind::Missing(_) => Door::Agent,
        }
    }
}

/// A method's output, serialized only if the request wants a response.
pub(crate) trait Output: Send {
    fn serialize(&self, id: &Id<'_>) -> Result<Vec<u8>, RpcError>;
}

impl<T: serde::Serialize + Send> Output for T {
    fn serialize(&self, id: &Id<'_>) -> Result<Vec<u8>, RpcError> {
        encode_result(id, self).map_err(|fault| {
            tracing::error!(%fault, "cannot serialize a result");
            RpcError::new(ErrorCode::Internal, "Internal error: the result cannot be serialized")
        })
    }
}

fn refusal_response(refused: &RejectedRequest<'_>) -> CallResponse {
    CallResponse { kind: ResponseKind::Refused, body: encode_error(&refused.id, &refused.error) }
}
