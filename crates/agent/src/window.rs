//! The context an agent works in: its system prompt and messages, their size, and what of them a model is shown.

use std::sync::Arc;

use crate::compaction::CompactionPart;
use crate::tokens::{CountedMessage, Counting, TokenCalibration};
use crate::{Ending, Message, Role, TokenCount};

/// What is kept free of a model's window for its answer: a quarter, and not more than this.
const RESPONSE_RESERVE_TOKENS_MAX: TokenCount = 2000;

/// A context whose messages fill so much of their room is folded before the model is asked.
const COMPACTION_PERCENT: TokenCount = 90;

/// A context. Appending costs the same however long it is.
#[derive(Debug, Clone, Default)]
pub struct Window {
    system: Option<Arc<str>>,
    system_tokens: TokenCount,
    /// Shared with the question that is under way; nobody has it any more when a message is added.
    messages: Arc<Vec<Arc<Message>>>,
    /// What each message was counted as.
    tokens: Vec<TokenCount>,
    message_tokens: TokenCount,
    /// The messages as a model is shown them, once one of them is shown differently. The same each time, so that what was
    /// written of them stays good.
    request_messages: Option<Arc<Vec<Arc<Message>>>>,
    history_version: HistoryVersion,
}

/// What lists of messages have in common when the longer one came of the shorter by appending: whoever has worked
/// through one need not look at it again. A list that lost or changed a message has another.
#[derive(Debug, Clone, Default)]
pub struct HistoryVersion(Arc<()>);

impl PartialEq for HistoryVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HistoryVersion {}

/// What a context is held against: the model's window, and what is sent beside the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FixedOverhead {
    /// What the model can take; zero is not known.
    pub budget: TokenCount,
    /// The descriptions of the tools.
    pub tools: TokenCount,
    /// What is added anew to each request.
    pub volatile_suffix: TokenCount,
    /// How the model counts.
    pub calibration: TokenCalibration,
}

/// A context's size in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// The system prompt.
    pub system: TokenCount,
    /// The descriptions of the tools.
    pub tools: TokenCount,
    /// What is added anew to each request.
    pub volatile_suffix: TokenCount,
    /// The messages.
    pub messages: TokenCount,
    /// All of these, corrected by what the model has reported.
    pub total: TokenCount,
    /// What the model can take.
    pub budget: TokenCount,
    /// The budget less what is kept for the answer.
    pub available: TokenCount,
    /// What is still free.
    pub remaining: TokenCount,
}

impl WindowSize {
    /// Whether it is time to fold. A window of unknown size is never full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.budget > 0 && self.messages > self.message_capacity() * COMPACTION_PERCENT / 100
    }

    /// What messages may have: what prompt, tools and tail leave of what is available, and where that is less, half of
    /// what is kept for the answer. Zero is not known.
    #[must_use]
    pub fn message_capacity(&self) -> TokenCount {
        let left = self.available.saturating_sub(self.system + self.tools + self.volatile_suffix);
        left.max((self.budget - self.available) / 2)
    }
}

impl Window {
    /// A context with no messages; an empty system prompt is none.
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

    /// What each message was counted as.
    pub(crate) fn tokens(&self) -> &[TokenCount] {
        &self.tokens
    }

    /// What all messages were counted as.
    #[must_use]
    pub fn message_tokens(&self) -> TokenCount {
        self.message_tokens
    }

    /// Appends a message.
    pub fn push(&mut self, counted: CountedMessage) {
        let CountedMessage { message, tokens } = counted;
        self.message_tokens += tokens;
        self.tokens.push(tokens);
        let noted = with_placeholder(&message);
        if noted.is_some() && self.request_messages.is_none() {
            self.request_messages = Some(Arc::clone(&self.messages));
        }
        if let Some(shown) = &mut self.request_messages {
            Arc::make_mut(shown).push(noted.unwrap_or_else(|| Arc::clone(&message)));
        }
        Arc::make_mut(&mut self.messages).push(message);
    }

    /// Keeps the first messages and forgets the rest.
    pub fn truncate(&mut self, messages: usize) {
        let forgotten = messages.min(self.messages.len())..;
        self.history_version = HistoryVersion::default();
        Arc::make_mut(&mut self.messages).truncate(forgotten.start);
        if let Some(shown) = &mut self.request_messages {
            Arc::make_mut(shown).truncate(forgotten.start);
        }
        self.message_tokens -= self.tokens.drain(forgotten).sum::<TokenCount>();
    }

    /// The context made of these parts: what stays is not counted again.
    #[must_use]
    pub fn compacted(&self, parts: &[CompactionPart], count: Counting<'_>) -> Self {
        let system = (self.system.clone(), self.system_tokens);
        let mut window = Self { system: system.0, system_tokens: system.1, ..Self::default() };
        for part in parts {
            match part {
                CompactionPart::Retained { from, to } => {
                    let to = (*to).min(self.messages.len());
                    for place in *from..to {
                        let message = Arc::clone(&self.messages[place]);
                        window.push(CountedMessage { message, tokens: self.tokens[place] });
                    }
                }
                CompactionPart::Inserted(message) => {
                    window.push(CountedMessage::new(Message::clone(message), count))
                }
            }
        }
        window
    }

    /// Whether the context can end before the message at this place: no call before it waits for its result there.
    #[must_use]
    pub fn can_split_at(&self, place: usize) -> bool {
        let is_result = |message: &Arc<Message>| message.role == Role::Tool;
        let calls = |message: &Arc<Message>| !message.tool_calls.is_empty();
        let last = place.checked_sub(1).and_then(|last| self.messages.get(last));
        let is_cut = self.messages.get(place).is_some_and(is_result) || last.is_some_and(calls);
        place <= self.messages.len() && !is_cut
    }

    /// The size within this frame.
    #[must_use]
    pub fn size(&self, frame: &FixedOverhead) -> WindowSize {
        let FixedOverhead { budget, tools, volatile_suffix: dynamic, calibration: gauge } = *frame;
        let [system, tools, dynamic, messages] = [self.system_tokens, tools, dynamic, self.message_tokens]
            .map(|counted| gauge.to_model_tokens(counted));
        // The parts add up.
        let total = system + tools + dynamic + messages;
        let available = budget - (budget / 4).min(RESPONSE_RESERVE_TOKENS_MAX);
        WindowSize {
            system,
            tools,
            volatile_suffix: dynamic,
            messages,
            total,
            budget,
            available,
            remaining: available.saturating_sub(total),
        }
    }

    /// The lineage of the messages, as they are and as a model is shown them.
    #[must_use]
    pub fn history_version(&self) -> &HistoryVersion {
        &self.history_version
    }

    /// The messages as a model is shown them: an answer that broke off before its first word gets a word in its
    /// place, because models refuse an empty one.
    #[must_use]
    pub fn request_messages(&self) -> Arc<Vec<Arc<Message>>> {
        Arc::clone(self.request_messages.as_ref().unwrap_or(&self.messages))
    }
}

/// What stands in the place of a message that has no words.
fn placeholder_text(message: &Message) -> Option<&'static str> {
    let note = match message.ending? {
        Ending::Cancelled => "[cancelled]",
        Ending::Failed | Ending::Denied => "[failed]",
        Ending::Interrupted => "[interrupted]",
    };
    (message.role == Role::Assistant && message.text.is_empty()).then_some(note)
}

fn with_placeholder(message: &Message) -> Option<Arc<Message>> {
    placeholder_text(message).map(|note| Arc::new(Message { text: note.to_owned(), ..message.clone() }))
}

#[cfg(test)]
mod tests;
