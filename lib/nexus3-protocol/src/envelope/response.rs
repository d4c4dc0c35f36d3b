//! Parser of JSON-RPC responses, as strict as the original client: `jsonrpc`, `id`, exactly one of `result` and
//! `error`, no other members.

use super::{Id, RpcError};
use crate::json::{self, Json, Root, SyntaxFault, parse_members};

/// A parsed response.
#[derive(Debug, PartialEq)]
pub struct Response<'a> {
    /// Id of the request; null when the server could not parse it.
    pub id: Id<'a>,
    /// Result or error.
    pub outcome: Result<Json<'a>, RpcError>,
}

/// An invalid JSON-RPC response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResponseFault {
    /// Not JSON.
    #[error(transparent)]
    Syntax(#[from] SyntaxFault),
    /// JSON, but not a response.
    #[error("not a JSON-RPC response: {0}")]
    Shape(&'static str),
}

impl<'a> Response<'a> {
    /// Parses one response.
    ///
    /// # Errors
    /// When the bytes are not JSON or not a response.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ResponseFault> {
        let (root, duplicate) = parse_members(bytes)?;
        let Root::Object(members) = root else { return Err(ResponseFault::Shape("not an object")) };
        if duplicate.is_some() {
            return Err(ResponseFault::Shape("duplicate key"));
        }
        let (mut version, mut id, mut result, mut error) = (None, None, None, None);
        for member in members {
            match member.key.as_ref() {
                "jsonrpc" => version = Some(member.value),
                "id" => id = Some(Id::from_member(&member).ok_or(ResponseFault::Shape("invalid id"))?),
                "result" => result = Some(member.value),
                "error" => error = Some(member.value),
                _ => return Err(ResponseFault::Shape("unknown member")),
            }
        }
        if !matches!(version, Some(Json::String(version)) if version == "2.0") {
            return Err(ResponseFault::Shape("jsonrpc is not 2.0"));
        }
        let id = id.ok_or(ResponseFault::Shape("no id"))?;
        let outcome = match (result, error) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(parse_error(&error)?),
            (None, None) => return Err(ResponseFault::Shape("neither result nor error")),
            (Some(_), Some(_)) => return Err(ResponseFault::Shape("both result and error")),
        };
        Ok(Self { id, outcome })
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorMember {
    code: i64,
    message: String,
    #[serde(default)]
    data: Option<serde_json::Value>,
}

fn parse_error(value: &Json<'_>) -> Result<RpcError, ResponseFault> {
    let error: ErrorMember = json::from_json(value).map_err(|_| ResponseFault::Shape("malformed error"))?;
    if error.message.is_empty() {
        return Err(ResponseFault::Shape("empty error message"));
    }
    Ok(RpcError { code: error.code, message: error.message, data: error.data })
}
