//! Classification of failed model requests by the possible reaction: retry, fall back to another model, compact the
//! conversation, or give up.

use std::time::Duration;

use agent::{Fault, FaultKind};

/// Error of a request that failed before its response began.
#[derive(Debug)]
pub(crate) struct ModelError {
    pub(crate) fault: Fault,
    pub(crate) class: ErrorClass,
    /// Delay that the server asked for.
    pub(crate) retry_after: Option<Duration>,
    /// Message and reason around the number of attempts, for faults that state it.
    attempts_text: Option<(&'static str, String)>,
}

/// Class of a failed model request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The server cannot be reached, does not respond, or reports an internal error.
    Unavailable,
    /// The server is overloaded or the rate limit is exceeded.
    RateLimited,
    /// The server refuses this client: wrong key, permissions or address.
    Refused,
    /// The request itself is invalid; every model would reject it.
    Invalid,
    /// The request exceeds the model's context window.
    ContextFull,
    /// The request was not sent: the queue is full or the circuit is open.
    NotSent,
}

impl ErrorClass {
    /// Whether the same request may succeed a little later.
    pub(crate) fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::RateLimited)
    }

    /// Whether another model may succeed with the same request.
    pub(crate) fn allows_fallback(self) -> bool {
        !matches!(self, Self::Invalid | Self::ContextFull)
    }
}

impl ModelError {
    pub(crate) fn new(class: ErrorClass, fault: Fault) -> Self {
        Self { fault, class, retry_after: None, attempts_text: None }
    }

    /// Creates the error of an unavailable server; its message states the number of attempts.
    pub(crate) fn unavailable(what: &'static str, why: String) -> Self {
        let fault = Fault::new(FaultKind::Model, format!("{what} after 1 attempts: {why}"));
        Self { attempts_text: Some((what, why)), ..Self::new(ErrorClass::Unavailable, fault) }
    }

    /// Sets the number of attempts in the message.
    pub(crate) fn with_attempts(mut self, tries: u32) -> Self {
        if let Some((what, why)) = &self.attempts_text {
            self.fault.public = format!("{what} after {tries} attempts: {why}").into();
        }
        self
    }

    /// Replaces the fault, such as by a redacted one.
    pub(crate) fn map_fault(mut self, map: impl FnOnce(Fault) -> Fault) -> Self {
        self.fault = map(self.fault);
        self
    }

    pub(crate) fn caused_by(mut self, cause: String) -> Self {
        self.fault.cause = Some(cause);
        self
    }

    /// Creates the error of an HTTP error status, from the redacted and truncated body.
    pub(crate) fn from_status(status: u16, body: &str, retry_after: Option<Duration>) -> Self {
        let text = match status {
            401 => "Authentication failed. Check your API key.".into(),
            403 => "Access forbidden. Check your API permissions.".into(),
            404 => "API endpoint not found. Check your configuration.".into(),
            other => format!("API request failed ({other}): {body}"),
        };
        let class = match status {
            400 | 413 | 422 | 500 if contains_any(body, CONTEXT_FULL_PHRASES) => ErrorClass::ContextFull,
            other => class_from_status(other),
        };
        let kind = if class == ErrorClass::ContextFull { FaultKind::ContextFull } else { FaultKind::Model };
        let fault = Fault::new(kind, text).caused_by(format!("status {status}: {body}"));
        Self { retry_after, ..Self::new(class, fault) }
    }

    /// Classifies an error object that the stream contained instead of content.
    pub(crate) fn from_stream_fault(fault: Fault) -> Self {
        let fault = detect_context_full(fault);
        let class = match fault.kind {
            FaultKind::ContextFull => ErrorClass::ContextFull,
            FaultKind::Invalid | FaultKind::Internal => ErrorClass::Invalid,
            _ => class_from_fault(&fault),
        };
        Self::new(class, fault)
    }
}

fn class_from_status(status: u16) -> ErrorClass {
    match status {
        408 | 500 | 502 | 503 | 504 => ErrorClass::Unavailable,
        409 | 425 | 429 | 529 => ErrorClass::RateLimited,
        401..=404 => ErrorClass::Refused,
        // A redirect points at another address; it is not followed.
        300..=399 => ErrorClass::Refused,
        _ => ErrorClass::Invalid,
    }
}

/// Classifies by known phrases, then by an error code that is an HTTP status. Permanent errors are left to a fallback.
fn class_from_fault(fault: &Fault) -> ErrorClass {
    let text = full_text(fault);
    if contains_any(&text, OVERLOADED_PHRASES) {
        return ErrorClass::RateLimited;
    }
    if contains_any(&text, SERVER_ERROR_PHRASES) {
        return ErrorClass::Unavailable;
    }
    let code =
        fault.cause.as_deref().and_then(|cause| cause.split([' ', '"']).find_map(|word| word.parse().ok()));
    code.map(class_from_status).filter(|class| class.is_retryable()).unwrap_or(ErrorClass::Refused)
}

/// Sets the fault's kind to `ContextFull` if its text says that the context window is exceeded.
pub(crate) fn detect_context_full(fault: Fault) -> Fault {
    if fault.kind == FaultKind::Model && contains_any(&full_text(&fault), CONTEXT_FULL_PHRASES) {
        return Fault { kind: FaultKind::ContextFull, ..fault };
    }
    fault
}

/// Returns the server's message together with the code and the type from the cause.
fn full_text(fault: &Fault) -> String {
    format!("{} {}", fault.public, fault.cause.as_deref().unwrap_or_default())
}

/// Phrases for an exceeded context window: OpenAI and compatible servers, Anthropic, llama.cpp, Ollama, vLLM, LM
/// Studio, Mistral, Gemini.
const CONTEXT_FULL_PHRASES: &[&str] = &[
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "exceed context limit",
    "exceed_context_size",
    "exceeds the available context size",
    "exceeds context length",
    "exceeds the context length",
    "exceeds the context window",
    "exceeds the maximum number of tokens",
    "exceeds the limit of",
    "context window of this model",
    "input length exceeds",
    "greater than the context length",
    "too large for model with",
    "context size has been exceeded",
    "model_max_prompt_tokens_exceeded",
];

/// Phrases for overload and exceeded rate limits.
const OVERLOADED_PHRASES: &[&str] = &["overloaded", "rate limit", "rate_limit", "try again", "temporarily"];

/// Phrases for internal server errors: OpenAI and compatible servers, Anthropic.
const SERVER_ERROR_PHRASES: &[&str] = &["server_error", "api_error", "timeout_error"];

fn contains_any(text: &str, phrases: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    phrases.iter().any(|phrase| text.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_full_errors_of_all_servers_are_recognized() {
        for (status, body) in [
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213456 tokens > 200000 maximum"}}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}"#,
            ),
            (500, r#"{"error":"input length exceeds maximum context length"}"#),
            (400, "The number of tokens to keep from the initial prompt is greater than the context length"),
            (413, "Input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
        ] {
            let model_error = ModelError::from_status(status, body, None);
            assert_eq!(
                (model_error.class, model_error.fault.kind),
                (ErrorClass::ContextFull, FaultKind::ContextFull),
                "{body}"
            );
        }
        let plain = ModelError::from_status(400, r#"{"error":{"message":"unknown field"}}"#, None);
        assert_eq!((plain.class, plain.fault.kind), (ErrorClass::Invalid, FaultKind::Model));
    }

    #[test]
    fn http_status_determines_the_error_class() {
        for (status, class) in [
            (400, ErrorClass::Invalid),
            (401, ErrorClass::Refused),
            (403, ErrorClass::Refused),
            (404, ErrorClass::Refused),
            (408, ErrorClass::Unavailable),
            (409, ErrorClass::RateLimited),
            (413, ErrorClass::Invalid),
            (418, ErrorClass::Invalid),
            (422, ErrorClass::Invalid),
            (429, ErrorClass::RateLimited),
            (500, ErrorClass::Unavailable),
            (501, ErrorClass::Invalid),
            (502, ErrorClass::Unavailable),
            (503, ErrorClass::Unavailable),
            (504, ErrorClass::Unavailable),
            (529, ErrorClass::RateLimited),
            (302, ErrorClass::Refused),
        ] {
            assert_eq!(ModelError::from_status(status, "", None).class, class, "{status}");
        }
    }

    #[test]
    fn stream_errors_are_classified_by_message_code_and_type() {
        let window =
            "the prompt has 9000 tokens, and the model's window holds 8192; shorten the conversation";
        for (message, code, kind, class) in [
            (window, r#""context_length_exceeded""#, r#""invalid_request_error""#, ErrorClass::ContextFull),
            ("Too long.", "400", r#""exceed_context_size_error""#, ErrorClass::ContextFull),
            ("Something went wrong.", r#""server_error""#, "null", ErrorClass::Unavailable),
            ("Something went wrong.", "null", r#""api_error""#, ErrorClass::Unavailable),
            ("Provider returned error", "502", "null", ErrorClass::Unavailable),
            ("Provider returned error", r#""503""#, "null", ErrorClass::Unavailable),
            ("Slow down.", "429", "null", ErrorClass::RateLimited),
            ("Slow down.", r#""rate_limit_exceeded""#, r#""requests""#, ErrorClass::RateLimited),
            ("Busy.", "null", r#""overloaded_error""#, ErrorClass::RateLimited),
            ("No.", "400", r#""invalid_request_error""#, ErrorClass::Refused),
            ("No 503 of this.", "null", "null", ErrorClass::Refused),
        ] {
            let error = format!(r#"{{"message":"{message}","code":{code},"type":{kind}}}"#);
            let raw = serde_json::from_str(&error).expect("the error is JSON");
            let model_error = ModelError::from_stream_fault(crate::decode::fault_from_error(Some(raw)));
            let kind =
                if class == ErrorClass::ContextFull { FaultKind::ContextFull } else { FaultKind::Model };
            assert_eq!((model_error.class, model_error.fault.kind), (class, kind), "{error}");
        }
    }
}
