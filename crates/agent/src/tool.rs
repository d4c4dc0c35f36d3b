//! What a tool is to an agent: a description for the model, and outcomes that the model reads.

use std::sync::Arc;

use crate::TokenCount;

/// A tool's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// Its name, such as `fs.read_file`.
    pub name: Arc<str>,
    /// Its name for models that allow no dots, such as `fs_read_file`.
    pub model_name: Arc<str>,
    /// Other names it is known by.
    pub aliases: &'static [&'static str],
    /// What it does, for the model.
    pub description: Arc<str>,
    /// The JSON Schema of its arguments, as text.
    pub input_schema: Arc<str>,
    /// How it runs beside others.
    pub concurrency: Concurrency,
    /// What a crash while it runs means.
    pub class: ToolClass,
    /// How long it may run.
    pub time_ms_max: u64,
    /// What its description costs in each request.
    pub tokens: TokenCount,
}

/// How a tool runs beside the other calls of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// Beside others.
    Parallel,
    /// Alone, in the order of the calls.
    Ordered,
    /// Beside others, and it waits for other agents: its turn gives way to theirs meanwhile.
    Waiting,
}

/// What it means when nobody knows whether a call ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolClass {
    /// It may run again.
    Pure,
    /// It may run again with the same key.
    Keyed,
    /// It may not run again.
    Once,
}

/// What came of a call. Always shown to the model, never a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutcome {
    /// It did what it should.
    Done(String),
    /// It did not.
    Failed(String),
    /// It was not allowed to.
    Denied(String),
}

impl ToolOutcome {
    /// The text the model reads.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            ToolOutcome::Done(text) | ToolOutcome::Failed(text) | ToolOutcome::Denied(text) => text,
        }
    }

    /// The same outcome in one word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            ToolOutcome::Done(_) => "done",
            ToolOutcome::Failed(_) => "failed",
            ToolOutcome::Denied(_) => "denied",
        }
    }
}
