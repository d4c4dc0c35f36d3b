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
    messages: Vec<Arc<Message>>,
    message_tokens: TokenCount,
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
    pub fn push(&mut self, message: Message) {
        self.message_tokens += estimate_message(&message);
        self.messages.push(Arc::new(message));
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
    pub fn shown(&self) -> Vec<Arc<Message>> {
        self.messages.iter().map(show).collect()
    }
}

fn show(message: &Arc<Message>) -> Arc<Message> {
    let note = match message.ending {
        Some(Ending::Cancelled) => "[cancelled]",
        Some(Ending::Failed | Ending::Denied) => "[failed]",
        None => return Arc::clone(message),
    };
    if message.role != Role::Assistant || !message.text.is_empty() {
        return Arc::clone(message);
    }
    Arc::new(Message { text: note.to_owned(), ..Message::clone(message) })
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
}
