//! Context compaction. This module decides what is replaced, in two ways: [`SummaryPlan`] has a model summarize the
//! older messages, [`drop_oldest`] needs no model. The runtime calls the model, commits the record and continues the
//! turn.

mod drop_plan;
mod summary_plan;
#[cfg(test)]
mod tests;
mod transcript;

use std::sync::Arc;

use crate::{Message, PrincipalId, Role, TokenCount};

pub use drop_plan::drop_oldest;
pub use summary_plan::{CompactionTrigger, SummaryPlan};

/// The prefix of a user message that compaction retains unchanged.
pub const PINNED_PREFIX: &str = "[pinned]";

/// The prefix of a summary.
const SUMMARY_PREFIX: &str = "[Summary of the earlier conversation";

/// The prefix of the note that replaces dropped messages.
const DROP_NOTE_PREFIX: &str = "[Earlier messages were dropped";

/// The share of the message capacity that retained older messages may take: pinned ones and the newest user message.
const PINNED_PERCENT: TokenCount = 25;

/// The record of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionRecord {
    /// The turn during which it ran.
    pub turn: Option<u64>,
    /// The initiator; `auto` is the agent itself.
    pub by: PrincipalId,
    /// The method.
    pub method: CompactionMethod,
    /// Number of messages before.
    pub messages_before: usize,
    /// Their token count.
    pub tokens_before: TokenCount,
    /// Token count of the messages after.
    pub tokens_after: TokenCount,
    /// The parts of the compacted context, in order.
    pub parts: Vec<CompactionPart>,
}

/// The method of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionMethod {
    /// A model summarized the older messages.
    Summary,
    /// Older tool outputs and messages were dropped or truncated.
    Dropped,
}

impl CompactionMethod {
    /// All methods.
    pub const ALL: [CompactionMethod; 2] = [CompactionMethod::Summary, CompactionMethod::Dropped];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CompactionMethod::Summary => "summary",
            CompactionMethod::Dropped => "dropped",
        }
    }
}

/// A part of a compacted context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionPart {
    /// A range of retained messages.
    Retained {
        /// The index of the first message.
        from: usize,
        /// The index after the last message.
        to: usize,
    },
    /// A message that replaces others.
    Inserted(Box<Message>),
}

impl CompactionRecord {
    /// Applies the compaction to the messages.
    #[must_use]
    pub fn apply(&self, messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let mut compacted = Vec::new();
        for part in &self.parts {
            match part {
                CompactionPart::Retained { from, to } => {
                    compacted.extend(messages.iter().take(*to).skip(*from).cloned());
                }
                CompactionPart::Inserted(message) => compacted.push(Arc::new(Message::clone(message))),
            }
        }
        compacted
    }

    /// Number of messages after the compaction.
    #[must_use]
    pub fn messages_after(&self) -> usize {
        let part_length = |part: &CompactionPart| match part {
            CompactionPart::Retained { from, to } => to.saturating_sub(*from),
            CompactionPart::Inserted(_) => 1,
        };
        self.parts.iter().map(part_length).sum()
    }

    /// Number of tokens reclaimed.
    #[must_use]
    pub fn reclaimed(&self) -> TokenCount {
        self.tokens_before.saturating_sub(self.tokens_after)
    }

    /// The text that replaced older messages: the summary or the drop note.
    #[must_use]
    pub fn replacement_text(&self) -> Option<&str> {
        let note = |part: &'_ CompactionPart| match part {
            CompactionPart::Inserted(message) if is_compaction_note(message) => Some(()),
            CompactionPart::Inserted(_) | CompactionPart::Retained { .. } => None,
        };
        self.parts.iter().find(|part| note(part).is_some()).and_then(|part| match part {
            CompactionPart::Inserted(message) => Some(message.text.as_str()),
            CompactionPart::Retained { .. } => None,
        })
    }

    /// Whether the last of `messages` messages is retained as the last one.
    pub(crate) fn retains_last(&self, messages: usize) -> bool {
        matches!(self.parts.last(), Some(CompactionPart::Retained { from, to }) if from < to && *to == messages)
    }
}

/// The notice of a compaction in a turn's content.
#[must_use]
pub fn notice(reclaimed: TokenCount) -> String {
    format!("\n[Context compacted: {reclaimed} tokens reclaimed]\n\n")
}

/// Whether a message is the summary or drop note of an earlier compaction.
fn is_compaction_note(message: &Message) -> bool {
    let starts_with = |prefix| message.text.starts_with(prefix);
    message.role == Role::User && (starts_with(SUMMARY_PREFIX) || starts_with(DROP_NOTE_PREFIX))
}

fn is_summary(message: &Message) -> bool {
    message.role == Role::User && message.text.starts_with(SUMMARY_PREFIX)
}

/// How many messages of the conversation a message represents: summaries and drop notes contain their number.
fn represented_messages(message: &Message) -> usize {
    let rest = [SUMMARY_PREFIX, DROP_NOTE_PREFIX].iter().find_map(|prefix| message.text.strip_prefix(prefix));
    let number = rest.filter(|_| is_compaction_note(message)).and_then(|rest| {
        let from = rest.find(|character: char| character.is_ascii_digit())?;
        let digits = &rest[from..];
        let to = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
        digits[..to].parse::<u32>().ok()
    });
    number.map_or(1, |number| number as usize)
}

fn is_pinned(message: &Message) -> bool {
    message.role == Role::User && message.text.starts_with(PINNED_PREFIX)
}

/// Appends a retained message to the parts, extending the last range if it is adjacent.
fn push_retained(parts: &mut Vec<CompactionPart>, index: usize) {
    match parts.last_mut() {
        Some(CompactionPart::Retained { to, .. }) if *to == index => *to += 1,
        _ => parts.push(CompactionPart::Retained { from: index, to: index + 1 }),
    }
}
