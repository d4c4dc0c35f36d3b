//! `regex.match`: finds matches of a pattern.

use agent::ToolOutcome;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile;
use crate::blocking::CancelFlag;
use crate::definition::{PureTool, ToolResult, pretty_json};

pub(crate) struct Match;

/// Searches a text with a regular expression. Returns the first match with its groups, or all matches with their byte
/// offsets. Look-around and backreferences are not supported.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The text to search.
    text: String,
    /// The regular expression.
    pattern: String,
    /// Whether to return all matches (at most 10000) instead of the first.
    #[schemars(extend("default" = false))]
    global: Option<bool>,
}

const MATCHES_MAX: usize = 10_000;

#[derive(Serialize)]
struct FirstMatch<'a> {
    found: bool,
    groups: Vec<Option<&'a str>>,
    r#match: Option<&'a str>,
}

#[derive(Serialize)]
struct AllMatches<'a> {
    count: usize,
    found: bool,
    matches: Vec<MatchSpan<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

#[derive(Serialize)]
struct MatchSpan<'a> {
    end: usize,
    r#match: &'a str,
    start: usize,
}

impl PureTool for Match {
    type Input = Input;
    const NAME: &'static str = "regex.match";
    const IS_OFFERED_BY_DEFAULT: bool = false;
    const IS_HEAVY: bool = true;

    fn compute(input: Input, stop: &CancelFlag) -> ToolResult {
        let regex = compile(&input.pattern, input.text.len())?;
        if input.global.unwrap_or(false) {
            pretty_json(&find_all(&regex, &input.text, stop)?)
        } else {
            pretty_json(&find_first(&regex, &input.text))
        }
    }
}

fn find_first<'a>(regex: &Regex, text: &'a str) -> FirstMatch<'a> {
    let Some(captures) = regex.captures(text) else {
        return FirstMatch { found: false, groups: Vec::new(), r#match: None };
    };
    let groups: Vec<_> = captures.iter().map(|group| group.map(|group| group.as_str())).collect();
    FirstMatch { found: true, r#match: groups.first().copied().flatten(), groups }
}

/// Finds all matches. Each may scan the whole rest of the text, so the search checks for cancellation between matches.
fn find_all<'a>(regex: &Regex, text: &'a str, stop: &CancelFlag) -> Result<AllMatches<'a>, ToolOutcome> {
    let mut matches = Vec::new();
    let mut truncated = false;
    for found in regex.find_iter(text) {
        stop.check()?;
        if matches.len() == MATCHES_MAX {
            truncated = true;
            break;
        }
        matches.push(MatchSpan { end: found.end(), r#match: found.as_str(), start: found.start() });
    }
    Ok(AllMatches { count: matches.len(), found: !matches.is_empty(), matches, truncated })
}
