//! The two lists of keys: what each may be, what it means, and what holds when it is left out.

use crate::config::kind::Kind;

/// One key of a named table.
pub(crate) struct NamedKey {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) doc: &'static str,
    pub(crate) left_out: &'static str,
}

const fn key(name: &'static str, kind: Kind, doc: &'static str, left_out: &'static str) -> NamedKey {
    NamedKey { name, kind, doc, left_out }
}

pub(super) const PROVIDERS_ABOUT: &str = "\
A provider of models: one that is known already, to change how it is reached, or one of your own. Without such a table the
known ones work from their usual variables, such as `OPENAI_API_KEY` and `OPENAI_BASE_URL`. Of `key_env`, `key_file` and
`key_command` at most one is given. These tables are read from the file alone.";

pub(super) const MODELS_ABOUT: &str = "\
A name of your own for a model, to be used wherever a model is named, with what should hold for it. Prices are millionths of
a dollar for a million tokens: 3 dollars are 3000000. These tables are read from the file alone.";

const DAY_MS: u64 = 86_400_000;
const TOKENS_MAX: u64 = 1_000_000_000;
const PRICE_MAX: u64 = 1_000_000_000_000;
const AUTH_WORDS: &[&str] = &["bearer", "api-key", "x-api-key", "none"];
const AS_KNOWN: &str = "as is known of the provider";
const AS_MODEL: &str = "as is known of the model";

pub(super) static PROVIDERS: &[NamedKey] = &[
    key("kind", Kind::Provider, "The known provider that it is like.", "its own name, if that is known"),
    key("base_url", Kind::Line, "The start of the server's URLs.", AS_KNOWN),
    key("key_env", Kind::Variable, "The variable that holds its key.", AS_KNOWN),
    key(
        "key_file",
        Kind::Path,
        "The file that holds its key; nobody else may be able to read it.",
        "no file",
    ),
    key(
        "key_command",
        Kind::Command,
        "A program that prints its key within 10 seconds; run without a shell.",
        "no program",
    ),
    key("auth", Kind::OneOf(AUTH_WORDS), "How the key travels.", AS_KNOWN),
    key("headers", Kind::Headers, "More headers for every question; their values are never shown.", "none"),
    key("ca_file", Kind::Path, "Certificates (PEM) to trust beside the system's.", "none"),
    key("api_version", Kind::Line, "Azure's `api-version`.", "2024-10-21 for Azure, else none"),
    key("deployment", Kind::Line, "Azure's deployment.", "the name of the model"),
    key("allow_insecure_http", Kind::Flag, "Take plain http to another machine.", "false"),
    key("concurrency", Kind::Count { min: 1, max: 65_536 }, "Most questions at once.", "256"),
    key(
        "first_byte_ms",
        Kind::Count { min: 1, max: DAY_MS },
        "Longest wait for the head of an answer.",
        "60000; 600000 for a server of this machine, which may have to load its model",
    ),
    key("idle_ms", Kind::Count { min: 1, max: DAY_MS }, "Longest silence in an answer.", "60000"),
    key("tries_max", Kind::Count { min: 1, max: 10 }, "Most tries of one question.", "4"),
];

pub(super) static MODELS: &[NamedKey] = &[
    key("model", Kind::Model, "The model that it stands for.", "not allowed"),
    key("window_tokens", Kind::Count { min: 256, max: TOKENS_MAX }, "How many tokens it takes.", AS_MODEL),
    key(
        "answer_tokens_max",
        Kind::Count { min: 1, max: TOKENS_MAX },
        "Most tokens of an answer.",
        "no limit is sent; to Anthropic, which wants one, the model's own, at most 32000",
    ),
    key("price_input", Kind::Count { min: 0, max: PRICE_MAX }, "Price of tokens read.", AS_MODEL),
    key("price_output", Kind::Count { min: 0, max: PRICE_MAX }, "Price of tokens written.", AS_MODEL),
    key(
        "price_cached",
        Kind::Count { min: 0, max: PRICE_MAX },
        "Price of tokens read from its cache.",
        "as `price_input`",
    ),
    key(
        "price_cache_written",
        Kind::Count { min: 0, max: PRICE_MAX },
        "Price of tokens written to its cache.",
        "as `price_input`",
    ),
    key("images", Kind::Flag, "Whether it can look at images.", AS_MODEL),
    key("caches_prompt", Kind::Flag, "Whether its prompt is marked for the provider's cache.", "true"),
    key("extra", Kind::Fields, "Fields that are put into every question as they are.", "none"),
    key("fallback", Kind::Models, "Models to ask, in turn, when it fails.", "as `fallback` at the top"),
];
