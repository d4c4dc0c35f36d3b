//! Tools for regular expressions, and the limits that keep a pattern from taking the machine.

mod r#match;
mod replace;

pub(crate) use r#match::Match;
pub(crate) use replace::Replace;

use agent::ToolOutcome;
use regex::{Regex, RegexBuilder};

use crate::definition::invalid_input;

/// The longest pattern: before its compiled form is measured, each few characters can become a large table.
const PATTERN_BYTES_MAX: usize = 16 << 10;

/// The most a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// The most a compiled pattern may take times the length of the text. A search cannot be stopped halfway, and in the
/// worst case it takes time in proportion to both: with this, about a minute.
const SEARCH_COST_MAX: usize = 1 << 38;

/// Compiles a pattern within limits, to search a text of this length.
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

/// The last line of a complaint; those before it repeat the pattern.
fn error_summary(fault: &regex::Error) -> String {
    let words = fault.to_string();
    let last = words.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}
