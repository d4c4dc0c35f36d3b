//! Error responses: OpenAI's error object and its HTTP status.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;

use super::queue::QueueRejection;
use crate::embed::EmbedFault;
use crate::generation::GenerationFault;

/// Value of `Retry-After` when the queue is full or too many large requests are in flight.
const RETRY_AFTER_S: u64 = 2;

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) retry_after_s: Option<u64>,
    /// The method that a path needs, for status 405.
    pub(super) allow: Option<Method>,
    message: String,
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            retry_after_s: None,
            allow: None,
            message: message.into(),
            kind,
            param: None,
            code: None,
        }
    }

    /// Invalid request: status 400.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// Invalid request with another status.
    pub(super) fn invalid_with_status(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", message)
    }

    /// Wrong method for a path: status 405 with `Allow`.
    pub(super) fn method_not_allowed(allow: Method, message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message);
        Self { allow: Some(allow), ..refusal }
    }

    /// Server failure: status 500.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// Overload: status 429 with `Retry-After`.
    pub(super) fn busy(message: impl Into<String>) -> Self {
        let refusal =
            Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).code("queue_full");
        Self { retry_after_s: Some(RETRY_AFTER_S), ..refusal }
    }

    /// Shutdown: status 503.
    pub(super) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the model server is stopping; retry")
            .code("stopping")
    }

    /// Sets the request parameter that is invalid.
    pub(super) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(super) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Serializes the error object.
    pub(super) fn body(&self) -> Bytes {
        let error = ErrorObject {
            message: &self.message,
            kind: self.kind,
            param: self.param.as_deref(),
            code: self.code,
        };
        // Serializing strings cannot fail.
        serde_json::to_vec(&ErrorBody { error }).unwrap_or_default().into()
    }
}

impl From<QueueRejection> for Refusal {
    fn from(reason: QueueRejection) -> Self {
        let text = match reason {
            QueueRejection::Closed => return Refusal::stopping(),
            QueueRejection::Full => "the model's queue is full; retry later",
            QueueRejection::ClientShareFull => {
                "too many of your requests are queued for this model; retry later"
            }
        };
        let refusal =
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", text).code("queue_full");
        Refusal { retry_after_s: Some(RETRY_AFTER_S), ..refusal }
    }
}

impl From<GenerationFault> for Refusal {
    fn from(fault: GenerationFault) -> Self {
        let text = fault.to_string();
        match fault {
            GenerationFault::PromptTooLong { .. } => {
                Refusal::invalid(text).param("messages").code("context_length_exceeded")
            }
            GenerationFault::Refused(_) => Refusal::invalid(text),
            GenerationFault::Failed(_) => Refusal::failed(text),
        }
    }
}

impl From<EmbedFault> for Refusal {
    fn from(fault: EmbedFault) -> Self {
        Refusal::failed(fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(refusal: &Refusal) -> serde_json::Value {
        serde_json::from_slice(&refusal.body()).unwrap()
    }

    #[test]
    fn refusal_serializes_as_openai_error() {
        let refusal = Refusal::invalid("no \"such\" thing").param("messages[0]").code("odd");
        let expected = json!({"error": {
            "message": "no \"such\" thing", "type": "invalid_request_error", "param": "messages[0]", "code": "odd",
        }});
        assert_eq!(object(&refusal), expected);
        let plain = object(&Refusal::failed("it broke"));
        assert!(plain["error"]["param"].is_null() && plain["error"]["code"].is_null());
    }

    #[test]
    fn prompt_too_long_has_its_own_code() {
        let refusal =
            Refusal::from(GenerationFault::PromptTooLong { prompt_tokens: 9000, window_tokens: 8192 });
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
        assert_eq!(object(&refusal)["error"]["code"], "context_length_exceeded");
    }

    #[test]
    fn full_queue_sets_retry_after() {
        for reason in [QueueRejection::Full, QueueRejection::ClientShareFull] {
            let refusal = Refusal::from(reason);
            assert_eq!((refusal.status, refusal.retry_after_s), (StatusCode::TOO_MANY_REQUESTS, Some(2)));
        }
        assert_eq!(Refusal::from(QueueRejection::Closed).status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
