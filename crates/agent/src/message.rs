//! Messages of a context: role, text, images, tool calls, source and ending.

use std::borrow::Cow;

use crate::{Image, RequestId, ToolOutcome};

/// The role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The user: a person, a program or another agent.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl Role {
    /// The role's name in model APIs and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A tool call of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id, assigned by the model.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments: JSON text, as the model produced it.
    pub arguments: String,
}

/// The source of a user message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageSource {
    /// The kind of source, such as `rpc`.
    pub kind: Option<String>,
    /// The sending agent as the caller named it: like a request id, a text or a number.
    pub agent: Option<RequestId>,
}

/// How the turn or tool call of a message ended, if it did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was cancelled.
    Cancelled,
    /// The model or the tool failed.
    Failed,
    /// The permission for the tool call was denied.
    Denied,
    /// The daemon stopped meanwhile.
    Interrupted,
}

/// The bytes whose digest identifies the content of a request, for idempotency: the text, plus the images if any.
#[must_use]
pub fn content_digest_input<'a>(text: &'a str, images: &[Image]) -> Cow<'a, [u8]> {
    if images.is_empty() {
        return Cow::Borrowed(text.as_bytes());
    }
    // Length prefixes make the encoding unambiguous; no UTF-8 text starts with 0xff.
    let mut bytes = vec![0xff];
    let parts = images.iter().flat_map(|image| [image.media_type.as_bytes(), &image.data]);
    for part in std::iter::once(text.as_bytes()).chain(parts) {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part);
    }
    Cow::Owned(bytes)
}

/// One message of the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The role.
    pub role: Role,
    /// The text.
    pub text: String,
    /// The images of a user message.
    pub images: Vec<Image>,
    /// The tool calls of an assistant message.
    pub tool_calls: Vec<ToolCall>,
    /// The reasoning before these calls in the format of the provider's API, which expects it back with them.
    pub reasoning_block: Option<String>,
    /// The id of the call that a tool message is the result of.
    pub tool_call_id: Option<String>,
    /// The source of a user message.
    pub source: MessageSource,
    /// Set on an assistant message whose turn did not complete, and on the result of a tool call that did not succeed.
    pub ending: Option<Ending>,
}

impl Message {
    /// A user message.
    #[must_use]
    pub fn user(text: impl Into<String>, source: MessageSource) -> Self {
        Self { source, ..Self::with_role(Role::User, text.into()) }
    }

    /// An assistant message.
    #[must_use]
    pub fn assistant(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..Self::with_role(Role::Assistant, text.into()) }
    }

    /// An assistant message of a turn that did not complete; the text is partial.
    #[must_use]
    pub fn aborted(text: impl Into<String>, ending: Ending) -> Self {
        Self { ending: Some(ending), ..Self::with_role(Role::Assistant, text.into()) }
    }

    /// The result of a tool call.
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
