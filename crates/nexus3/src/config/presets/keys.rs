//! The keys of `[presets.NAME]`: value kind, description and default. The reference page is generated from this list.

use crate::config::value_kind::ValueKind;

/// The required key: the preset to narrow.
pub(crate) const EXTENDS: &str = "extends";

/// The key that lists the presets of which an agent may create children.
pub(crate) const MAY_CREATE: &str = "may_create";

/// Rule for the names of presets, providers and model aliases; completes the sentence "the name must be …".
pub(crate) const NAME_RULE: &str = "1 to 63 characters from a-z, 0-9, _ and -, starting with a letter";

const NAME_CHARS_MAX: usize = 63;

/// One key of `[presets.NAME]`.
pub(crate) struct PresetKey {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) doc: &'static str,
    pub(crate) default_text: &'static str,
}

const fn key(
    name: &'static str,
    kind: ValueKind,
    doc: &'static str,
    default_text: &'static str,
) -> PresetKey {
    PresetKey { name, kind, doc, default_text }
}

const fn limit_key(name: &'static str, min: u64, max: u64, doc: &'static str) -> PresetKey {
    key(name, ValueKind::Integer { min, max }, doc, INHERITED)
}

const INHERITED: &str = "as in the preset it extends";
const NO_ADDITIONS: &str = "none beyond those of the preset it extends";
const BILLION: u64 = 1_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;

/// All keys of a preset.
pub(crate) static PRESET_KEYS: &[PresetKey] = &[
    key(EXTENDS, ValueKind::Preset, "Preset to narrow, built-in or custom.", "required"),
    key("description", ValueKind::SingleLine, "Description for users.", INHERITED),
    key("tools", ValueKind::ToolNames, "Allow only these tools.", INHERITED),
    key("disable_tools", ValueKind::ToolNames, "Disable these tools.", NO_ADDITIONS),
    key("read_paths", ValueKind::Paths, "Allow reading only in these directories.", INHERITED),
    key("write_paths", ValueKind::Paths, "Allow writing only in these directories.", INHERITED),
    key("blocked_paths", ValueKind::Paths, "Deny reading and writing in these directories.", NO_ADDITIONS),
    key(
        "allowed_commands",
        ValueKind::Commands,
        "Allow running only these programs, as they are called; `[\"*\"]` allows all.",
        INHERITED,
    ),
    key(
        "allowed_hosts",
        ValueKind::Hosts,
        "Allow connections only to these hosts: `example.com`, `*.example.com`, `*` (all public hosts), IP addresses, \
         each also with `:port`. Hosts that are not public have to be listed themselves.",
        INHERITED,
    ),
    key("denied_hosts", ValueKind::Hosts, "Deny connections to these hosts.", NO_ADDITIONS),
    key(
        "ask",
        ValueKind::Rules,
        "Ask for these calls: a tool's name, `run:PROGRAM …`, `unsandboxed:PROGRAM …`, `host:NAME`, `read:/PATH`, `write:/PATH`.",
        NO_ADDITIONS,
    ),
    key("allow", ValueKind::Rules, "Do not ask for these calls.", NO_ADDITIONS),
    key("deny", ValueKind::Rules, "Deny these calls, whatever else is allowed.", NO_ADDITIONS),
    key(MAY_CREATE, ValueKind::Presets, "Allow only children with these presets.", INHERITED),
    key("targets", ValueKind::Targets, "Allow messages only to these agents.", INHERITED),
    limit_key("max_turns", 1, BILLION, "Turns an agent may start over its lifetime."),
    limit_key("max_tool_calls", 0, BILLION, "Tool calls an agent may run over its lifetime."),
    limit_key("max_tokens", 1, 1_000_000 * BILLION, "Input and output tokens over an agent's lifetime."),
    limit_key("max_wall_ms", 1, YEAR_MS, "Total running time of an agent's turns, in milliseconds."),
    limit_key("max_children", 0, 1_000_000, "Descendants that may exist at once."),
];

/// Whether a text is a valid name of a preset, provider or model alias.
pub(crate) fn is_table_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(fits)
}
