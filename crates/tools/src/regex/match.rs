//! `regex.match`: finds what a pattern matches.

use agent::ToolOutcome;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compiled;
use crate::apart::Stop;
use crate::definition::{ToolResult, PureTool, pretty_json};

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
struct First<'a> {
    found: bool,
    groups: Vec<Option<&'a str>>,
    r#match: Option<&'a str>,
}

#[derive(Serialize)]
struct All<'a> {
    count: usize,
    found: bool,
    matches: Vec<Place<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

#[derive(Serialize)]
struct Place<'a> {
    end: usize,
    r#match: &'a str,
    start: usize,
}

impl PureTool for Match {
    type Input = Input;
    const NAME: &'static str = "regex.match";
    const IS_HEAVY: bool = true;

    fn compute(input: Input, stop: &Stop) -> ToolResult {
        let regex = compiled(&input.pattern, input.text.len())?;
        if input.global.unwrap_or(false) {
            pretty_json(&all(&regex, &input.text, stop)?)
        } else {
            pretty_json(&first(&regex, &input.text))
        }
    }
}

fn first<'a>(regex: &Regex, text: &'a str) -> First<'a> {
    let Some(captures) = regex.captures(text) else {
        return First { found: false, groups: Vec::new(), r#match: None };
    };
    let groups: Vec<_> = captures.iter().map(|group| group.map(|group| group.as_str())).collect();
    First { found: true, r#match: groups.first().copied().flatten(), groups }
}

/// Each match may need a look at the whole rest of the text, so all of them together may take long.
fn all<'a>(regex: &Regex, text: &'a str, stop: &Stop) -> Result<All<'a>, ToolOutcome> {
    let mut matches = Vec::new();
    let mut truncated = false;
    for found in regex.find_iter(text) {
        stop.check()?;
        if matches.len() == MATCHES_MAX {
            truncated = true;
            break;
        }
        matches.push(Place { end: found.end(), r#match: found.as_str(), start: found.start() });
    }
    Ok(All { count: matches.len(), found: !matches.is_empty(), matches, truncated })
}
