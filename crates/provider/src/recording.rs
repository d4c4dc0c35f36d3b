//! Exchanges with models, kept in a file and served again: for tests of whole pipelines without a network. A line per
//! exchange, without times. What a pipeline does with the answers is left to it.

mod canonical;
mod recorder;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use canonical::{fnv1a, fnv1a_hex};
pub use recorder::RecordingModels;
pub use replay::ReplayModels;

use serde::{Deserialize, Serialize};

/// One exchange, as a line of the file holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Exchange {
    /// The agent that asked; empty when it was none.
    agent: String,
    /// The model's name; empty when none was chosen.
    model: String,
    /// The name that it was found by, where that is another one, such as a provider's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "found_by")]
    requested_name: Option<String>,
    /// Whether it was asked because nobody had named a model.
    #[serde(default)]
    #[serde(rename = "is_usual")]
    is_default: bool,
    window_tokens: u64,
    answer_tokens_max: Option<u64>,
    takes_images: bool,
    is_small: bool,
    /// Of the request, for people who look for one.
    digest: String,
    request: serde_json::Value,
    events: Vec<RecordedEvent>,
    /// Nobody listened to the end, because the turn was cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "is_cut")]
    is_cancelled: bool,
}

/// What a model said, or how it failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedEvent {
    Text(String),
    Reasoning(String),
    Thoughts(String),
    ToolCall { id: String, name: String, arguments: String },
    Usage { input: u64, output: u64, cached: u64, cache_written: u64, reasoning: u64 },
    Stopped(String),
    Done,
    Failed { kind: String, text: String },
}
