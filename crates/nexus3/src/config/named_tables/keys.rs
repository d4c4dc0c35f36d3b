//! The two lists of keys: what each may be, what it means, and what holds when it is left out.

use crate::config::value_kind::ValueKind;

/// One key of a named table.
pub(crate) struct NamedKey {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) doc: &'static str,
    pub(crate) default_text: &'static str,
}

const fn key(name: &'static str, kind: ValueKind, doc: &'static str, left_out: &'static str) -> NamedKey {
    NamedKey { name, kind, doc, default_text: left_out }
}

pub(super) const PROVIDERS_DESCRIPTION: &str = "\
A provider of models: one that is known already, to change how it is reached, or one of your own. Without such a table the
known ones work from their usual variables, such as `OPENAI_API_KEY` and `OPENAI_BASE_URL`. Of `key_env`, `key_file` and
`key_command` at most one is given. These tables are read from the file alone.";

pub(super) const MODELS_DESCRIPTION: &str = "\
A name of your own for a model, to be used wherever a model is named, with what should hold for it. Prices are millionths of
a dollar for a million tokens: 3 dollars are 3000000. These tables are read from the file alone.";

const DAY_MS: u64 = 86_400_000;
const TOKENS_MAX: u64 = 1_000_000_000;
const PRICE_MAX: u64 = 1_000_000_000_000;
const AUTH_SCHEMES: &[&str] = &["bearer", "api-key", "x-api-key", "none"];
const PROVIDER_DEFAULT: &str = "as is known of the provider";
const MODEL_DEFAULT: &str = "as is known of the model";

pub(super) static PROVIDER_KEYS: &[NamedKey] = &[
    key("kind", ValueKind::Provider, "The known provider that it is like.", "its own name, if that is known"),
    key("base_url", ValueKind::SingleLine, "The start of the server's URLs.", PROVIDER_DEFAULT),
    key("key_env", ValueKind::VariableName, "The variable that holds its key.", PROVIDER_DEFAULT),
    key(
        "key_file",
        ValueKind::Path,
        "The file that holds its key; nobody else may be able to read it.",
        "no file",
    ),
    key(
        "key_command",
        ValueKind::Command,
        "A program that prints its key within 10 seconds; run without a shell.",
        "no program",
    ),
    key("auth", ValueKind::OneOf(AUTH_SCHEMES), "How the key travels.", PROVIDER_DEFAULT),
    key(
        "headers",
        ValueKind::Headers,
        "More headers for every question; their values are never shown.",
        "none",
    ),
    key("ca_file", ValueKind::Path, "Certificates (PEM) to trust beside the system's.", "none"),
    key("api_version", ValueKind::SingleLine, "Azure's `api-version`.", "2024-10-21 for Azure, else none"),
    key("deployment", ValueKind::SingleLine, "Azure's deployment.", "the name of the model"),
    key("allow_insecure_http", ValueKind::Boolean, "Take plain http to another machine.", "false"),
    key("concurrency", ValueKind::Integer { min: 1, max: 65_536 }, "Most questions at once.", "256"),
    key(
        "first_byte_ms",
        ValueKind::Integer { min: 1, max: DAY_MS },
        "Longest wait for the head of an answer.",
        "60000; 600000 for a server of this machine, which may have to load its model",
    ),
    key("idle_ms", ValueKind::Integer { min: 1, max: DAY_MS }, "Longest silence in an answer.", "60000"),
    key("tries_max", ValueKind::Integer { min: 1, max: 10 }, "Most tries of one question.", "4"),
];

pub(super) static MODEL_KEYS: &[NamedKey] = &[
    key("model", ValueKind::Model, "The model that it stands for.", "not allowed"),
    key(
        "window_tokens",
        ValueKind::Integer { min: 256, max: TOKENS_MAX },
        "How many tokens it takes.",
        MODEL_DEFAULT,
    ),
    key(
        "answer_tokens_max",
        ValueKind::Integer { min: 1, max: TOKENS_MAX },
        "Most tokens of an answer.",
        "no limit is sent; to Anthropic, which wants one, the model's own, at most 32000",
    ),
    key("price_input", ValueKind::Integer { min: 0, max: PRICE_MAX }, "Price of tokens read.", MODEL_DEFAULT),
    key(
        "price_output",
        ValueKind::Integer { min: 0, max: PRICE_MAX },
        "Price of tokens written.",
        MODEL_DEFAULT,
    ),
    key(
        "price_cached",
        ValueKind::Integer { min: 0, max: PRICE_MAX },
        "Price of tokens read from its cache.",
        "as `price_input`",
    ),
    key(
        "price_cache_written",
        ValueKind::Integer { min: 0, max: PRICE_MAX },
        "Price of tokens written to its cache.",
        "as `price_input`",
    ),
    key("images", ValueKind::Boolean, "Whether it can look at images.", MODEL_DEFAULT),
    key(
        "caches_prompt",
        ValueKind::Boolean,
        "Whether its prompt is marked for the provider's cache.",
        "true",
    ),
    key("extra", ValueKind::RawTable, "Fields that are put into every question as they are.", "none"),
    key("fallback", ValueKind::Models, "Models to ask, in turn, when it fails.", "as `fallback` at the top"),
];
