//! Tool specifications for models, and the outcomes of tool calls.

use std::sync::Arc;

use crate::TokenCount;

/// The specification of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// Its name, such as `fs.read_file`.
    pub name: Arc<str>,
    /// Its name for model APIs that allow no dots, such as `fs_read_file`.
    pub model_name: Arc<str>,
    /// Its aliases.
    pub aliases: Vec<Arc<str>>,
    /// The description that models see.
    pub description: Arc<str>,
    /// The JSON Schema of its arguments, as text.
    pub input_schema: Arc<str>,
    /// Whether models see it without being named in a list of tools. A permitted tool can be called either way.
    pub is_offered_by_default: bool,
    /// The program that every call runs, if it is always the same one. Agents that may not run it do not see the tool.
    pub program: Option<Arc<str>>,
    /// How its calls run concurrently with others.
    pub concurrency: Concurrency,
    /// Whether a call may be repeated after a crash.
    pub class: ToolClass,
    /// The timeout of a call, in milliseconds.
    pub time_ms_max: u64,
    /// Number of tokens that its specification adds to each request.
    pub tokens: TokenCount,
    /// The same tool for a small model, with a shorter description and schema, if there is one.
    pub brief: Option<Arc<ToolSpec>>,
}

impl ToolSpec {
    /// All names that find the tool: its name, its model name, its aliases.
    pub fn lookup_names(&self) -> impl Iterator<Item = &Arc<str>> {
        [&self.name, &self.model_name].into_iter().chain(&self.aliases)
    }
}

/// How a tool call runs relative to the other calls of one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// Concurrently with others.
    Parallel,
    /// Exclusively, in the order of the calls.
    Ordered,
    /// Concurrently, and it waits for other agents: its turn yields its admission permit to theirs meanwhile.
    Waiting,
}

/// Whether a call whose outcome is unknown, because the daemon crashed, may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolClass {
    /// It may be repeated.
    Pure,
    /// It may be repeated with the same idempotency key.
    Keyed,
    /// It may not be repeated.
    Once,
}

/// The outcome of a tool call. Always reported to the model, never a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutcome {
    /// The call succeeded; its result.
    Done(String),
    /// The call failed; the error message.
    Failed(String),
    /// The permission was denied; the reason.
    Denied(String),
}

impl ToolOutcome {
    /// The text for the model.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            ToolOutcome::Done(text) | ToolOutcome::Failed(text) | ToolOutcome::Denied(text) => text,
        }
    }

    /// The same outcome with another text.
    #[must_use]
    pub fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            ToolOutcome::Done(text) => ToolOutcome::Done(change(text)),
            ToolOutcome::Failed(text) => ToolOutcome::Failed(change(text)),
            ToolOutcome::Denied(text) => ToolOutcome::Denied(change(text)),
        }
    }

    /// The name of the variant, for events and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            ToolOutcome::Done(_) => "done",
            ToolOutcome::Failed(_) => "failed",
            ToolOutcome::Denied(_) => "denied",
        }
    }
}
