//! How much text is, in tokens: an estimate before a model has seen it, and what models report afterwards.

use crate::Message;

/// A number of tokens, or of things counted beside them.
pub type TokenCount = u64;

/// What a message costs beyond its text: role and separators.
const MESSAGE_OVERHEAD: TokenCount = 4;

/// Four characters are about one token; a text that is there at all costs at least one.
pub(crate) fn estimate(text: &str) -> TokenCount {
    match text.chars().count() as TokenCount {
        0 => 0,
        characters => (characters / 4).max(1),
    }
}

pub(crate) fn estimate_message(message: &Message) -> TokenCount {
    let calls = message.tool_calls.iter().map(|call| estimate(&call.name) + estimate(&call.arguments));
    MESSAGE_OVERHEAD + estimate(&message.text) + calls.sum::<TokenCount>()
}

/// Tokens as a model reported them for one or more requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read, cached ones among them.
    pub input: TokenCount,
    /// Tokens written.
    pub output: TokenCount,
    /// Tokens read from the model's cache.
    pub cached: TokenCount,
}

impl Usage {
    /// The sum of two reports; a report beyond 64 bits stays at the top instead of wrapping.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
        }
    }
}

/// What an agent's models have reported over its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Reports so far.
    pub requests: u64,
    /// Their sum.
    pub usage: Usage,
}

impl Used {
    /// Adds one report.
    pub fn add(&mut self, usage: Usage) {
        self.requests += 1;
        self.usage = self.usage.plus(usage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    #[test]
    fn text_is_counted_in_characters_not_bytes() {
        for (text, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcdefgh", 2), ("ääääääää", 2)] {
            assert_eq!(estimate(text), tokens, "{text:?}");
        }
    }

    #[test]
    fn a_message_counts_its_calls_too() {
        let call = ToolCall { id: "1".into(), name: "echo".into(), arguments: "{\"a\": 12}".into() };
        assert_eq!(estimate_message(&Message::assistant("", vec![call])), 4 + 1 + 2);
    }

    #[test]
    fn an_absurd_report_does_not_wrap() {
        let huge = Usage { input: u64::MAX, output: 1, cached: 0 };
        assert_eq!(huge.plus(huge).input, u64::MAX);
    }
}
