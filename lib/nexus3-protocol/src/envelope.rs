//! JSON-RPC 2.0 messages: request, response, error, id, in both directions. Which method exists and what its
//! parameters mean is left to the method list.

mod id;
mod incoming;
mod response;
#[cfg(test)]
mod spec_examples;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::Serialize;
use serde::ser::SerializeMap;

pub use id::Id;
pub use incoming::{EnvelopeRules, Incoming, RejectedRequest};
pub use response::{Response, ResponseFault};

use crate::json::Json;

/// The error codes on our wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// −32700: the body is not JSON.
    Parse,
    /// −32600: JSON, but not a request; also HTTP-level refusals.
    InvalidRequest,
    /// −32601: no such method at this door.
    MethodNotFound,
    /// −32602: the parameters do not fit, or the caller may not do this.
    InvalidParams,
    /// −32603: the daemon or what it depends on failed.
    Internal,
    /// −32000: reserved for application errors; nexus3 reads it but does not send it.
    Server,
    /// −32001: too much work at once; `data.retry_after_ms` says when to try again.
    Busy,
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            ErrorCode::Parse => -32700,
            ErrorCode::InvalidRequest => -32600,
            ErrorCode::MethodNotFound => -32601,
            ErrorCode::InvalidParams => -32602,
            ErrorCode::Internal => -32603,
            ErrorCode::Server => -32000,
            ErrorCode::Busy => -32001,
        }
    }
}

/// The `error` member of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    /// The number on the wire; see [`ErrorCode`] for ours.
    pub code: i64,
    /// For people. Never empty.
    pub message: String,
    /// For programs, when there is something to say.
    pub data: Option<serde_json::Value>,
}

impl RpcError {
    /// An error without data.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.number(), message: message.into(), data: None }
    }

    /// The same error with data for programs.
    #[must_use]
    pub fn with_data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data);
        self
    }
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for RpcError {}

impl Serialize for RpcError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", &self.code)?;
        map.serialize_entry("message", &self.message)?;
        if let Some(data) = &self.data {
            map.serialize_entry("data", data)?;
        }
        map.end()
    }
}

/// A request's parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Params<'a> {
    /// By name; absent and null parameters are an empty list.
    Named(Vec<(Cow<'a, str>, Json<'a>)>),
    /// By position. Only a door whose rules allow it hands these on.
    Positional(Vec<Json<'a>>),
}

/// A request that was read, with nothing about its method decided yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Request<'a> {
    /// The method's name.
    pub method: Cow<'a, str>,
    /// Its parameters.
    pub params: Params<'a>,
    /// `None` when the member is absent; a null id is `Some(Id::NULL)`.
    pub id: Option<Id<'a>>,
}

/// Writes a request as compact JSON, `params` left out when there are none.
///
/// # Errors
/// When `params` cannot be written as JSON.
pub fn encode_request(
    id: Option<&Id<'_>>,
    method: &str,
    params: &impl Serialize,
) -> Result<Vec<u8>, serde_json::Error> {
    let params = serde_json::value::to_raw_value(params)?;
    let bare = matches!(params.get(), "null" | "{}");
    let mut bytes = Vec::with_capacity(96 + params.get().len());
    bytes.extend_from_slice(br#"{"jsonrpc":"2.0","method":"#);
    serde_json::to_writer(&mut bytes, method)?;
    if !bare {
        bytes.extend_from_slice(br#","params":"#);
        bytes.extend_from_slice(params.get().as_bytes());
    }
    if let Some(id) = id {
        bytes.extend_from_slice(br#","id":"#);
        bytes.extend_from_slice(id.raw().as_bytes());
    }
    bytes.push(b'}');
    Ok(bytes)
}

/// Writes a successful response as compact JSON: `jsonrpc`, `id`, `result`.
///
/// # Errors
/// When `result` cannot be written as JSON.
pub fn encode_result(id: &Id<'_>, result: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = start_response(id, b"result");
    serde_json::to_writer(&mut bytes, result)?;
    bytes.push(b'}');
    Ok(bytes)
}

/// Writes an error response as compact JSON: `jsonrpc`, `id`, `error`.
#[must_use]
pub fn encode_error(id: &Id<'_>, error: &RpcError) -> Vec<u8> {
    let mut bytes = start_response(id, b"error");
    // A string, an integer and a JSON value always have a JSON spelling, and a Vec takes every byte.
    let written = serde_json::to_writer(&mut bytes, error);
    debug_assert!(written.is_ok(), "an RpcError always serializes");
    bytes.push(b'}');
    bytes
}

fn start_response(id: &Id<'_>, member: &[u8]) -> Vec<u8> {
    // Room for a list of one agent, so that short answers never move.
    let mut bytes = Vec::with_capacity(512);
    bytes.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    bytes.extend_from_slice(id.raw().as_bytes());
    bytes.extend_from_slice(br#",""#);
    bytes.extend_from_slice(member);
    bytes.extend_from_slice(br#"":"#);
    bytes
}
