//! Table of known models: context window, response limit, prices and image support. The longest matching name prefix
//! wins; the user's settings override it.

use agent::Prices;
use agent::outside::{ModelSpec, ModelTier};

/// Context window assumed for an unknown model.
pub const WINDOW_TOKENS_DEFAULT: u64 = 131_072;

/// Largest context window assumed for a server on this machine that reports none: such servers are often configured
/// with less than the model supports, and silently truncate longer prompts.
pub const MACHINE_WINDOW_TOKENS_DEFAULT: u64 = 8_192;

struct KnownModel {
    /// Prefix of the name, with `-` for every `.`.
    name_prefix: &'static str,
    /// Providers that charge the vendor's list price.
    list_price_providers: &'static [&'static str],
    window_tokens: u64,
    answer_tokens_max: u64,
    /// Dollars per billion tokens, which avoids fractions: input, output, cache reads, cache writes.
    prices: [u64; 4],
    accepts_images: bool,
}

const OPENAI: &[&str] = &["openai", "openai-responses", "azure", "openrouter"];
const ANTHROPIC: &[&str] = &["anthropic", "openrouter"];
const GOOGLE: &[&str] = &["gemini", "openrouter"];
const XAI: &[&str] = &["xai", "openrouter"];
const DEEPSEEK: &[&str] = &["deepseek", "openrouter"];
const MISTRAL: &[&str] = &["mistral", "openrouter"];
const NO_PROVIDERS: &[&str] = &[];

const fn row(
    name_prefix: &'static str,
    list_price_providers: &'static [&'static str],
    [window_tokens, answer_tokens_max]: [u64; 2],
    prices: [u64; 4],
    accepts_images: bool,
) -> KnownModel {
    KnownModel { name_prefix, list_price_providers, window_tokens, answer_tokens_max, prices, accepts_images }
}

const ACCEPTS_IMAGES: bool = true;
const TEXT_ONLY: bool = false;
const NO_PRICE: [u64; 4] = [0; 4];

#[rustfmt::skip]
static MODELS: &[KnownModel] = &[
    row("gpt-5", OPENAI, [400_000, 128_000], [1_250, 10_000, 125, 0], ACCEPTS_IMAGES),
    row("gpt-5-mini", OPENAI, [400_000, 128_000], [250, 2_000, 25, 0], ACCEPTS_IMAGES),
    row("gpt-5-nano", OPENAI, [400_000, 128_000], [50, 400, 5, 0], ACCEPTS_IMAGES),
    row("gpt-5-pro", OPENAI, [400_000, 272_000], [15_000, 120_000, 15_000, 0], ACCEPTS_IMAGES),
    row("gpt-5-1", OPENAI, [400_000, 128_000], [1_250, 10_000, 125, 0], ACCEPTS_IMAGES),
    row("gpt-5-4", OPENAI, [272_000, 128_000], [2_500, 15_000, 250, 0], ACCEPTS_IMAGES),
    row("gpt-4-1", OPENAI, [1_047_576, 32_768], [2_000, 8_000, 500, 0], ACCEPTS_IMAGES),
    row("gpt-4-1-mini", OPENAI, [1_047_576, 32_768], [400, 1_600, 100, 0], ACCEPTS_IMAGES),
    row("gpt-4-1-nano", OPENAI, [1_047_576, 32_768], [100, 400, 25, 0], ACCEPTS_IMAGES),
    row("gpt-4o", OPENAI, [128_000, 16_384], [2_500, 10_000, 1_250, 0], ACCEPTS_IMAGES),
    row("gpt-4o-mini", OPENAI, [128_000, 16_384], [150, 600, 75, 0], ACCEPTS_IMAGES),
    row("gpt-4-turbo", OPENAI, [128_000, 4_096], [10_000, 30_000, 10_000, 0], ACCEPTS_IMAGES),
    row("gpt-4", OPENAI, [8_192, 8_192], [30_000, 60_000, 30_000, 0], TEXT_ONLY),
    row("gpt-3-5-turbo", OPENAI, [16_385, 4_096], [500, 1_500, 500, 0], TEXT_ONLY),
    row("o1", OPENAI, [200_000, 100_000], [15_000, 60_000, 7_500, 0], ACCEPTS_IMAGES),
    row("o3", OPENAI, [200_000, 100_000], [2_000, 8_000, 500, 0], ACCEPTS_IMAGES),
    row("o3-mini", OPENAI, [200_000, 100_000], [1_100, 4_400, 550, 0], TEXT_ONLY),
    row("o4-mini", OPENAI, [200_000, 100_000], [1_100, 4_400, 275, 0], ACCEPTS_IMAGES),
    row("gpt-oss", NO_PROVIDERS, [131_072, 131_072], NO_PRICE, TEXT_ONLY),
    row("claude-opus-4", ANTHROPIC, [200_000, 32_000], [15_000, 75_000, 1_500, 18_750], ACCEPTS_IMAGES),
    row("claude-opus-4-1", ANTHROPIC, [200_000, 32_000], [15_000, 75_000, 1_500, 18_750], ACCEPTS_IMAGES),
    row("claude-opus-4-5", ANTHROPIC, [200_000, 64_000], [5_000, 25_000, 500, 6_250], ACCEPTS_IMAGES),
    row("claude-opus-4-6", ANTHROPIC, [200_000, 64_000], [5_000, 25_000, 500, 6_250], ACCEPTS_IMAGES),
    row("claude-opus-5", ANTHROPIC, [1_000_000, 128_000], [5_000, 25_000, 500, 6_250], ACCEPTS_IMAGES),
    row("claude-opus-5-5", ANTHROPIC, [1_000_000, 128_000], [4_000, 20_000, 400, 5_000], ACCEPTS_IMAGES),
    row("claude-sonnet-4", ANTHROPIC, [200_000, 64_000], [3_000, 15_000, 300, 3_750], ACCEPTS_IMAGES),
    row("claude-sonnet-4-5", ANTHROPIC, [200_000, 64_000], [3_000, 15_000, 300, 3_750], ACCEPTS_IMAGES),
    row("claude-sonnet-4-6", ANTHROPIC, [200_000, 64_000], [3_000, 15_000, 300, 3_750], ACCEPTS_IMAGES),
    row("claude-sonnet-5", ANTHROPIC, [1_000_000, 128_000], [2_000, 10_000, 200, 2_500], ACCEPTS_IMAGES),
    row("claude-sonnet-5-5", ANTHROPIC, [1_000_000, 128_000], [2_000, 10_000, 200, 2_500], ACCEPTS_IMAGES),
    row("claude-haiku-4-5", ANTHROPIC, [200_000, 64_000], [1_000, 5_000, 100, 1_250], ACCEPTS_IMAGES),
    row("claude-3-7-sonnet", ANTHROPIC, [200_000, 64_000], [3_000, 15_000, 300, 3_750], ACCEPTS_IMAGES),
    row("claude-3-5-sonnet", ANTHROPIC, [200_000, 8_192], [3_000, 15_000, 300, 3_750], ACCEPTS_IMAGES),
    row("claude-3-5-haiku", ANTHROPIC, [200_000, 8_192], [800, 4_000, 80, 1_000], ACCEPTS_IMAGES),
    row("claude-3-haiku", ANTHROPIC, [200_000, 4_096], [250, 1_250, 30, 300], ACCEPTS_IMAGES),
    row("gemini-2-5-pro", GOOGLE, [1_048_576, 65_536], [1_250, 10_000, 125, 0], ACCEPTS_IMAGES),
    row("gemini-2-5-flash", GOOGLE, [1_048_576, 65_536], [300, 2_500, 30, 0], ACCEPTS_IMAGES),
    row("gemini-2-5-flash-lite", GOOGLE, [1_048_576, 65_536], [100, 400, 10, 0], ACCEPTS_IMAGES),
    row("gemini-2-0-flash", GOOGLE, [1_048_576, 8_192], [100, 400, 25, 0], ACCEPTS_IMAGES),
    row("gemini-3-pro", GOOGLE, [1_048_576, 65_536], [2_000, 12_000, 200, 0], ACCEPTS_IMAGES),
    row("grok-4", XAI, [256_000, 256_000], [3_000, 15_000, 750, 0], ACCEPTS_IMAGES),
    row("grok-4-fast", XAI, [2_000_000, 2_000_000], [200, 500, 50, 0], ACCEPTS_IMAGES),
    row("grok-code-fast", XAI, [256_000, 256_000], [200, 1_500, 20, 0], TEXT_ONLY),
    row("grok-3", XAI, [131_072, 131_072], [3_000, 15_000, 750, 0], TEXT_ONLY),
    row("grok-3-mini", XAI, [131_072, 131_072], [300, 500, 75, 0], TEXT_ONLY),
    row("deepseek-chat", DEEPSEEK, [131_072, 8_192], [280, 420, 28, 0], TEXT_ONLY),
    row("deepseek-reasoner", DEEPSEEK, [131_072, 65_536], [280, 420, 28, 0], TEXT_ONLY),
    row("mistral-large", MISTRAL, [131_072, 131_072], [2_000, 6_000, 2_000, 0], TEXT_ONLY),
    row("mistral-medium", MISTRAL, [131_072, 131_072], [400, 2_000, 400, 0], ACCEPTS_IMAGES),
    row("mistral-small", MISTRAL, [131_072, 131_072], [100, 300, 100, 0], ACCEPTS_IMAGES),
    row("codestral", MISTRAL, [256_000, 256_000], [300, 900, 300, 0], TEXT_ONLY),
    row("devstral", MISTRAL, [131_072, 131_072], [400, 2_000, 400, 0], TEXT_ONLY),
    row("llama-3-3-70b", NO_PROVIDERS, [131_072, 32_768], NO_PRICE, TEXT_ONLY),
    row("llama-3-1", NO_PROVIDERS, [131_072, 8_192], NO_PRICE, TEXT_ONLY),
    row("kimi-k2", NO_PROVIDERS, [262_144, 16_384], NO_PRICE, TEXT_ONLY),
];

/// Returns the known properties of a model; an unknown one gets `window_tokens_default`.
pub(crate) fn known_spec(provider: &str, model: &str, window_tokens_default: u64) -> ModelSpec {
    // Routers put the vendor first, as in `vendor/model`.
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase().replace('.', "-");
    let known = MODELS
        .iter()
        .filter(|known| has_name_prefix(&name, known.name_prefix))
        .max_by_key(|known| known.name_prefix.len());
    let Some(known) = known else { return ModelSpec::with_window(window_tokens_default) };
    let [input, output, cached, cache_written] = known.prices.map(|price| price * 1_000);
    let has_price = known.list_price_providers.contains(&provider)
        && !is_version_suffix(&name[known.name_prefix.len()..]);
    ModelSpec {
        window_tokens: known.window_tokens,
        answer_tokens_max: Some(known.answer_tokens_max),
        prices: has_price.then_some(Prices { input, output, cached, cache_written }),
        accepts_images: known.accepts_images,
        tier: ModelTier::Full,
    }
}

/// Whether the name starts with the prefix at a component boundary: `o1` does not match `o100`.
fn has_name_prefix(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with(['-', ':', '@']))
}

/// Whether the suffix is a version number: `gpt-5-9` is not `gpt-5`, and its price is unknown. A date is no version.
fn is_version_suffix(suffix: &str) -> bool {
    let component = suffix.strip_prefix('-').and_then(|suffix| suffix.split(['-', ':', '@']).next());
    component.is_some_and(|component| {
        component.len() <= 2 && component.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_name_prefix_wins() {
        let mini = known_spec("openai", "gpt-4o-mini-2024-07-18", 1);
        assert_eq!((mini.window_tokens, mini.answer_tokens_max), (128_000, Some(16_384)));
        assert_eq!(mini.prices.map(|prices| (prices.input, prices.cached)), Some((150_000, 75_000)));
        assert_eq!(known_spec("openai", "gpt-4.1", 1).window_tokens, 1_047_576);
        assert_eq!(known_spec("openai", "gpt-4", 1).window_tokens, 8_192);
        let routed = known_spec("openrouter", "anthropic/claude-sonnet-4.5", 1);
        assert_eq!(routed.prices.map(|prices| prices.output), Some(15_000_000));
        assert!(routed.accepts_images);
    }

    #[test]
    fn unknown_models_and_resellers_have_no_price() {
        assert_eq!(known_spec("openai", "o100", 77), ModelSpec::with_window(77));
        assert_eq!(known_spec("together", "openai/gpt-5", 1).prices, None, "a reseller's price is unknown");
        let next = known_spec("openai", "gpt-5.9-mini", 1);
        assert_eq!(
            (next.prices, next.window_tokens),
            (None, 400_000),
            "another version has an unknown price"
        );
        assert!(known_spec("openai", "gpt-5-2025-08-07", 1).prices.is_some(), "a date is no version");
        assert!(known_spec("anthropic", "claude-sonnet-4-5-20250929", 1).prices.is_some());
    }
}
