//! The desk behind every door: takes a body, finds the method, has it done, and gives back the answer's bytes.
//! What an answer looks like in HTTP is left to the server.

#[cfg(test)]
mod tests;

use std::panic::AssertUnwindSafe;

use agent::AgentId;
use futures_util::FutureExt;
use jiff::tz::TimeZone;
use nexus3_protocol::envelope::{encode_error, encode_result};
use nexus3_protocol::{
    Door, EnvelopeRules, ErrorCode, Id, Incoming, Params, RejectedRequest, Request, RpcError,
};
use runtime::{AgentRef, PoolHandle};

use crate::caller::Caller;

/// What the desk needs to know beside the pool.
#[derive(Debug, Clone)]
pub struct DispatcherOptions {
    /// The zone that times are written in.
    pub zone: TimeZone,
}

/// The desk.
#[derive(Clone)]
pub struct Dispatcher {
    pub(crate) pool: PoolHandle,
    pub(crate) options: DispatcherOptions,
}

/// A door that is open to a request: the daemon's, or one agent's.
pub struct Target(pub(crate) TargetKind);

pub(crate) enum TargetKind {
    Daemon,
    Agent(AgentRef),
}

/// A door that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetError {
    /// The name is no agent's name.
    InvalidName,
    /// There is no such agent.
    AgentNotFound,
}

/// An answer's bytes, and what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResponse {
    /// What they are.
    pub kind: ResponseKind,
    /// A JSON-RPC response; empty when silent.
    pub body: Vec<u8>,
}

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// The request was understood; the body is its result or its error.
    Completed,
    /// The body was no request; the answer says why.
    Refused,
    /// A notification: there is nothing to say.
    Notification,
}

impl Dispatcher {
    /// A desk for a pool.
    #[must_use]
    pub fn new(pool: PoolHandle, options: DispatcherOptions) -> Self {
        Self { pool, options }
    }

    /// The caller that a capability token stands for; none when it is no agent's. Looked up by digest, never compared
    /// byte by byte.
    #[must_use]
    pub fn capability_caller(&self, token: &[u8]) -> Option<Caller> {
        self.pool.find_ref_by_capability(token).map(Caller::capability)
    }

    /// The daemon's own door.
    #[must_use]
    pub fn daemon_target(&self) -> Target {
        Target(TargetKind::Daemon)
    }

    /// One agent's door. Nobody is woken by looking for it.
    ///
    /// # Errors
    /// When there is none.
    pub fn agent_target(&self, name: &str) -> Result<Target, TargetError> {
        let id = AgentId::parse(name).map_err(|_| TargetError::InvalidName)?;
        let agent = self.pool.find_ref(&id).ok_or(TargetError::AgentNotFound)?;
        Ok(Target(TargetKind::Agent(agent)))
    }

    /// Answers one body.
    pub async fn respond(&self, entrance: Target, caller: &Caller, body: &[u8]) -> CallResponse {
        match Incoming::parse(body, EnvelopeRules::HTTP) {
            Ok(Incoming::Single(request)) => self.respond_to_request(&entrance, caller, request).await,
            Ok(Incoming::Batch(_)) => refusal_response(&RejectedRequest {
                id: Id::NULL,
                error: RpcError::new(ErrorCode::InvalidRequest, "Request must be a JSON object"),
            }),
            Err(refused) => refusal_response(&refused),
        }
    }

    async fn respond_to_request(
        &self,
        entrance: &Target,
        caller: &Caller,
        request: Request<'_>,
    ) -> CallResponse {
        let Request { method, params, id } = request;
        let Params::Named(params) = params else {
            let error = RpcError::new(ErrorCode::InvalidParams, "params must be an object");
            return refusal_response(&RejectedRequest { id: id.unwrap_or(Id::NULL), error });
        };
        // One call must not take others with it: a panic in a handler is that call's answer.
        let done = AssertUnwindSafe(self.dispatch(entrance, caller, &method, &params)).catch_unwind().await;
        let done = done.unwrap_or_else(|_| {
            tracing::error!(%method, "a handler panicked");
            Err(RpcError::new(ErrorCode::Internal, "Internal error: the call panicked"))
        });
        let Some(id) = id.filter(|id| !id.is_null()) else {
            return CallResponse { kind: ResponseKind::Notification, body: Vec::new() };
        };
        let body = match done.and_then(|output| output.serialize(&id)) {
            Ok(body) => body,
            Err(error) => encode_error(&id, &error),
        };
        CallResponse { kind: ResponseKind::Completed, body }
    }
}

impl Target {
    pub(crate) fn door(&self) -> Door {
        match self.0 {
            TargetKind::Daemon => Door::Daemon,
            TargetKind::Agent(_) => Door::Agent,
        }
    }
}

/// A method's output, kept typed until it is known whether anybody wants it written.
pub(crate) trait Output: Send {
    fn serialize(&self, id: &Id<'_>) -> Result<Vec<u8>, RpcError>;
}

impl<T: serde::Serialize + Send> Output for T {
    fn serialize(&self, id: &Id<'_>) -> Result<Vec<u8>, RpcError> {
        encode_result(id, self).map_err(|fault| {
            tracing::error!(%fault, "an output could not be written");
            RpcError::new(ErrorCode::Internal, "Internal error: the result could not be written")
        })
    }
}

fn refusal_response(refused: &RejectedRequest<'_>) -> CallResponse {
    CallResponse { kind: ResponseKind::Refused, body: encode_error(&refused.id, &refused.error) }
}
