//! The keys of `[providers.NAME]`, `[models.NAME]`, `[custom_tools.NAME]` and `[secrets.NAME]`: value kind, description and
//! default. The reference page is generated from these lists.

use crate::config::value_kind::ValueKind;

/// One key of a named table.
pub(crate) struct NamedKey {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) doc: &'static str,
    pub(crate) default_text: &'static str,
}

const fn key(name: &'static str, kind: ValueKind, doc: &'static str, default_text: &'static str) -> NamedKey {
    NamedKey { name, kind, doc, default_text }
}

pub(super) const PROVIDERS_DESCRIPTION: &str = "\
Connection settings of a model provider: of a built-in one, or of your own. Without such a table, the built-in providers
use their usual environment variables, such as `OPENAI_API_KEY` and `OPENAI_BASE_URL`. Set at most one of `key_env`,
`key_file` and `key_command`. These tables can only be set in the file.";

pub(super) const MODELS_DESCRIPTION: &str = "\
An alias for a model, with its settings; use it wherever a model name is expected. Prices are in millionths of a dollar
per million tokens: 3 dollars are 3000000. These tables can only be set in the file.";

pub(super) const CUSTOM_TOOLS_DESCRIPTION: &str = "\
A tool that runs a command, in the sandbox of commands and without a shell. NAME is its name for models; it must not be a
name of a built-in tool. An agent may call it if its `allowed_commands` contain `command`, and if its `tools` and
`disable_tools` do not exclude NAME. `${parameter}` in `args_template` and `env` stands for a value of the call: it is always
one argument or a part of one; an argument whose parameter is not given is left out, and `$${` stands for `${`. A value that
begins with `-` is an option for most programs: put `\"--\"` before it in `args_template`, or give the parameter a `pattern`.
`input_schema` is a JSON Schema with the keys `properties` and `required`; a parameter has `type`, and may have `description`,
`default`, `enum`, `pattern`, `minLength`, `maxLength`, `minimum`, `maximum` and `items`. These tables can only be set in the
file.";

pub(super) const SECRETS_DESCRIPTION: &str = "\
A secret that nexus3 reads when it starts. Results of tools, events, logs and models never show it: `[redacted]` stands in
its place, also where it is escaped or encoded. `${secrets.NAME}` in the `env` of a custom tool gives it to the command of
that tool; no other command gets it. It has at least 8 characters and no blanks. Set exactly one of `env`, `file` and
`command`; a secret that cannot be read is an error at start-up. These tables can only be set in the file.";

pub(super) static SECRET_KEYS: &[NamedKey] = &[
    key("env", ValueKind::VariableName, "Environment variable of the daemon with the secret.", "no variable"),
    key("file", ValueKind::Path, "File with the secret; only its owner may be able to read it.", "no file"),
    key(
        "command",
        ValueKind::Command,
        "Program that prints the secret within 10 seconds; run without a shell.",
        "no program",
    ),
];

const INPUT_MODES: &[&str] = &["args", "stdin", "env"];
const OUTPUT_MODES: &[&str] = &["text", "json"];

pub(super) static CUSTOM_TOOL_KEYS: &[NamedKey] = &[
    key("description", ValueKind::Description, "What the tool does, for models.", "required"),
    key("command", ValueKind::Program, "Program to run.", "required"),
    key("args_template", ValueKind::Arguments, "Its arguments.", "none"),
    key(
        "working_dir",
        ValueKind::Path,
        "Directory to run in; agents need to be able to read it.",
        "that of the agent",
    ),
    key(
        "env",
        ValueKind::Variables,
        "Additional variables, with `${secrets.NAME}` for a secret; their values are never shown.",
        "none",
    ),
    key(
        "timeout_secs",
        ValueKind::Integer { min: 1, max: 300 },
        "The command is killed after this time, in seconds.",
        "30",
    ),
    key("input_schema", ValueKind::RawTable, "Parameters of the tool.", "no parameters"),
    key(
        "input_mode",
        ValueKind::OneOf(INPUT_MODES),
        "How the command gets all parameters besides its templates: not at all, as JSON on its standard input, or as \
         variables `NEXUS_ARG_NAME` and `NEXUS_ARGS_JSON`.",
        "args",
    ),
    key(
        "output_mode",
        ValueKind::OneOf(OUTPUT_MODES),
        "What the command prints: text, or JSON, which is checked and returned without whitespace.",
        "text",
    ),
];

const DAY_MS: u64 = 86_400_000;
const TOKENS_MAX: u64 = 1_000_000_000;
const PRICE_MAX: u64 = 1_000_000_000_000;
const AUTH_SCHEMES: &[&str] = &["bearer", "api-key", "x-api-key", "none"];
const PROVIDER_DEFAULT: &str = "the provider's built-in value";
const MODEL_DEFAULT: &str = "the model's built-in value";

pub(super) static PROVIDER_KEYS: &[NamedKey] = &[
    key(
        "kind",
        ValueKind::Provider,
        "Built-in provider whose API it speaks.",
        "its own name, if that is a built-in provider",
    ),
    key("base_url", ValueKind::SingleLine, "Base URL of the server.", PROVIDER_DEFAULT),
    key("key_env", ValueKind::VariableName, "Environment variable with the API key.", PROVIDER_DEFAULT),
    key(
        "key_file",
        ValueKind::Path,
        "File with the API key; only its owner may be able to read it.",
        "no file",
    ),
    key(
        "key_command",
        ValueKind::Command,
        "Program that prints the API key within 10 seconds; run without a shell.",
        "no program",
    ),
    key("auth", ValueKind::OneOf(AUTH_SCHEMES), "How the API key is sent.", PROVIDER_DEFAULT),
    key(
        "headers",
        ValueKind::Headers,
        "Additional headers of every request; their values are never shown.",
        "none",
    ),
    key("ca_file", ValueKind::Path, "CA certificates (PEM) to trust besides the system's.", "none"),
    key("api_version", ValueKind::SingleLine, "Azure's `api-version`.", "2024-10-21 for Azure, else none"),
    key("deployment", ValueKind::SingleLine, "Azure's deployment.", "the model's name"),
    key("allow_insecure_http", ValueKind::Boolean, "Allow plain HTTP to another machine.", "false"),
    key("concurrency", ValueKind::Integer { min: 1, max: 65_536 }, "Maximum concurrent requests.", "256"),
    key(
        "first_byte_ms",
        ValueKind::Integer { min: 1, max: DAY_MS },
        "Timeout for the head of a response.",
        "60000; 600000 for a server on this machine, which may have to load its model",
    ),
    key(
        "idle_ms",
        ValueKind::Integer { min: 1, max: DAY_MS },
        "Timeout between two chunks of a response.",
        "60000",
    ),
    key("tries_max", ValueKind::Integer { min: 1, max: 10 }, "Maximum attempts per request.", "4"),
];

pub(super) static MODEL_KEYS: &[NamedKey] = &[
    key("model", ValueKind::Model, "Model that the alias stands for.", "required"),
    key(
        "window_tokens",
        ValueKind::Integer { min: 256, max: TOKENS_MAX },
        "Context window in tokens.",
        MODEL_DEFAULT,
    ),
    key(
        "answer_tokens_max",
        ValueKind::Integer { min: 1, max: TOKENS_MAX },
        "Maximum tokens of a response.",
        "no limit is sent; to Anthropic, which requires one, the model's own, at most 32000",
    ),
    key(
        "price_input",
        ValueKind::Integer { min: 0, max: PRICE_MAX },
        "Price of input tokens.",
        MODEL_DEFAULT,
    ),
    key(
        "price_output",
        ValueKind::Integer { min: 0, max: PRICE_MAX },
        "Price of output tokens.",
        MODEL_DEFAULT,
    ),
    key(
        "price_cached",
        ValueKind::Integer { min: 0, max: PRICE_MAX },
        "Price of input tokens read from the prompt cache.",
        "as `price_input`",
    ),
    key(
        "price_cache_written",
        ValueKind::Integer { min: 0, max: PRICE_MAX },
        "Price of input tokens written to the prompt cache.",
        "as `price_input`",
    ),
    key("images", ValueKind::Boolean, "Whether the model accepts images.", MODEL_DEFAULT),
    key(
        "caches_prompt",
        ValueKind::Boolean,
        "Whether prompts are marked for the provider's prompt cache.",
        "true",
    ),
    key("extra", ValueKind::RawTable, "Fields added to every request unchanged.", "none"),
    key("fallback", ValueKind::Models, "Models to try, in order, when it fails.", "the top-level `fallback`"),
];
