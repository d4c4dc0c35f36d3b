//! JSON-RPC 2.0 messages: parsing and serializing of requests, responses, errors and ids. Method names and parameter
//! types are left to the method list.

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

/// JSON-RPC error codes of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// −32700: the body is not JSON.
    Parse,
    /// −32600: JSON, but not a valid request; also rejections at the HTTP level.
    InvalidRequest,
    /// −32601: no such method at this door.
    MethodNotFound,
    /// −32602: invalid parameters, or a caller without permission.
    InvalidParams,
    /// −32603: the daemon or a dependency failed.
    Internal,
    /// −32000: application error; nexus3 accepts it in responses but does not send it.
    Server,
    /// −32001: overloaded; `data.retry_after_ms` is the delay before a retry.
    Busy,
}

impl ErrorCode {
    /// Number on the wire.
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
    /// Number on the wire; [`ErrorCode`] lists those of the API.
    pub code: i64,
    /// Text for users. Never empty.
    pub message: String,
    /// Machine-readable details.
    pub data: Option<serde_json::Value>,
}

impl RpcError {
    /// Creates an error without data.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.number(), message: message.into(), data: None }
    }

    /// Adds machine-readable details.
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

/// Parameters of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Params<'a> {
    /// By name; empty when `params` is absent or null.
    Named(Vec<(Cow<'a, str>, Json<'a>)>),
    /// By position. Parsed only under rules with [`EnvelopeRules::positional`].
    Positional(Vec<Json<'a>>),
}

/// A parsed request whose method and parameters are not validated yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Request<'a> {
    /// Name of the method.
    pub method: Cow<'a, str>,
    /// Parameters.
    pub params: Params<'a>,
    /// Request id: `None` when the member is absent, `Some(Id::NULL)` when it is null.
    pub id: Option<Id<'a>>,
}

/// Serializes a request as compact JSON; omits `params` when it is empty.
///
/// # Errors
/// When `params` cannot be serialized.
pub fn encode_request(
    id: Option<&Id<'_>>,
    method: &str,
    params: &impl Serialize,
) -> Result<Vec<u8>, serde_json::Error> {
    let params = serde_json::value::to_raw_value(params)?;
    let is_empty = matches!(params.get(), "null" | "{}");
    let mut bytes = Vec::with_capacity(96 + params.get().len());
    bytes.extend_from_slice(br#"{"jsonrpc":"2.0","method":"#);
    serde_json::to_writer(&mut bytes, method)?;
    if !is_empty {
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

/// Serializes a successful response as compact JSON: `jsonrpc`, `id`, `result`.
///
/// # Errors
/// When `result` cannot be serialized.
pub fn encode_result(id: &Id<'_>, result: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = start_response(id, b"result");
    serde_json::to_writer(&mut bytes, result)?;
    bytes.push(b'}');
    Ok(bytes)
}

/// Serializes an error response as compact JSON: `jsonrpc`, `id`, `error`.
#[must_use]
pub fn encode_error(id: &Id<'_>, error: &RpcError) -> Vec<u8> {
    let mut bytes = start_response(id, b"error");
    // Cannot fail: integer, string and JSON value are always serializable, and writing to a Vec never fails.
    let written = serde_json::to_writer(&mut bytes, error);
    debug_assert!(written.is_ok(), "an RpcError always serializes");
    bytes.push(b'}');
    bytes
}

fn start_response(id: &Id<'_>, member: &[u8]) -> Vec<u8> {
    // Holds `list_agents` with one agent, so that short responses are never reallocated.
    let mut bytes = Vec::with_capacity(512);
    bytes.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    bytes.extend_from_slice(id.raw().as_bytes());
    bytes.extend_from_slice(br#",""#);
    bytes.extend_from_slice(member);
    bytes.extend_from_slice(br#"":"#);
    bytes
}
