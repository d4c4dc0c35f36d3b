//! How much text is, in tokens: an estimate before a model has seen it, and what models report afterwards.

use std::sync::Arc;

use crate::Message;

/// A number of tokens, or of things counted beside them.
pub type TokenCount = u64;

/// What a message costs beyond its text: role and separators.
const MESSAGE_OVERHEAD: TokenCount = 4;

/// About how many tokens a text is for a model whose tokenizer is not known: a quarter for a letter of ASCII, half for one
/// of other alphabets, one for a sign of Chinese, Japanese or Korean. A text that is there at all costs at least one.
#[must_use]
pub fn estimate_tokens(text: &str) -> TokenCount {
    let quarters: TokenCount = text.bytes().map(quarter_tokens).sum();
    (quarters / 4).max(TokenCount::from(!text.is_empty()))
}

/// What a letter counts, in quarters of a token, by its first byte; the bytes behind that count nothing.
fn quarter_tokens(byte: u8) -> TokenCount {
    match byte {
        0..=0x7f => 1,
        0x80..=0xbf => 0,
        // Up to U+2FFF.
        0xc0..=0xe2 => 2,
        0xe3..=0xff => 4,
    }
}

/// Says how many tokens a text is, for one model.
pub type Counting<'a> = &'a (dyn Fn(&str) -> TokenCount + 'a);

/// About what a picture costs the models that take them.
const IMAGE_TOKENS: TokenCount = 1000;

fn count_message(message: &Message, count: Counting<'_>) -> TokenCount {
    let calls = message.tool_calls.iter().map(|call| count(&call.name) + count(&call.arguments));
    let images = message.images.len() as TokenCount * IMAGE_TOKENS;
    let thoughts = message.reasoning_block.as_deref().map_or(0, count);
    MESSAGE_OVERHEAD + count(&message.text) + calls.sum::<TokenCount>() + thoughts + images
}

/// A message that was counted: once, before it comes into a context.
#[derive(Debug, Clone)]
pub struct CountedMessage {
    pub(crate) message: Arc<Message>,
    pub(crate) tokens: TokenCount,
}

impl CountedMessage {
    /// Counts a message.
    #[must_use]
    pub fn new(message: impl Into<Arc<Message>>, count: Counting<'_>) -> Self {
        let message = message.into();
        Self { tokens: count_message(&message, count), message }
    }
}

/// How far a model's counts are from ours, in thousandths: learned from what it reports, and kept with the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCalibration {
    permille: Option<u64>,
}

impl TokenCalibration {
    /// Requests below this say more about a model's template than about its tokenizer.
    const SAMPLE_TOKENS_MIN: TokenCount = 256;
    /// No tokenizer is so much thriftier than ours: a server that reports less has cut the question short.
    const PERMILLE_MIN: u64 = 800;
    const PERMILLE_MAX: u64 = 4000;

    /// A gauge as it was kept; one that cannot be is none.
    #[must_use]
    pub fn from_permille(permille: Option<u64>) -> Self {
        Self { permille: permille.filter(|known| (Self::PERMILLE_MIN..=Self::PERMILLE_MAX).contains(known)) }
    }

    /// The thousandths, when something was learned.
    #[must_use]
    pub fn permille(self) -> Option<u64> {
        self.permille
    }

    /// A model has reported so many tokens for what was counted as so many. The first report counts whole, later ones
    /// a quarter; no report moves the gauge beyond its bounds.
    pub fn observe(&mut self, counted: TokenCount, reported: TokenCount) {
        if counted < Self::SAMPLE_TOKENS_MIN || reported == 0 {
            return;
        }
        let heard = (reported.saturating_mul(1000) / counted).clamp(Self::PERMILLE_MIN, Self::PERMILLE_MAX);
        self.permille = Some(self.permille.map_or(heard, |known| (known * 3 + heard) / 4));
    }

    /// What the model would say to so many of our tokens.
    #[must_use]
    pub fn to_model_tokens(self, counted: TokenCount) -> TokenCount {
        counted.saturating_mul(self.permille.unwrap_or(1000)) / 1000
    }

    /// How many of our tokens are so many of the model's.
    #[must_use]
    pub fn to_counted_tokens(self, tokens: TokenCount) -> TokenCount {
        tokens.saturating_mul(1000) / self.permille.unwrap_or(1000)
    }
}

/// Tokens as a model reported them for one or more requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read, cached ones among them.
    pub input: TokenCount,
    /// Tokens written, those of its reasoning among them.
    pub output: TokenCount,
    /// Tokens read from the model's cache.
    pub cached: TokenCount,
    /// Tokens read and written to the model's cache, where that has a price.
    pub cache_written: TokenCount,
    /// Tokens it thought before it answered.
    pub reasoning: TokenCount,
}

impl Usage {
    /// The sum of two reports; a report beyond 64 bits stays at the top instead of wrapping.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
            cache_written: self.cache_written.saturating_add(other.cache_written),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

/// An amount of money: billionths of a dollar.
pub type NanoDollars = u64;

/// What a model costs: millionths of a dollar for a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prices {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from its cache.
    pub cached: u64,
    /// Tokens written to its cache.
    pub cache_written: u64,
}

impl Prices {
    /// What a report costs; an absurd one stays at the top instead of wrapping.
    #[must_use]
    pub fn cost(&self, usage: Usage) -> NanoDollars {
        let special = usage.cached.saturating_add(usage.cache_written);
        let plain = usage.input.saturating_sub(special);
        let parts = [
            (plain, self.input),
            (usage.output, self.output),
            (usage.cached, self.cached),
            (usage.cache_written, self.cache_written),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        NanoDollars::try_from(sum / 1000).unwrap_or(NanoDollars::MAX)
    }
}

/// What an agent's models have reported over its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Reports so far.
    pub requests: u64,
    /// Their sum.
    pub usage: Usage,
    /// What they cost, as far as prices are known.
    pub cost: NanoDollars,
}

impl UsageTotals {
    /// Adds one report, by a model of these prices.
    pub fn add(&mut self, usage: Usage, prices: Option<&Prices>) {
        self.requests += 1;
        self.usage = self.usage.plus(usage);
        self.cost = self.cost.saturating_add(prices.map_or(0, |prices| prices.cost(usage)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    #[test]
    fn text_is_counted_by_its_letters_whatever_their_alphabet() {
        for (text, tokens) in [
            ("", 0),
            ("a", 1),
            ("abcd", 1),
            ("abcdefgh", 2),
            ("ääääääää", 4),
            ("Привет", 3),
            ("上下文永远不会溢出", 9),
            ("コンテキスト", 6),
            ("대화의 맥락", 5),
            ("🦀🦀", 2),
        ] {
            assert_eq!(estimate_tokens(text), tokens, "{text:?}");
        }
    }

    #[test]
    fn a_message_counts_its_calls_too() {
        let call = ToolCall { id: "1".into(), name: "echo".into(), arguments: "{\"a\": 12}".into() };
        assert_eq!(
            CountedMessage::new(Message::assistant("", vec![call]), &estimate_tokens).tokens,
            4 + 1 + 2
        );
    }

    #[test]
    fn a_gauge_follows_reports_within_bounds() {
        let mut gauge = TokenCalibration::default();
        assert_eq!(gauge.to_model_tokens(1000), 1000);
        gauge.observe(100, 500);
        assert_eq!(gauge.to_model_tokens(1000), 1000, "a small request teaches nothing");
        gauge.observe(1000, 1200);
        assert_eq!((gauge.to_model_tokens(1000), gauge.to_counted_tokens(1200)), (1200, 1000));
        gauge.observe(1000, 800);
        assert_eq!(gauge.to_model_tokens(1000), 1100);
        (0..50).for_each(|_| gauge.observe(1000, u64::MAX));
        assert!(
            (3990..=4000).contains(&gauge.to_model_tokens(1000)),
            "an absurd report moves it to the bound"
        );
        (0..50).for_each(|_| gauge.observe(1000, 1));
        assert!(
            (800..=810).contains(&gauge.to_model_tokens(1000)),
            "nor does one of a question that was cut short"
        );
    }

    #[test]
    fn an_absurd_report_does_not_wrap() {
        let huge = Usage { input: u64::MAX, output: 1, ..Usage::default() };
        assert_eq!(huge.plus(huge).input, u64::MAX);
        let dear = Prices { input: u64::MAX, ..Prices::default() };
        assert_eq!(dear.cost(huge), NanoDollars::MAX);
    }

    #[test]
    fn cached_tokens_have_their_own_price() {
        // Three dollars for a million tokens read, a tenth of it from the cache, fifteen for those written.
        let prices =
            Prices { input: 3_000_000, output: 15_000_000, cached: 300_000, cache_written: 3_750_000 };
        let usage = Usage { input: 1000, output: 100, cached: 600, cache_written: 300, reasoning: 50 };
        assert_eq!(prices.cost(usage), (100 * 3000) + (100 * 15_000) + (600 * 300) + (300 * 3750));
    }
}
