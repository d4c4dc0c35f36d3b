//! The one list of a preset's keys: what each may be, what it means, and what holds when it is left out.

use crate::config::value_kind::ValueKind;

/// The key that no preset can do without.
pub(crate) const EXTENDS: &str = "extends";

/// The key whose names are presets themselves.
pub(crate) const MAY_CREATE: &str = "may_create";

/// The end of the sentence "the name of a preset must be …".
pub(crate) const NAME_RULE: &str = "1 to 63 of a-z, 0-9, _ and -, starting with a letter";

const NAME_CHARS_MAX: usize = 63;

/// One key of `[presets.NAME]`.
pub(crate) struct PresetKey {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) doc: &'static str,
    pub(crate) default_text: &'static str,
}

const fn key(name: &'static str, kind: ValueKind, doc: &'static str, left_out: &'static str) -> PresetKey {
    PresetKey { name, kind, doc, default_text: left_out }
}

const fn limit_key(name: &'static str, min: u64, max: u64, doc: &'static str) -> PresetKey {
    key(name, ValueKind::Integer { min, max }, doc, INHERITED)
}

const INHERITED: &str = "as in the preset it extends";
const NO_ADDITIONS: &str = "none beyond those of the preset it extends";
const BILLION: u64 = 1_000_000_000;
const YEAR_MS: u64 = 31_536_000_000;

/// The list itself.
pub(crate) static PRESET_KEYS: &[PresetKey] = &[
    key(EXTENDS, ValueKind::Preset, "The preset it narrows, built-in or custom.", "not allowed"),
    key("description", ValueKind::SingleLine, "What it is for, for people.", INHERITED),
    key("tools", ValueKind::ToolNames, "Only these tools.", INHERITED),
    key("disable_tools", ValueKind::ToolNames, "Not these tools.", NO_ADDITIONS),
    key("read_paths", ValueKind::Paths, "Reading only in these folders.", INHERITED),
    key("write_paths", ValueKind::Paths, "Writing only in these folders.", INHERITED),
    key("blocked_paths", ValueKind::Paths, "Neither reading nor writing in these folders.", NO_ADDITIONS),
    key(MAY_CREATE, ValueKind::Presets, "Only children from these presets.", INHERITED),
    key("targets", ValueKind::Targets, "Only these agents may be talked to.", INHERITED),
    limit_key("max_turns", 1, BILLION, "Turns an agent may begin over its life."),
    limit_key("max_tool_calls", 0, BILLION, "Tool calls it may run over its life."),
    limit_key("max_tokens", 1, 1_000_000 * BILLION, "Tokens it may use over its life, read and written."),
    limit_key("max_wall_ms", 1, YEAR_MS, "Milliseconds its turns may run over its life."),
    limit_key("max_children", 0, 1_000_000, "Children alive at once, and theirs."),
];

/// Whether a text can be the name of a preset.
pub(crate) fn is_table_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(fits)
}
