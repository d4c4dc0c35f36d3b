//! `regex.replace`: replaces matches of a pattern.

use agent::ToolOutcome;
use regex::Captures;
use schemars::JsonSchema;
use serde::Deserialize;

use super::compile;
use crate::blocking::CancelFlag;
use crate::definition::{PureTool, ToolResult, execution_failed};

pub(crate) struct Replace;

/// Replaces matches of a regular expression and returns the new text. Look-around and backreferences in the pattern are
/// not supported.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The text to search.
    text: String,
    /// The regular expression.
    pattern: String,
    /// The replacement of a match. `$1` or `${name}` stand for groups, `$$` for a dollar sign.
    replacement: String,
    /// Whether to replace all matches instead of the first.
    #[schemars(extend("default" = true))]
    global: Option<bool>,
}

const RESULT_BYTES_MAX: usize = 1 << 20;

impl PureTool for Replace {
    type Input = Input;
    const NAME: &'static str = "regex.replace";
    const IS_OFFERED_BY_DEFAULT: bool = false;
    const IS_HEAVY: bool = true;

    fn compute(input: Input, stop: &CancelFlag) -> ToolResult {
        let regex = compile(&input.pattern, input.text.len())?;
        let pieces = split_replacement(&input.replacement);
        let count = if input.global.unwrap_or(true) { usize::MAX } else { 1 };
        let mut result = String::new();
        let mut copied = 0;
        for captures in regex.captures_iter(&input.text).take(count) {
            stop.check()?;
            let Some(whole) = captures.get(0) else { continue };
            append_bounded(&mut result, &input.text[copied..whole.start()])?;
            expand(&mut result, &captures, &pieces)?;
            copied = whole.end();
        }
        append_bounded(&mut result, &input.text[copied..])?;
        Ok(result)
    }
}

/// Expands piece by piece with a size check, because one replacement can name a long group a thousand times.
fn expand(result: &mut String, captures: &Captures<'_>, pieces: &[&str]) -> Result<(), ToolOutcome> {
    for piece in pieces {
        captures.expand(piece, result);
        append_bounded(result, "")?;
    }
    Ok(())
}

fn append_bounded(result: &mut String, text: &str) -> Result<(), ToolOutcome> {
    result.push_str(text);
    if result.len() > RESULT_BYTES_MAX {
        return Err(execution_failed(format!("the result is longer than {RESULT_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// Splits a replacement into pieces that contain at most one group reference.
fn split_replacement(replacement: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = replacement;
    while !rest.is_empty() {
        let (piece, next) = rest.split_at(piece_length_bytes(rest));
        pieces.push(piece);
        rest = next;
    }
    pieces
}

fn piece_length_bytes(text: &str) -> usize {
    let from = match text.as_bytes() {
        [b'$', b'$', ..] => return 2,
        [b'$', b'{', ..] => text.find('}').unwrap_or(1),
        [b'$', ..] => 1,
        _ => 0,
    };
    text[from..].find('$').map_or(text.len(), |next| from + next)
}
