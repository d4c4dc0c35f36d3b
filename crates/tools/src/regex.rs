//! Regular expression tools, and the limits on compile and search costs.

mod r#match;
mod replace;

use agent::ToolOutcome;
use regex::{Regex, RegexBuilder};

use crate::definition::{ToolEntry, invalid_input, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<r#match::Match>(), tool::<replace::Replace>()];

/// Maximum length of a pattern: a few characters can expand to a large table before the compiled size is checked.
const PATTERN_BYTES_MAX: usize = 16 << 10;

/// Maximum size of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// Maximum product of compiled size and text length. A search cannot be cancelled, and its worst-case time is
/// proportional to both: about a minute with this limit.
const SEARCH_COST_MAX: usize = 1 << 38;

/// Compiles a pattern within the limits for a text of this length.
fn compile(pattern: &str, text_bytes: usize) -> Result<Regex, ToolOutcome> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid_input(format!("field `pattern`: longer than {PATTERN_BYTES_MAX} bytes")));
    }
    let bytes_max = (SEARCH_COST_MAX / text_bytes.max(1)).min(COMPILED_BYTES_MAX);
    RegexBuilder::new(pattern).size_limit(bytes_max).build().map_err(|fault| match fault {
        regex::Error::CompiledTooBig(_) => invalid_input(
            "field `pattern`: too large for a text of this length; (?-u:\\w) is smaller than \\w",
        ),
        fault => invalid_input(format!("field `pattern`: {}", error_summary(&fault))),
    })
}

/// The last line of an error message; the lines before it repeat the pattern.
pub(crate) fn error_summary(fault: &impl std::error::Error) -> String {
    let message = fault.to_string();
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}
