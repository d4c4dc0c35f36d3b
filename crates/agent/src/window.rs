//! An agent's context: system prompt and messages, their token counts, and the messages as sent to a model.

use std::sync::Arc;

use crate::compaction::CompactionPart;
use crate::tokens::{CountedMessage, Counting, TokenCalibration};
use crate::{Ending, Message, Role, TokenCount};

/// Maximum number of tokens reserved for the response; the reserve is a quarter of the model's window if that is less.
const RESPONSE_RESERVE_TOKENS_MAX: TokenCount = 2000;

/// The fill level of the message capacity above which the context is compacted before the next model call.
const COMPACTION_PERCENT: TokenCount = 90;

/// A context. Appending takes constant time.
#[derive(Debug, Clone, Default)]
pub struct Window {
    system: Option<Arc<str>>,
    system_tokens: TokenCount,
    /// Shared with the model request in flight; unshared again by the time a message is added.
    messages: Arc<Vec<Arc<Message>>>,
    /// The token count of each message.
    tokens: Vec<TokenCount>,
    message_tokens: TokenCount,
    /// The messages as sent to the model, once one of them needs a placeholder. Identical in each request, so that
    /// encoders can reuse what they encoded before.
    request_messages: Option<Arc<Vec<Arc<Message>>>>,
    history_version: HistoryVersion,
}

/// The identity of a message history. Equal versions mean that one history extends the other by appending, so a reader
/// can reuse its work on the shorter one. Removing or changing a message creates a new version.
#[derive(Debug, Clone, Default)]
pub struct HistoryVersion(Arc<()>);

impl PartialEq for HistoryVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HistoryVersion {}

/// The model's window and everything that a request contains beside the messages and the system prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FixedOverhead {
    /// The model's context window; zero if unknown.
    pub budget: TokenCount,
    /// Tokens of the tool specifications.
    pub tools: TokenCount,
    /// Tokens of the volatile suffix.
    pub volatile_suffix: TokenCount,
    /// The calibration of token estimates for the model.
    pub calibration: TokenCalibration,
}

/// A context's size in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Tokens of the system prompt.
    pub system: TokenCount,
    /// Tokens of the tool specifications.
    pub tools: TokenCount,
    /// Tokens of the volatile suffix.
    pub volatile_suffix: TokenCount,
    /// Tokens of the messages.
    pub messages: TokenCount,
    /// The sum of these, in calibrated tokens.
    pub total: TokenCount,
    /// The model's context window.
    pub budget: TokenCount,
    /// The window without the reserve for the response.
    pub available: TokenCount,
    /// Tokens still available.
    pub remaining: TokenCount,
}

impl WindowSize {
    /// Whether the context is due for compaction. A window of unknown size is never full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.budget > 0 && self.messages > self.message_capacity() * COMPACTION_PERCENT / 100
    }

    /// The capacity for messages: what the system prompt, tools and suffix leave of `available`, but at least half of
    /// the response reserve. Zero if the window is unknown.
    #[must_use]
    pub fn message_capacity(&self) -> TokenCount {
        let left = self.available.saturating_sub(self.system + self.tools + self.volatile_suffix);
        left.max((self.budget - self.available) / 2)
    }
}

impl Window {
    /// A context without messages; an empty system prompt counts as none.
    #[must_use]
    pub fn new(system: Option<&str>, count: Counting<'_>) -> Self {
        let system = system.filter(|text| !text.is_empty());
        Self { system_tokens: system.map_or(0, count), system: system.map(Arc::from), ..Self::default() }
    }

    /// The system prompt.
    #[must_use]
    pub fn system(&self) -> Option<&Arc<str>> {
        self.system.as_ref()
    }

    /// All messages, oldest first.
    #[must_use]
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// The token count of each message.
    pub(crate) fn tokens(&self) -> &[TokenCount] {
        &self.tokens
    }

    /// The token count of all messages.
    #[must_use]
    pub fn message_tokens(&self) -> TokenCount {
        self.message_tokens
    }

    /// Appends a message.
    pub fn push(&mut self, counted: CountedMessage) {
        let CountedMessage { message, tokens } = counted;
        self.message_tokens += tokens;
        self.tokens.push(tokens);
        let placeholder = with_placeholder(&message);
        if placeholder.is_some() && self.request_messages.is_none() {
            self.request_messages = Some(Arc::clone(&self.messages));
        }
        if let Some(request_messages) = &mut self.request_messages {
            Arc::make_mut(request_messages).push(placeholder.unwrap_or_else(|| Arc::clone(&message)));
        }
        Arc::make_mut(&mut self.messages).push(message);
    }

    /// Truncates the context to its first `messages` messages.
    pub fn truncate(&mut self, messages: usize) {
        let removed = messages.min(self.messages.len())..;
        self.history_version = HistoryVersion::default();
        Arc::make_mut(&mut self.messages).truncate(removed.start);
        if let Some(request_messages) = &mut self.request_messages {
            Arc::make_mut(request_messages).truncate(removed.start);
        }
        self.message_tokens -= self.tokens.drain(removed).sum::<TokenCount>();
    }

    /// The compacted context. Retained messages are not counted again.
    #[must_use]
    pub fn compacted(&self, parts: &[CompactionPart], count: Counting<'_>) -> Self {
        let system = (self.system.clone(), self.system_tokens);
        let mut window = Self { system: system.0, system_tokens: system.1, ..Self::default() };
        for part in parts {
            match part {
                CompactionPart::Retained { from, to } => {
                    let to = (*to).min(self.messages.len());
                    for index in *from..to {
                        let message = Arc::clone(&self.messages[index]);
                        window.push(CountedMessage { message, tokens: self.tokens[index] });
                    }
                }
                CompactionPart::Inserted(message) => {
                    window.push(CountedMessage::new(Message::clone(message), count));
                }
            }
        }
        window
    }

    /// Whether the context can be split before the message at this index: not between a tool call and its results.
    #[must_use]
    pub fn can_split_at(&self, index: usize) -> bool {
        let is_result = |message: &Arc<Message>| message.role == Role::Tool;
        let calls = |message: &Arc<Message>| !message.tool_calls.is_empty();
        let last = index.checked_sub(1).and_then(|last| self.messages.get(last));
        let splits_call = self.messages.get(index).is_some_and(is_result) || last.is_some_and(calls);
        index <= self.messages.len() && !splits_call
    }

    /// The token counts of the context with this overhead.
    #[must_use]
    pub fn size(&self, overhead: &FixedOverhead) -> WindowSize {
        let FixedOverhead { budget, tools, volatile_suffix: suffix, calibration } = *overhead;
        let [system, tools, suffix, messages] = [self.system_tokens, tools, suffix, self.message_tokens]
            .map(|counted| calibration.to_model_tokens(counted));
        // A sum of rounded parts, so that the reported parts add up.
        let total = system + tools + suffix + messages;
        let available = budget - (budget / 4).min(RESPONSE_RESERVE_TOKENS_MAX);
        WindowSize {
            system,
            tools,
            volatile_suffix: suffix,
            messages,
            total,
            budget,
            available,
            remaining: available.saturating_sub(total),
        }
    }

    /// The version of the message history, both stored and as sent.
    #[must_use]
    pub fn history_version(&self) -> &HistoryVersion {
        &self.history_version
    }

    /// The messages as sent to the model: an aborted response without text gets a placeholder, because model APIs
    /// reject empty messages.
    #[must_use]
    pub fn request_messages(&self) -> Arc<Vec<Arc<Message>>> {
        Arc::clone(self.request_messages.as_ref().unwrap_or(&self.messages))
    }
}

/// The placeholder of an aborted assistant message without text.
fn placeholder_text(message: &Message) -> Option<&'static str> {
    let text = match message.ending? {
        Ending::Cancelled => "[cancelled]",
        Ending::Failed | Ending::Denied => "[failed]",
        Ending::Interrupted => "[interrupted]",
    };
    (message.role == Role::Assistant && message.text.is_empty()).then_some(text)
}

fn with_placeholder(message: &Message) -> Option<Arc<Message>> {
    placeholder_text(message).map(|text| Arc::new(Message { text: text.to_owned(), ..message.clone() }))
}

#[cfg(test)]
mod tests;
