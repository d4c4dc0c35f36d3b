//! A context made shorter. What is folded is decided here, in two ways: [`Summary`] has a model sum the older messages up,
//! [`drop_oldest`] needs nobody. Who asks the model, keeps the record and goes on is left to the runtime.

mod drop_plan;
mod summary_plan;
#[cfg(test)]
mod tests;
mod transcript;

use std::sync::Arc;

use crate::{Message, Role, TokenCount};

pub use drop_plan::drop_oldest;
pub use summary_plan::{CompactionTrigger, SummaryPlan};

/// A user's message that begins with this stays in the context as it is when older ones are summed up or dropped.
pub const PINNED_PREFIX: &str = "[pinned]";

/// How a summary begins.
const SUMMARY_PREFIX: &str = "[Summary of the earlier conversation";

/// How a note begins that says what was dropped.
const DROP_NOTE_PREFIX: &str = "[Earlier messages were dropped";

/// What stays as it is beside the newest messages may be so much of the room of all messages.
const PINNED_PERCENT: TokenCount = 25;

/// A context that was made shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionRecord {
    /// The turn in which it happened.
    pub turn: Option<u64>,
    /// Who wanted it: `auto` is the agent itself.
    pub by: String,
    /// In which way.
    pub method: CompactionMethod,
    /// Messages there were.
    pub messages_before: usize,
    /// What they were counted as.
    pub tokens_before: TokenCount,
    /// What the messages are counted as now.
    pub tokens_after: TokenCount,
    /// What the context is made of now, in order.
    pub parts: Vec<CompactionPart>,
}

/// In which way a context was made shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionMethod {
    /// A model has summed the older messages up.
    Summary,
    /// Older outputs and messages were dropped, or cut.
    Dropped,
}

impl CompactionMethod {
    /// Both of them.
    pub const ALL: [CompactionMethod; 2] = [CompactionMethod::Summary, CompactionMethod::Dropped];

    /// The word clients know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CompactionMethod::Summary => "summary",
            CompactionMethod::Dropped => "dropped",
        }
    }
}

/// A part of a context that was made shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionPart {
    /// Messages from this place on, up to but without that one, as they were.
    Retained {
        /// The first.
        from: usize,
        /// Behind the last.
        to: usize,
    },
    /// A message in the place of others.
    Inserted(Box<Message>),
}

impl CompactionRecord {
    /// The messages there are afterwards.
    #[must_use]
    pub fn apply(&self, messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let mut folded = Vec::new();
        for part in &self.parts {
            match part {
                CompactionPart::Retained { from, to } => {
                    folded.extend(messages.iter().take(*to).skip(*from).cloned());
                }
                CompactionPart::Inserted(message) => folded.push(Arc::new(Message::clone(message))),
            }
        }
        folded
    }

    /// How many messages there are afterwards.
    #[must_use]
    pub fn messages_after(&self) -> usize {
        let of_part = |part: &CompactionPart| match part {
            CompactionPart::Retained { from, to } => to.saturating_sub(*from),
            CompactionPart::Inserted(_) => 1,
        };
        self.parts.iter().map(of_part).sum()
    }

    /// Tokens that are free again.
    #[must_use]
    pub fn reclaimed(&self) -> TokenCount {
        self.tokens_before.saturating_sub(self.tokens_after)
    }

    /// The text that took the place of others: the summary, or the note that says what was dropped.
    #[must_use]
    pub fn replacement_text(&self) -> Option<&str> {
        let text = |part: &'_ CompactionPart| match part {
            CompactionPart::Inserted(message) if is_compaction_note(message) => Some(()),
            CompactionPart::Inserted(_) | CompactionPart::Retained { .. } => None,
        };
        self.parts.iter().find(|part| text(part).is_some()).and_then(|part| match part {
            CompactionPart::Inserted(message) => Some(message.text.as_str()),
            CompactionPart::Retained { .. } => None,
        })
    }

    /// Whether the last of so many messages is still the last.
    pub(crate) fn retains_last(&self, messages: usize) -> bool {
        matches!(self.parts.last(), Some(CompactionPart::Retained { from, to }) if from < to && *to == messages)
    }
}

/// What a turn's content says of a fold.
#[must_use]
pub fn notice(reclaimed: TokenCount) -> String {
    format!("\n[Context compacted: {reclaimed} tokens reclaimed]\n\n")
}

/// Whether a message is a summary or a note of an earlier fold.
fn is_compaction_note(message: &Message) -> bool {
    let begins = |head| message.text.starts_with(head);
    message.role == Role::User && (begins(SUMMARY_PREFIX) || begins(DROP_NOTE_PREFIX))
}

fn is_summary(message: &Message) -> bool {
    message.role == Role::User && message.text.starts_with(SUMMARY_PREFIX)
}

/// How many messages of the conversation a message stands for: a summary or a note says so itself.
fn represented_messages(message: &Message) -> usize {
    let told = [SUMMARY_PREFIX, DROP_NOTE_PREFIX].iter().find_map(|head| message.text.strip_prefix(head));
    let number = told.filter(|_| is_compaction_note(message)).and_then(|told| {
        let from = told.find(|letter: char| letter.is_ascii_digit())?;
        let digits = &told[from..];
        let to = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
        digits[..to].parse::<u32>().ok()
    });
    number.map_or(1, |number| number as usize)
}

fn is_pinned(message: &Message) -> bool {
    message.role == Role::User && message.text.starts_with(PINNED_PREFIX)
}

/// Puts a message that stays into the list, together with its neighbour if that stays too.
fn push_retained(parts: &mut Vec<CompactionPart>, place: usize) {
    match parts.last_mut() {
        Some(CompactionPart::Retained { to, .. }) if *to == place => *to += 1,
        _ => parts.push(CompactionPart::Retained { from: place, to: place + 1 }),
    }
}
