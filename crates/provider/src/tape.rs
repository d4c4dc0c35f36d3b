//! Exchanges with models, kept in a file and served again: for tests of whole pipelines without a network. A line per
//! exchange, without times. What a pipeline does with the answers is left to it.

mod canonical;
mod record;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use canonical::{fnv1a_hex, fnv1a};
pub use record::RecordedModels;
pub use replay::ReplayedModels;

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
    found_by: Option<String>,
    /// Whether it was asked because nobody had named a model.
    #[serde(default)]
    is_usual: bool,
    window_tokens: u64,
    answer_tokens_max: Option<u64>,
    takes_images: bool,
    is_small: bool,
    /// Of the request, for people who look for one.
    digest: String,
    request: serde_json::Value,
    events: Vec<Told>,
    /// Nobody listened to the end, because the turn was cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
}

/// What a model said, or how it failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Text(String),
    Reasoning(String),
    Thoughts(String),
    ToolCall { id: String, name: String, arguments: String },
    Usage { input: u64, output: u64, cached: u64, cache_written: u64, reasoning: u64 },
    Stopped(String),
    Done,
    Failed { kind: String, text: String },
}
