//! What stands in a context: messages, the tool calls in them, where they came from and how they ended.

use std::borrow::Cow;

use crate::{Image, RequestId, ToolOutcome};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Whoever drives the agent.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl Role {
    /// The word models and clients know.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A tool call as a model made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id, as the model gave it.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, as the model wrote them.
    pub arguments: String,
}

/// Where a user's message came from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageSource {
    /// The kind of place, such as `rpc`.
    pub kind: Option<String>,
    /// The agent that sent it.
    pub agent: Option<RequestId>,
}

/// How the answer or the call a message belongs to ended, when it did not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Somebody cancelled it.
    Cancelled,
    /// The model failed, or the tool did.
    Failed,
    /// The tool was not allowed to run.
    Denied,
    /// The daemon stopped in the middle.
    Interrupted,
}

/// The bytes by which a send is known again: those of its text, and of its pictures if it has any.
#[must_use]
pub fn content_digest_input<'a>(text: &'a str, images: &[Image]) -> Cow<'a, [u8]> {
    if images.is_empty() {
        return Cow::Borrowed(text.as_bytes());
    }
    // With its length before each part, no two contents are the same bytes; no text begins with this one.
    let mut bytes = vec![0xff];
    let parts = images.iter().flat_map(|image| [image.media_type.as_bytes(), &image.data]);
    for part in std::iter::once(text.as_bytes()).chain(parts) {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part);
    }
    Cow::Owned(bytes)
}

/// One message of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text.
    pub text: String,
    /// The pictures that a user's message shows.
    pub images: Vec<Image>,
    /// The calls an assistant's message makes.
    pub tool_calls: Vec<ToolCall>,
    /// What the model thought before it made these calls, in the words of its API, which wants it back with them.
    pub reasoning_block: Option<String>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// Where a user's message came from.
    pub source: MessageSource,
    /// Set on an assistant's message whose turn ended badly, and on a tool's that did not do what it should.
    pub ending: Option<Ending>,
}

impl Message {
    /// A message of whoever drives the agent.
    #[must_use]
    pub fn user(text: impl Into<String>, source: MessageSource) -> Self {
        Self { source, ..Self::with_role(Role::User, text.into()) }
    }

    /// A message of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..Self::with_role(Role::Assistant, text.into()) }
    }

    /// A message of the model whose turn ended badly; the text is what it had said.
    #[must_use]
    pub fn aborted(text: impl Into<String>, ending: Ending) -> Self {
        Self { ending: Some(ending), ..Self::with_role(Role::Assistant, text.into()) }
    }

    /// What came of a call.
    #[must_use]
    pub fn tool_result(call_id: impl Into<String>, outcome: &ToolOutcome) -> Self {
        let ending = match outcome {
            ToolOutcome::Done(_) => None,
            ToolOutcome::Failed(_) => Some(Ending::Failed),
            ToolOutcome::Denied(_) => Some(Ending::Denied),
        };
        let text = outcome.text().to_owned();
        Self { tool_call_id: Some(call_id.into()), ending, ..Self::with_role(Role::Tool, text) }
    }

    fn with_role(role: Role, text: String) -> Self {
        Self {
            role,
            text,
            images: Vec::new(),
            tool_calls: Vec::new(),
            reasoning_block: None,
            tool_call_id: None,
            source: MessageSource::default(),
            ending: None,
        }
    }
}
