//! Recording and replay of model exchanges, for tests of whole pipelines without a network. The file has one JSON line
//! per exchange, without timing.

mod canonical;
mod recorder;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use canonical::{fnv1a, fnv1a_hex};
pub use recorder::RecordingModels;
pub use replay::ReplayModels;

use serde::{Deserialize, Serialize};

/// One request and its response, as one line of the recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Exchange {
    /// Requesting agent; empty if there is none.
    agent: String,
    /// Model name; empty if there is none.
    model: String,
    /// Name that the model was looked up by, if it differs, such as a bare provider name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "found_by")]
    requested_name: Option<String>,
    /// Whether the default model was used.
    #[serde(default)]
    #[serde(rename = "is_usual")]
    is_default: bool,
    window_tokens: u64,
    answer_tokens_max: Option<u64>,
    #[serde(rename = "takes_images")]
    accepts_images: bool,
    is_small: bool,
    /// Hash of the request, for finding it by hand.
    digest: String,
    request: serde_json::Value,
    events: Vec<RecordedEvent>,
    /// Whether the stream was dropped before its end, because the turn was cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "is_cut")]
    is_cancelled: bool,
}

/// One event of a recorded response, or its fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedEvent {
    Text(String),
    Reasoning(String),
    #[serde(rename = "thoughts")]
    ReasoningBlock(String),
    ToolCall {
        id: String,
        name: String,
        arguments: String,
    },
    Usage {
        input: u64,
        output: u64,
        cached: u64,
        cache_written: u64,
        reasoning: u64,
    },
    Stopped(String),
    Done,
    Failed {
        kind: String,
        text: String,
    },
}
