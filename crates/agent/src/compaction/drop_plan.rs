//! Makes a context shorter without a model: the same context always becomes the same. Oldest outputs of tools go first,
//! then the oldest groups, and at last what is left is cut in its middle.

use std::collections::BTreeMap;

use super::{
    CompactionPart, DROP_NOTE_PREFIX, PINNED_PERCENT, is_compaction_note, is_pinned, is_summary,
    push_retained, represented_messages,
};
use crate::tokens::{CountedMessage, Counting};
use crate::truncate::{omission_note, truncate_middle};
use crate::{Image, Message, MessageSource, Role, TokenCount, Window};

/// Outputs shorter than this stay: their note would be no shorter.
const OUTPUT_TOKENS_MIN: TokenCount = 32;

/// No message is cut to less.
const TRUNCATED_TOKENS_MIN: TokenCount = 48;

/// Arguments of a call longer than this are left out when there is no other way.
const ARGUMENT_TOKENS_MAX: TokenCount = 128;

/// What a context of at most so many tokens is made of; what cannot be shortened any more stays, and none is when
/// nothing would be shorter.
#[must_use]
pub fn drop_oldest(
    window: &Window,
    tokens_max: TokenCount,
    count: Counting<'_>,
) -> Option<Vec<CompactionPart>> {
    let mut dropping = DropPlan::new(window, tokens_max, count);
    dropping.drop_outputs();
    dropping.drop_groups();
    dropping.truncate_longest();
    dropping.into_parts()
}

struct DropPlan<'a> {
    window: &'a Window,
    count: Counting<'a>,
    tokens_max: TokenCount,
    tokens: TokenCount,
    /// Where the newest group begins.
    newest_group: usize,
    /// What takes a message's place: another, or nothing.
    replacements: BTreeMap<usize, Option<CountedMessage>>,
}

impl<'a> DropPlan<'a> {
    fn new(window: &'a Window, tokens_max: TokenCount, count: Counting<'a>) -> Self {
        let total = window.messages().len();
        let newest = (0..total).rev().find(|place| window.can_split_at(*place)).unwrap_or_default();
        let tokens = window.message_tokens();
        Self { window, count, tokens_max, tokens, newest_group: newest, replacements: BTreeMap::new() }
    }

    fn fits(&self) -> bool {
        self.tokens <= self.tokens_max
    }

    fn replace(&mut self, place: usize, message: Option<Message>) {
        let before = match self.replacements.get(&place) {
            Some(changed) => changed.as_ref().map_or(0, |counted| counted.tokens),
            None => self.window.tokens()[place],
        };
        let counted = message.map(|message| CountedMessage::new(message, self.count));
        self.tokens = self.tokens - before + counted.as_ref().map_or(0, |counted| counted.tokens);
        self.replacements.insert(place, counted);
    }

    fn drop_outputs(&mut self) {
        for place in 0..self.newest_group {
            if self.fits() {
                return;
            }
            let (message, tokens) = (&self.window.messages()[place], self.window.tokens()[place]);
            if message.role == Role::Tool && tokens > OUTPUT_TOKENS_MIN {
                let text = format!("[output dropped to make room: {tokens} tokens]");
                let short = Message { text, ..Message::clone(message) };
                self.replace(place, Some(short));
            }
        }
    }

    fn drop_groups(&mut self) {
        if self.fits() || self.newest_group == 0 {
            return;
        }
        let note = Message::user(drop_note(self.window.messages().len()), MessageSource::default());
        self.tokens += CountedMessage::new(note, self.count).tokens;
        let staying = self.protected();
        let mut from = 0;
        while from < self.newest_group && !self.fits() {
            let to = (from + 1..=self.newest_group).find(|place| self.window.can_split_at(*place));
            let to = to.unwrap_or(self.newest_group);
            (from..to).filter(|place| !staying.contains(place)).for_each(|place| self.replace(place, None));
            from = to;
        }
    }

    /// What is not dropped with its neighbours: the user's newest words, the last summary, and as far as there is room
    /// what is pinned.
    fn protected(&self) -> Vec<usize> {
        let messages = self.window.messages();
        let newest =
            |is: &dyn Fn(&Message) -> bool| (0..self.newest_group).rev().find(|place| is(&messages[*place]));
        let is_question = |message: &Message| message.role == Role::User && !is_compaction_note(message);
        let asked_now = messages[self.newest_group..].iter().any(|message| is_question(message));
        let question = newest(&is_question).filter(|_| !asked_now);
        let summary = newest(&is_summary);
        let pinned = (0..self.newest_group).rev().filter(|place| is_pinned(&messages[*place]));
        let wanted = question.into_iter().chain(summary).chain(pinned);
        let mut left = (self.tokens_max * PINNED_PERCENT / 100).max(TRUNCATED_TOKENS_MIN);
        let mut staying = Vec::new();
        for place in wanted {
            let tokens = self.window.tokens()[place];
            // Question and summary stay in any case: they can still be cut.
            let is_needed = Some(place) == question || Some(place) == summary;
            if (tokens <= left || is_needed) && !staying.contains(&place) {
                left = left.saturating_sub(tokens);
                staying.push(place);
            }
        }
        staying
    }

    /// The longest first, each by as much as is too much.
    fn truncate_longest(&mut self) {
        let mut left: Vec<_> = (0..self.window.messages().len())
            .filter(|place| !matches!(self.replacements.get(place), Some(None)))
            .map(|place| (self.tokens_at(place), place))
            .collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        for (tokens, place) in left {
            if self.fits() {
                return;
            }
            let wanted = tokens.saturating_sub(self.tokens - self.tokens_max).max(TRUNCATED_TOKENS_MIN);
            if wanted < tokens {
                let message = self.message_at(place).clone();
                self.replace(place, Some(shorten(message, wanted, self.count)));
            }
        }
    }

    fn tokens_at(&self, place: usize) -> TokenCount {
        match self.replacements.get(&place) {
            Some(changed) => changed.as_ref().map_or(0, |counted| counted.tokens),
            None => self.window.tokens()[place],
        }
    }

    fn message_at(&self, place: usize) -> &Message {
        match self.replacements.get(&place) {
            Some(Some(counted)) => &counted.message,
            Some(None) | None => &self.window.messages()[place],
        }
    }

    fn into_parts(self) -> Option<Vec<CompactionPart>> {
        let is_dropped =
            |(place, changed): (&usize, &Option<CountedMessage>)| changed.is_none().then_some(*place);
        let places = self.replacements.iter().filter_map(is_dropped);
        let dropped: usize = places.map(|place| represented_messages(&self.window.messages()[place])).sum();
        let mut parts = Vec::new();
        if dropped > 0 {
            parts.push(CompactionPart::Inserted(Box::new(Message::user(
                drop_note(dropped),
                MessageSource::default(),
            ))));
        }
        for place in 0..self.window.messages().len() {
            match self.replacements.get(&place) {
                None => push_retained(&mut parts, place),
                Some(Some(counted)) => {
                    parts.push(CompactionPart::Inserted(Box::new(Message::clone(&counted.message))))
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

/// Pictures go first, then the middle of the text, then arguments of calls.
fn shorten(mut message: Message, tokens_max: TokenCount, count: Counting<'_>) -> Message {
    if !message.images.is_empty() {
        message.text.push_str(&format!("\n[{} left out]", Image::count_label(message.images.len())));
        message.images.clear();
    }
    let others = CountedMessage::new(Message { text: String::new(), ..message.clone() }, count).tokens;
    let text_max = tokens_max.saturating_sub(others).max(TRUNCATED_TOKENS_MIN / 2);
    message.text = truncate_middle(&message.text, text_max, count, &|_, bytes| omission_note(bytes));
    if CountedMessage::new(message.clone(), count).tokens > tokens_max {
        for call in &mut message.tool_calls {
            if count(&call.arguments) > ARGUMENT_TOKENS_MAX {
                // Models want JSON here.
                call.arguments = format!("{{\"left_out_bytes\":{}}}", call.arguments.len());
            }
        }
    }
    message
}
