//! Why a question came to nothing, sorted by what can be done about it: ask again, ask another model, ask for less, or
//! nothing at all.

use std::time::Duration;

use agent::{Fault, FaultKind};

/// A question that came to nothing before its answer began.
#[derive(Debug)]
pub(crate) struct ModelError {
    pub(crate) fault: Fault,
    pub(crate) class: ErrorClass,
    /// When the server wants to be asked again.
    pub(crate) retry_after: Option<Duration>,
    /// What the fault says before and after the number of tries, where it says that.
    attempts_text: Option<(&'static str, String)>,
}

/// What kind of failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The server cannot be reached, does not answer, or says that it is broken.
    Unavailable,
    /// The server has too much to do, or we have asked too often.
    RateLimited,
    /// The server will not talk to us: the key, the rights, the address.
    Refused,
    /// The question itself is wrong; nobody would take it.
    Invalid,
    /// The question is longer than the model takes.
    ContextFull,
    /// We did not ask at all: too many wait, or the provider is resting.
    NotSent,
}

impl ErrorClass {
    /// Whether the same question may pass a little later.
    pub(crate) fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::RateLimited)
    }

    /// Whether another model may answer what this one did not.
    pub(crate) fn allows_fallback(self) -> bool {
        !matches!(self, Self::Invalid | Self::ContextFull)
    }
}

impl ModelError {
    pub(crate) fn new(class: ErrorClass, fault: Fault) -> Self {
        Self { fault, class, retry_after: None, attempts_text: None }
    }

    /// A server that did not answer: the fault says how often it was asked.
    pub(crate) fn unavailable(what: &'static str, why: String) -> Self {
        let fault = Fault::new(FaultKind::Model, format!("{what} after 1 attempts: {why}"));
        Self { attempts_text: Some((what, why)), ..Self::new(ErrorClass::Unavailable, fault) }
    }

    /// The same, after so many tries.
    pub(crate) fn with_attempts(mut self, tries: u32) -> Self {
        if let Some((what, why)) = &self.attempts_text {
            self.fault.public = format!("{what} after {tries} attempts: {why}").into();
        }
        self
    }

    /// The same, with its fault as it may leave.
    pub(crate) fn map_fault(mut self, guard: impl FnOnce(Fault) -> Fault) -> Self {
        self.fault = guard(self.fault);
        self
    }

    pub(crate) fn caused_by(mut self, cause: String) -> Self {
        self.fault.cause = Some(cause);
        self
    }

    /// A server's refusal, with as much of its body as is passed on.
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

    /// An error that stood in the stream in place of an answer.
    pub(crate) fn from_stream_fault(fault: Fault) -> Self {
        let fault = reclassify(fault);
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
        // A redirect is an address that is not the server's.
        300..=399 => ErrorClass::Refused,
        _ => ErrorClass::Invalid,
    }
}

/// By the words, and by a code that is a status. What would be the same a little later is another model's to answer.
fn class_from_fault(fault: &Fault) -> ErrorClass {
    let told = full_text(fault);
    if contains_any(&told, OVERLOADED_PHRASES) {
        return ErrorClass::RateLimited;
    }
    if contains_any(&told, SERVER_ERROR_PHRASES) {
        return ErrorClass::Unavailable;
    }
    let code =
        fault.cause.as_deref().and_then(|cause| cause.split([' ', '"']).find_map(|word| word.parse().ok()));
    code.map(class_from_status).filter(|class| class.is_retryable()).unwrap_or(ErrorClass::Refused)
}

/// The same fault, with its kind set right when it says that the question was too long.
pub(crate) fn reclassify(fault: Fault) -> Fault {
    if fault.kind == FaultKind::Model && contains_any(&full_text(&fault), CONTEXT_FULL_PHRASES) {
        return Fault { kind: FaultKind::ContextFull, ..fault };
    }
    fault
}

/// All that a server has told: its text, and the code and the type in the cause.
fn full_text(fault: &Fault) -> String {
    format!("{} {}", fault.public, fault.cause.as_deref().unwrap_or_default())
}

/// What servers say when a question is longer than the model takes: OpenAI and those like it, Anthropic, llama.cpp,
/// Ollama, vLLM, LM Studio, Mistral, Gemini.
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

/// What servers say that have too much to do, or were asked too often.
const OVERLOADED_PHRASES: &[&str] = &["overloaded", "rate limit", "rate_limit", "try again", "temporarily"];

/// What servers say that are broken: OpenAI and those like it, Anthropic.
const SERVER_ERROR_PHRASES: &[&str] = &["server_error", "api_error", "timeout_error"];

fn contains_any(text: &str, any_of: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    any_of.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_servers_words_for_a_full_context_are_known() {
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
            let failing = ModelError::from_status(status, body, None);
            assert_eq!(
                (failing.class, failing.fault.kind),
                (ErrorClass::ContextFull, FaultKind::ContextFull),
                "{body}"
            );
        }
        let plain = ModelError::from_status(400, r#"{"error":{"message":"unknown field"}}"#, None);
        assert_eq!((plain.class, plain.fault.kind), (ErrorClass::Invalid, FaultKind::Model));
    }

    #[test]
    fn a_status_says_what_can_be_done() {
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
    fn an_error_in_the_stream_is_told_by_its_code_and_its_type_too() {
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
            let failing = ModelError::from_stream_fault(crate::decode::fault_from_error(Some(raw)));
            let kind =
                if class == ErrorClass::ContextFull { FaultKind::ContextFull } else { FaultKind::Model };
            assert_eq!((failing.class, failing.fault.kind), (class, kind), "{error}");
        }
    }
}
