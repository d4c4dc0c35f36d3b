//! Token counts: estimates before a model call, calibration by the usage that models report, and costs.

use std::sync::Arc;

use crate::Message;

/// A number of tokens.
pub type TokenCount = u64;

/// Tokens of a message beyond its text: role and separators.
const MESSAGE_OVERHEAD: TokenCount = 4;

/// Estimates the tokens of a text for a model with an unknown tokenizer: a quarter for an ASCII character, half for one
/// of other alphabets, one for a Chinese, Japanese or Korean character. A nonempty text counts as at least one.
#[must_use]
pub fn estimate_tokens(text: &str) -> TokenCount {
    let quarters: TokenCount = text.bytes().map(quarter_tokens).sum();
    (quarters / 4).max(TokenCount::from(!text.is_empty()))
}

/// The weight of a character in quarters of a token, by its first UTF-8 byte; continuation bytes count zero.
fn quarter_tokens(byte: u8) -> TokenCount {
    match byte {
        0..=0x7f => 1,
        0x80..=0xbf => 0,
        // Up to U+2FFF.
        0xc0..=0xe2 => 2,
        0xe3..=0xff => 4,
    }
}

/// A token counter for one model.
pub type Counting<'a> = &'a (dyn Fn(&str) -> TokenCount + 'a);

/// Estimated tokens of an image.
const IMAGE_TOKENS: TokenCount = 1000;

fn count_message(message: &Message, count: Counting<'_>) -> TokenCount {
    let calls = message.tool_calls.iter().map(|call| count(&call.name) + count(&call.arguments));
    let images = message.images.len() as TokenCount * IMAGE_TOKENS;
    let reasoning = message.reasoning_block.as_deref().map_or(0, count);
    MESSAGE_OVERHEAD + count(&message.text) + calls.sum::<TokenCount>() + reasoning + images
}

/// A message with its token count, which is computed once, before the message joins a context.
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

/// The ratio of a model's token counts to our estimates, in permille: learned from reported usage, and persisted with
/// the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCalibration {
    permille: Option<u64>,
}

impl TokenCalibration {
    /// Smaller requests measure the model's chat template rather than its tokenizer.
    const SAMPLE_TOKENS_MIN: TokenCount = 256;
    /// No tokenizer is this much more compact than the estimate: a server that reports less has truncated the prompt.
    const PERMILLE_MIN: u64 = 800;
    const PERMILLE_MAX: u64 = 4000;

    /// A stored calibration; an out-of-range value counts as none.
    #[must_use]
    pub fn from_permille(permille: Option<u64>) -> Self {
        Self { permille: permille.filter(|known| (Self::PERMILLE_MIN..=Self::PERMILLE_MAX).contains(known)) }
    }

    /// The ratio, if known.
    #[must_use]
    pub fn permille(self) -> Option<u64> {
        self.permille
    }

    /// Records that a model reported `reported` tokens for an estimate of `counted`. The first sample is taken as is,
    /// later ones with weight one quarter; the ratio stays within its bounds.
    pub fn observe(&mut self, counted: TokenCount, reported: TokenCount) {
        if counted < Self::SAMPLE_TOKENS_MIN || reported == 0 {
            return;
        }
        let sample = (reported.saturating_mul(1000) / counted).clamp(Self::PERMILLE_MIN, Self::PERMILLE_MAX);
        self.permille = Some(self.permille.map_or(sample, |known| (known * 3 + sample) / 4));
    }

    /// Converts estimated tokens to the model's tokens.
    #[must_use]
    pub fn to_model_tokens(self, counted: TokenCount) -> TokenCount {
        counted.saturating_mul(self.permille.unwrap_or(1000)) / 1000
    }

    /// Converts the model's tokens to estimated tokens.
    #[must_use]
    pub fn to_counted_tokens(self, tokens: TokenCount) -> TokenCount {
        tokens.saturating_mul(1000) / self.permille.unwrap_or(1000)
    }
}

/// Tokens that a tokenizer may need at most for one of our estimate: [`estimate_tokens`] assumes four characters per
/// token, and no tokenizer needs more than about one token per character.
const TOKENS_PER_ESTIMATED_MAX: TokenCount = 4;

/// Input tokens beyond our count that a provider may add: its chat template and instructions for tools.
const INPUT_TOKENS_ADDED_MAX: TokenCount = 4_096;

/// Output limit for a model of unknown window size; no model has a larger one.
const WINDOW_TOKENS_MAX: TokenCount = 1 << 21;

/// Token usage of one or more requests, as reported by a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens, including cached ones.
    pub input: TokenCount,
    /// Output tokens, including reasoning.
    pub output: TokenCount,
    /// Input tokens read from the provider's prompt cache.
    pub cached: TokenCount,
    /// Input tokens written to the provider's prompt cache, where that has a price.
    pub cache_written: TokenCount,
    /// Reasoning tokens.
    pub reasoning: TokenCount,
    /// The tokens among `input` and `output` that we counted, because the model reported none or an absurd number.
    pub estimated: TokenCount,
}

impl Usage {
    /// Our own count of a request and its response.
    #[must_use]
    pub fn counted(input: TokenCount, output: TokenCount) -> Self {
        Self { input, output, estimated: input.saturating_add(output), ..Self::default() }
    }

    /// Replaces the counts of a report that cannot be true by our own. Zero is absurd if there was something to count;
    /// so are more input tokens than a tokenizer could make of the request, and more output tokens than the context
    /// window holds. Output has no tighter limit, because reasoning need not be visible. Decoders report zero for a
    /// count that is absent, negative or not a number.
    #[must_use]
    pub fn or_counted(mut self, input: TokenCount, output: TokenCount, window_tokens: TokenCount) -> Self {
        let input_max = input.saturating_mul(TOKENS_PER_ESTIMATED_MAX).saturating_add(INPUT_TOKENS_ADDED_MAX);
        if !(1..=input_max).contains(&self.input) {
            (self.input, self.cached, self.cache_written) = (input, 0, 0);
            self.estimated = input;
        }
        let output_max = if window_tokens == 0 { WINDOW_TOKENS_MAX } else { window_tokens };
        if self.output > output_max.max(output) || (self.output == 0 && output > 0) {
            (self.output, self.reasoning) = (output, 0);
            self.estimated = self.estimated.saturating_add(output);
        }
        self
    }

    /// The saturating sum of two reports.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
            cache_written: self.cache_written.saturating_add(other.cache_written),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            estimated: self.estimated.saturating_add(other.estimated),
        }
    }
}

/// An amount of money: billionths of a dollar.
pub type NanoDollars = u64;

/// The prices of a model, in millionths of a dollar per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prices {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cached: u64,
    /// Input tokens written to the cache.
    pub cache_written: u64,
}

impl Prices {
    /// The cost of a report; saturates.
    #[must_use]
    pub fn cost(&self, usage: Usage) -> NanoDollars {
        let cache_tokens = usage.cached.saturating_add(usage.cache_written);
        let uncached = usage.input.saturating_sub(cache_tokens);
        let parts = [
            (uncached, self.input),
            (usage.output, self.output),
            (usage.cached, self.cached),
            (usage.cache_written, self.cache_written),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        NanoDollars::try_from(sum / 1000).unwrap_or(NanoDollars::MAX)
    }
}

/// The accumulated usage of an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Number of reports.
    pub requests: u64,
    /// Their sum.
    pub usage: Usage,
    /// Their cost, as far as prices are known.
    pub cost: NanoDollars,
}

impl UsageTotals {
    /// Adds one report of a model with these prices.
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
    fn estimate_weighs_characters_by_script() {
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
    fn message_count_includes_tool_calls() {
        let call = ToolCall { id: "1".into(), name: "echo".into(), arguments: "{\"a\": 12}".into() };
        assert_eq!(
            CountedMessage::new(Message::assistant("", vec![call]), &estimate_tokens).tokens,
            4 + 1 + 2
        );
    }

    #[test]
    fn calibration_follows_reports_within_bounds() {
        let mut calibration = TokenCalibration::default();
        assert_eq!(calibration.to_model_tokens(1000), 1000);
        calibration.observe(100, 500);
        assert_eq!(calibration.to_model_tokens(1000), 1000, "a small request is ignored");
        calibration.observe(1000, 1200);
        assert_eq!((calibration.to_model_tokens(1000), calibration.to_counted_tokens(1200)), (1200, 1000));
        calibration.observe(1000, 800);
        assert_eq!(calibration.to_model_tokens(1000), 1100);
        (0..50).for_each(|_| calibration.observe(1000, u64::MAX));
        assert!((3990..=4000).contains(&calibration.to_model_tokens(1000)), "an absurd report is clamped");
        (0..50).for_each(|_| calibration.observe(1000, 1));
        assert!(
            (800..=810).contains(&calibration.to_model_tokens(1000)),
            "a report for a truncated prompt is clamped"
        );
    }

    #[test]
    fn absurd_or_missing_counts_are_replaced_by_our_own() {
        let reported = |input, output| Usage { input, output, cached: 7, reasoning: 3, ..Usage::default() };
        let (counted_input, counted_output, window) = (100, 50, 8_000);
        for (input, output, expected) in [
            (120, 60, (120, 60, 0)),
            (90, 1, (90, 1, 0)),
            (4_496, 8_000, (4_496, 8_000, 0)),
            (0, 0, (100, 50, 150)),
            (0, 60, (100, 60, 100)),
            (120, 0, (120, 50, 50)),
            (4_497, 60, (100, 60, 100)),
            (120, 8_001, (120, 50, 50)),
            (1 << 53, 1 << 53, (100, 50, 150)),
        ] {
            let usage = reported(input, output).or_counted(counted_input, counted_output, window);
            assert_eq!((usage.input, usage.output, usage.estimated), expected, "{input}, {output}");
            assert_eq!(
                (usage.cached, usage.reasoning),
                (if usage.input == input { 7 } else { 0 }, if usage.output == output { 3 } else { 0 },)
            );
        }
        assert_eq!(reported(9, 0).or_counted(9, 0, window).estimated, 0, "an empty response has no output");
        assert_eq!(reported(9, 100_000).or_counted(9, 9, 0).estimated, 0, "unknown window");
        let sum = Usage::counted(1, 2).plus(Usage::counted(3, 4));
        assert_eq!((sum.input, sum.output, sum.estimated), (4, 6, 10));
    }

    #[test]
    fn absurd_reports_saturate() {
        let huge = Usage { input: u64::MAX, output: 1, ..Usage::default() };
        assert_eq!(huge.plus(huge).input, u64::MAX);
        let prices = Prices { input: u64::MAX, ..Prices::default() };
        assert_eq!(prices.cost(huge), NanoDollars::MAX);
    }

    #[test]
    fn cached_tokens_have_their_own_price() {
        // Per million tokens: 3 dollars for input, a tenth of it if cached, 15 dollars for output.
        let prices =
            Prices { input: 3_000_000, output: 15_000_000, cached: 300_000, cache_written: 3_750_000 };
        let usage =
            Usage { input: 1000, output: 100, cached: 600, cache_written: 300, reasoning: 50, estimated: 0 };
        assert_eq!(prices.cost(usage), (100 * 3000) + (100 * 15_000) + (600 * 300) + (300 * 3750));
    }
}
