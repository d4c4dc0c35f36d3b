//! Parser of JSON-RPC requests and batches. Its error texts are those of the original server, which clients know.

use std::borrow::Cow;

use super::{ErrorCode, Id, Params, Request, RpcError};
use crate::json::{Json, Member, Root, parse_members};

/// What a transport accepts beyond a single request with named parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvelopeRules {
    /// Maximum number of requests in a batch; 0 rejects batches.
    pub batch_max: usize,
    /// Whether `params` may be an array.
    pub positional: bool,
}

impl EnvelopeRules {
    /// HTTP: a single request with named parameters.
    pub const HTTP: EnvelopeRules = EnvelopeRules { batch_max: 0, positional: false };
    /// All of JSON-RPC 2.0, with batches of at most 100.
    pub const FULL: EnvelopeRules = EnvelopeRules { batch_max: 100, positional: true };
}

/// A rejected message and its error response.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectedRequest<'a> {
    /// Id of the request if it has a valid one, else null.
    pub id: Id<'a>,
    /// Error to return.
    pub error: RpcError,
}

impl RejectedRequest<'_> {
    fn invalid_request(message: impl Into<String>) -> Self {
        Self { id: Id::NULL, error: RpcError::new(ErrorCode::InvalidRequest, message) }
    }
}

/// A parsed message: a request or a batch.
#[derive(Debug, PartialEq)]
pub enum Incoming<'a> {
    /// One request.
    Single(Request<'a>),
    /// A batch; each request has its own response.
    Batch(Vec<Result<Request<'a>, RejectedRequest<'a>>>),
}

impl<'a> Incoming<'a> {
    /// Parses a message under the rules of its transport.
    ///
    /// # Errors
    /// When the message as a whole is rejected: not JSON, not an object, or not allowed by the rules.
    pub fn parse(bytes: &'a [u8], rules: EnvelopeRules) -> Result<Self, RejectedRequest<'a>> {
        let (root, duplicate) = parse_members(bytes).map_err(|fault| RejectedRequest {
            id: Id::NULL,
            error: RpcError::new(ErrorCode::Parse, fault.to_string()),
        })?;
        match root {
            Root::Object(members) => {
                parse_request(members, duplicate.as_deref(), rules).map(Incoming::Single)
            }
            Root::Array(items) if rules.batch_max > 0 => parse_batch(items, duplicate.as_deref(), rules),
            Root::Array(_) | Root::Scalar => {
                Err(RejectedRequest::invalid_request("Request must be a JSON object"))
            }
        }
    }
}

fn parse_batch<'a>(
    items: Vec<Option<Vec<Member<'a>>>>,
    duplicate: Option<&str>,
    rules: EnvelopeRules,
) -> Result<Incoming<'a>, RejectedRequest<'a>> {
    if items.is_empty() {
        return Err(RejectedRequest::invalid_request("Batch must not be empty"));
    }
    if items.len() > rules.batch_max {
        return Err(RejectedRequest::invalid_request(format!(
            "Batch too large: {} > {}",
            items.len(),
            rules.batch_max
        )));
    }
    // The parser does not report which item holds the duplicate key, so the whole batch is rejected.
    if let Some(key) = duplicate {
        return Err(RejectedRequest::invalid_request(duplicate_key_message(key)));
    }
    let parse_item = |item: Option<Vec<Member<'a>>>| match item {
        Some(members) => parse_request(members, None, rules),
        None => Err(RejectedRequest::invalid_request("Request must be a JSON object")),
    };
    Ok(Incoming::Batch(items.into_iter().map(parse_item).collect()))
}

fn duplicate_key_message(key: &str) -> String {
    format!("Duplicate key in request: {}", Json::String(Cow::Borrowed(key)).preview())
}

#[derive(Default)]
struct RequestMembers<'a> {
    jsonrpc: Option<Json<'a>>,
    method: Option<Json<'a>>,
    params: Option<Json<'a>>,
    id: Option<Member<'a>>,
    id_count: usize,
    has_unknown_member: bool,
}

fn parse_request<'a>(
    members: Vec<Member<'a>>,
    duplicate: Option<&str>,
    rules: EnvelopeRules,
) -> Result<Request<'a>, RejectedRequest<'a>> {
    let mut parts = RequestMembers::default();
    for member in members {
        match member.key.as_ref() {
            "jsonrpc" => parts.jsonrpc = Some(member.value),
            "method" => parts.method = Some(member.value),
            "params" => parts.params = Some(member.value),
            "id" => {
                parts.id_count += 1;
                parts.id = Some(member);
            }
            _ => parts.has_unknown_member = true,
        }
    }
    let id = parts.id.as_ref().filter(|_| parts.id_count == 1).and_then(Id::from_member);
    let checked = match duplicate {
        Some(key) => Err(duplicate_key_message(key)),
        None => parts.check(rules, id.is_some()),
    };
    match checked {
        Ok((method, params)) => Ok(Request { method, params, id }),
        Err(text) => {
            Err(RejectedRequest { id: id.unwrap_or(Id::NULL), ..RejectedRequest::invalid_request(text) })
        }
    }
}

impl<'a> RequestMembers<'a> {
    /// Validates the members. Reports only the first error, in the original server's order of checks.
    fn check(self, rules: EnvelopeRules, is_id_valid: bool) -> Result<(Cow<'a, str>, Params<'a>), String> {
        if matches!(self.params, Some(Json::Array(_))) && !rules.positional {
            return Err("Positional params (array) not supported, use named params (object)".to_owned());
        }
        if matches!(&self.method, Some(Json::String(method)) if method.is_empty()) {
            return Err("method must be a non-empty string".to_owned());
        }
        let version = self.jsonrpc.unwrap_or(Json::Null);
        if !matches!(&version, Json::String(version) if version == "2.0") {
            return Err(format!("jsonrpc must be '2.0', got: {}", version.preview()));
        }
        let method = match self.method.unwrap_or(Json::Null) {
            Json::String(method) => method,
            other => return Err(format!("method must be a string, got: {}", other.type_name())),
        };
        let params = match self.params.unwrap_or(Json::Null) {
            Json::Null => Params::Named(Vec::new()),
            Json::Object(members) => Params::Named(members),
            Json::Array(items) => Params::Positional(items),
            other => return Err(format!("params must be object or array, got: {}", other.type_name())),
        };
        if let Some(member) = &self.id
            && !is_id_valid
        {
            return Err(format!("id must be string, number, or null, got: {}", member.value.type_name()));
        }
        if self.has_unknown_member {
            return Err("Invalid JSON-RPC request".to_owned());
        }
        Ok((method, params))
    }
}
