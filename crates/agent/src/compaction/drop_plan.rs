//! Compaction without a model; deterministic. Drops the oldest tool outputs first, then the oldest message groups, and
//! finally truncates the longest remaining messages.

use std::collections::BTreeMap;

use super::{
    CompactionPart, DROP_NOTE_PREFIX, PINNED_PERCENT, is_compaction_note, is_pinned, is_summary,
    push_retained, represented_messages,
};
use crate::tokens::{CountedMessage, Counting};
use crate::truncate::{omission_note, truncate_middle};
use crate::{Image, Message, MessageSource, Role, TokenCount, Window};

/// Shorter outputs are retained: their note would be no shorter.
const OUTPUT_TOKENS_MIN: TokenCount = 32;

/// The minimum size of a truncated message.
const TRUNCATED_TOKENS_MIN: TokenCount = 48;

/// Longer arguments of tool calls are omitted as a last resort.
const ARGUMENT_TOKENS_MAX: TokenCount = 128;

/// The parts of a context of at most `tokens_max` tokens, as far as it can be shortened. None if nothing would get
/// shorter.
#[must_use]
pub fn drop_oldest(
    window: &Window,
    tokens_max: TokenCount,
    count: Counting<'_>,
) -> Option<Vec<CompactionPart>> {
    let mut plan = DropPlan::new(window, tokens_max, count);
    plan.drop_outputs();
    plan.drop_groups();
    plan.truncate_longest();
    plan.into_parts()
}

struct DropPlan<'a> {
    window: &'a Window,
    count: Counting<'a>,
    tokens_max: TokenCount,
    tokens: TokenCount,
    /// The index where the newest group begins.
    newest_group: usize,
    /// The replacement of a message: another message, or none if it is dropped.
    replacements: BTreeMap<usize, Option<CountedMessage>>,
}

impl<'a> DropPlan<'a> {
    fn new(window: &'a Window, tokens_max: TokenCount, count: Counting<'a>) -> Self {
        let total = window.messages().len();
        let newest = (0..total).rev().find(|index| window.can_split_at(*index)).unwrap_or_default();
        let tokens = window.message_tokens();
        Self { window, count, tokens_max, tokens, newest_group: newest, replacements: BTreeMap::new() }
    }

    fn fits(&self) -> bool {
        self.tokens <= self.tokens_max
    }

    fn replace(&mut self, index: usize, message: Option<Message>) {
        let before = match self.replacements.get(&index) {
            Some(replacement) => replacement.as_ref().map_or(0, |counted| counted.tokens),
            None => self.window.tokens()[index],
        };
        let counted = message.map(|message| CountedMessage::new(message, self.count));
        self.tokens = self.tokens - before + counted.as_ref().map_or(0, |counted| counted.tokens);
        self.replacements.insert(index, counted);
    }

    fn drop_outputs(&mut self) {
        for index in 0..self.newest_group {
            if self.fits() {
                return;
            }
            let (message, tokens) = (&self.window.messages()[index], self.window.tokens()[index]);
            if message.role == Role::Tool && tokens > OUTPUT_TOKENS_MIN {
                let text = format!("[output dropped to make room: {tokens} tokens]");
                let shortened = Message { text, ..Message::clone(message) };
                self.replace(index, Some(shortened));
            }
        }
    }

    fn drop_groups(&mut self) {
        if self.fits() || self.newest_group == 0 {
            return;
        }
        let note = Message::user(drop_note(self.window.messages().len()), MessageSource::default());
        self.tokens += CountedMessage::new(note, self.count).tokens;
        let retained = self.protected();
        let mut from = 0;
        while from < self.newest_group && !self.fits() {
            let to = (from + 1..=self.newest_group).find(|index| self.window.can_split_at(*index));
            let to = to.unwrap_or(self.newest_group);
            (from..to).filter(|index| !retained.contains(index)).for_each(|index| self.replace(index, None));
            from = to;
        }
    }

    /// The messages that are retained when their group is dropped: the newest user message, the last summary, and as
    /// many pinned messages as fit.
    fn protected(&self) -> Vec<usize> {
        let messages = self.window.messages();
        let newest =
            |is: &dyn Fn(&Message) -> bool| (0..self.newest_group).rev().find(|index| is(&messages[*index]));
        let is_user_message = |message: &Message| message.role == Role::User && !is_compaction_note(message);
        let is_in_newest_group = messages[self.newest_group..].iter().any(|message| is_user_message(message));
        let user_message = newest(&is_user_message).filter(|_| !is_in_newest_group);
        let summary = newest(&is_summary);
        let pinned = (0..self.newest_group).rev().filter(|index| is_pinned(&messages[*index]));
        let candidates = user_message.into_iter().chain(summary).chain(pinned);
        let mut left = (self.tokens_max * PINNED_PERCENT / 100).max(TRUNCATED_TOKENS_MIN);
        let mut retained = Vec::new();
        for index in candidates {
            let tokens = self.window.tokens()[index];
            // User message and summary are retained in any case: they can still be truncated.
            let is_needed = Some(index) == user_message || Some(index) == summary;
            if (tokens <= left || is_needed) && !retained.contains(&index) {
                left = left.saturating_sub(tokens);
                retained.push(index);
            }
        }
        retained
    }

    /// Truncates the longest messages first, each by as much as is still too much.
    fn truncate_longest(&mut self) {
        let mut remaining: Vec<_> = (0..self.window.messages().len())
            .filter(|index| !matches!(self.replacements.get(index), Some(None)))
            .map(|index| (self.tokens_at(index), index))
            .collect();
        remaining.sort_unstable_by(|a, b| b.cmp(a));
        for (tokens, index) in remaining {
            if self.fits() {
                return;
            }
            let wanted = tokens.saturating_sub(self.tokens - self.tokens_max).max(TRUNCATED_TOKENS_MIN);
            if wanted < tokens {
                let message = self.message_at(index).clone();
                self.replace(index, Some(shorten(message, wanted, self.count)));
            }
        }
    }

    fn tokens_at(&self, index: usize) -> TokenCount {
        match self.replacements.get(&index) {
            Some(replacement) => replacement.as_ref().map_or(0, |counted| counted.tokens),
            None => self.window.tokens()[index],
        }
    }

    fn message_at(&self, index: usize) -> &Message {
        match self.replacements.get(&index) {
            Some(Some(counted)) => &counted.message,
            Some(None) | None => &self.window.messages()[index],
        }
    }

    fn into_parts(self) -> Option<Vec<CompactionPart>> {
        let is_dropped =
            |(index, replacement): (&usize, &Option<CountedMessage>)| replacement.is_none().then_some(*index);
        let dropped_indices = self.replacements.iter().filter_map(is_dropped);
        let dropped: usize =
            dropped_indices.map(|index| represented_messages(&self.window.messages()[index])).sum();
        let mut parts = Vec::new();
        if dropped > 0 {
            parts.push(CompactionPart::Inserted(Box::new(Message::user(
                drop_note(dropped),
                MessageSource::default(),
            ))));
        }
        for index in 0..self.window.messages().len() {
            match self.replacements.get(&index) {
                None => push_retained(&mut parts, index),
                Some(Some(counted)) => {
                    parts.push(CompactionPart::Inserted(Box::new(Message::clone(&counted.message))));
                }
                Some(None) => {}
            }
        }
        (self.tokens < self.window.message_tokens()).then_some(parts)
    }
}

fn drop_note(dropped: usize) -> String {
    format!("{DROP_NOTE_PREFIX} to make room: {dropped}. Ask the user or look again for what you miss.]")
}

/// Shortens a message: omits images first, then the middle of the text, then tool call arguments.
fn shorten(mut message: Message, tokens_max: TokenCount, count: Counting<'_>) -> Message {
    if !message.images.is_empty() {
        message.text.push_str(&format!("\n[{} left out]", Image::count_label(message.images.len())));
        message.images.clear();
    }
    let overhead = CountedMessage::new(Message { text: String::new(), ..message.clone() }, count).tokens;
    let text_max = tokens_max.saturating_sub(overhead).max(TRUNCATED_TOKENS_MIN / 2);
    message.text = truncate_middle(&message.text, text_max, count, &|_, bytes| omission_note(bytes));
    if CountedMessage::new(message.clone(), count).tokens > tokens_max {
        for call in &mut message.tool_calls {
            if count(&call.arguments) > ARGUMENT_TOKENS_MAX {
                // Model APIs require valid JSON here.
                call.arguments = format!("{{\"left_out_bytes\":{}}}", call.arguments.len());
            }
        }
    }
    message
}
