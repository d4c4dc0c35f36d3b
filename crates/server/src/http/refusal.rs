//! Refusals of requests at the HTTP level: a status, and a JSON-RPC error as the body.

use std::borrow::Cow;

use hyper::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use nexus3_protocol::envelope::encode_error;
use nexus3_protocol::{ErrorCode, Id, RpcError};

use super::body::ResponseBody;

/// A rejected request: status and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: Cow<'static, str>,
    /// Whether the connection must close, because further input on it cannot be parsed.
    pub(super) closes_connection: bool,
}

impl Refusal {
    /// Rejects one request; the connection stays open.
    pub(super) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into(), closes_connection: false }
    }

    /// Rejects the request and closes the connection.
    pub(super) fn closing(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { closes_connection: true, ..Self::new(status, message) }
    }

    /// Rejects a malformed request with status 400 and closes the connection.
    pub(super) fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::closing(StatusCode::BAD_REQUEST, message)
    }

    fn code(&self) -> ErrorCode {
        match self.status {
            StatusCode::NOT_FOUND => ErrorCode::InvalidParams,
            StatusCode::INTERNAL_SERVER_ERROR => ErrorCode::Internal,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Busy,
            _ => ErrorCode::InvalidRequest,
        }
    }

    /// Builds the HTTP response.
    pub(super) fn into_response(self) -> Response<ResponseBody> {
        let error = RpcError::new(self.code(), self.message.clone());
        let mut response = json_response(self.status, HeaderMap::default(), encode_error(&Id::NULL, &error));
        let headers = response.headers_mut();
        let hint = match self.status {
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, "POST")),
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "1")),
            _ => None,
        };
        if let Some((name, value)) = hint {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if self.closes_connection {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Builds a response with a JSON body and these additional headers.
pub(super) fn json_response(
    status: StatusCode,
    mut headers: HeaderMap,
    body: Vec<u8>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(body));
    *response.status_mut() = status;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    *response.headers_mut() = headers;
    response
}

/// Builds the response to a notification.
pub(super) fn no_content_response() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(Vec::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
