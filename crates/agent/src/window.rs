//! The context an agent works in: its system prompt and messages, their size, and what of them a model is shown.

use std::sync::Arc;

use crate::tokens::{estimate, estimate_message};
use crate::{Ending, Message, Role, TokenCount};

/// What is kept free of a model's window for its answer.
const ANSWER_RESERVE: TokenCount = 2000;

/// A context. Appending costs the same however long it is.
#[derive(Debug, Clone, Default)]
pub struct Window {
    system: Option<Arc<str>>,
    system_tokens: TokenCount,
    /// Shared with the question that is under way; nobody has it any more when a message is added.
    messages: Arc<Vec<Arc<Message>>>,
    message_tokens: TokenCount,
    /// Messages that a model is shown differently.
    noted: usize,
}

/// A context's size in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// The system prompt.
    pub system: TokenCount,
    /// The messages.
    pub messages: TokenCount,
    /// Both, and the tools.
    pub total: TokenCount,
    /// What the model can take.
    pub budget: TokenCount,
    /// The budget less what is kept for the answer.
    pub available: TokenCount,
    /// What is still free.
    pub remaining: TokenCount,
}

impl Window {
    /// A context with no messages; an empty system prompt is none.
    #[must_use]
    pub fn new(system: Option<&str>) -> Self {
        let system = system.filter(|text| !text.is_empty());
        Self { system_tokens: system.map_or(0, estimate), system: system.map(Arc::from), ..Self::default() }
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

    /// Appends a message.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        let message = message.into();
        self.message_tokens += estimate_message(&message);
        self.noted += usize::from(note(&message).is_some());
        Arc::make_mut(&mut self.messages).push(message);
    }

    /// Keeps the first messages and forgets the rest.
    pub fn truncate(&mut self, messages: usize) {
        let forgotten = messages.min(self.messages.len())..;
        for message in Arc::make_mut(&mut self.messages).drain(forgotten) {
            self.message_tokens -= estimate_message(&message);
            self.noted -= usize::from(note(&message).is_some());
        }
    }

    /// Whether the context can end before the message at this place: no call before it waits for its result there.
    #[must_use]
    pub fn can_end_at(&self, place: usize) -> bool {
        let is_result = |message: &Arc<Message>| message.role == Role::Tool;
        let calls = |message: &Arc<Message>| !message.tool_calls.is_empty();
        let last = place.checked_sub(1).and_then(|last| self.messages.get(last));
        let is_cut = self.messages.get(place).is_some_and(is_result) || last.is_some_and(calls);
        place <= self.messages.len() && !is_cut
    }

    /// The size, for a model that can take `budget` tokens, with tools whose descriptions take `tools` of them.
    #[must_use]
    pub fn size(&self, budget: TokenCount, tools: TokenCount) -> WindowSize {
        let total = self.system_tokens + self.message_tokens + tools;
        let available = budget.saturating_sub(ANSWER_RESERVE);
        WindowSize {
            system: self.system_tokens,
            messages: self.message_tokens,
            total,
            budget,
            available,
            remaining: available.saturating_sub(total),
        }
    }

    /// The messages as a model is shown them: an answer that broke off before its first word gets a word in its
    /// place, because models refuse an empty one.
    #[must_use]
    pub fn shown(&self) -> Arc<Vec<Arc<Message>>> {
        match self.noted {
            0 => Arc::clone(&self.messages),
            _ => Arc::new(self.messages.iter().map(show).collect()),
        }
    }
}

/// What stands in the place of a message that has no words.
fn note(message: &Message) -> Option<&'static str> {
    let note = match message.ending? {
        Ending::Cancelled => "[cancelled]",
        Ending::Failed | Ending::Denied => "[failed]",
        Ending::Interrupted => "[interrupted]",
    };
    (message.role == Role::Assistant && message.text.is_empty()).then_some(note)
}

fn show(message: &Arc<Message>) -> Arc<Message> {
    match note(message) {
        None => Arc::clone(message),
        Some(note) => Arc::new(Message { text: note.to_owned(), ..Message::clone(message) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn size_adds_up_and_never_goes_below_zero() {
        let mut window = Window::new(Some("12345678"));
        window.push(Message::user("abcd", Source::default()));
        let size = window.size(8000, 0);
        assert_eq!((size.system, size.messages, size.total), (2, 5, 7));
        assert_eq!((size.available, size.remaining), (6000, 5993));
        assert_eq!(window.size(1000, 0).remaining, 0);
    }

    #[test]
    fn an_empty_prompt_is_no_prompt() {
        assert!(Window::new(Some("")).system().is_none());
        assert_eq!(Window::new(None).size(8000, 0).total, 0);
    }

    #[test]
    fn a_model_is_never_shown_an_empty_answer() {
        let mut window = Window::new(None);
        window.push(Message::user("one", Source::default()));
        window.push(Message::broken_off("", Ending::Cancelled));
        window.push(Message::user("two", Source::default()));
        window.push(Message::broken_off("half", Ending::Failed));
        let texts: Vec<_> = window.shown().iter().map(|message| message.text.clone()).collect();
        assert_eq!(texts, ["one", "[cancelled]", "two", "half"]);
        assert_eq!(window.messages()[1].text, "", "what is kept stays as it was");
    }

    fn talked() -> Window {
        let call = |id: &str| crate::ToolCall { id: id.to_owned(), name: "x".into(), arguments: "{}".into() };
        let result = |id: &str| Message::result(id, &crate::ToolOutcome::Done("done".to_owned()));
        let mut window = Window::new(Some("12345678"));
        window.push(Message::user("one", Source::default()));
        window.push(Message::assistant("", vec![call("a"), call("b")]));
        window.push(result("a"));
        window.push(result("b"));
        window.push(Message::assistant("so", Vec::new()));
        window.push(Message::user("two", Source::default()));
        window
    }

    #[test]
    fn what_is_cut_off_is_no_longer_counted() {
        let whole = talked();
        for place in 0..=whole.messages().len() + 1 {
            let mut cut = whole.clone();
            cut.truncate(place);
            let mut fresh = Window::new(Some("12345678"));
            whole.messages().iter().take(place).for_each(|message| fresh.push(Arc::clone(message)));
            assert_eq!(cut.messages(), fresh.messages());
            assert_eq!(cut.size(8000, 0), fresh.size(8000, 0), "at {place}");
        }
    }

    #[test]
    fn a_context_ends_anywhere_but_between_a_call_and_its_results() {
        let window = talked();
        let ends: Vec<_> = (0..=7).filter(|place| window.can_end_at(*place)).collect();
        assert_eq!(ends, [0, 1, 4, 5, 6], "not behind the last message either");
        let empty = Window::new(None);
        assert!(empty.can_end_at(0) && !empty.can_end_at(1));
    }
}
