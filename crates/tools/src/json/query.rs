//! `json.query`: selects a value in JSON by a path of keys and indices.

use agent::ToolOutcome;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::parse_json;
use crate::blocking::CancelFlag;
use crate::definition::{PureTool, SortedKeys, ToolResult, execution_failed, invalid_input, pretty_json};

pub(crate) struct Query;

/// Finds a value in JSON by a path such as `users[0].name` and returns it as indented JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Any JSON value, or a string that holds JSON text.
    json: Value,
    /// Keys separated by dots, each followed by any number of indexes from 0: `a.b[0][1]`. Empty for the whole value.
    path: String,
}

enum PathSegment<'a> {
    Key(&'a str),
    Index(&'a str),
}

impl PureTool for Query {
    type Input = Input;
    const NAME: &'static str = "json.query";
    const IS_OFFERED_BY_DEFAULT: bool = false;

    fn compute(input: Input, _stop: &CancelFlag) -> ToolResult {
        let document = match input.json {
            Value::String(text) => parse_json(&text)?,
            value => value,
        };
        let mut value = &document;
        for segment in parse_path(&input.path)? {
            value = select(value, &segment)?;
        }
        pretty_json(&SortedKeys(value))
    }
}

fn select<'a>(value: &'a Value, segment: &PathSegment<'_>) -> Result<&'a Value, ToolOutcome> {
    match segment {
        PathSegment::Key(key) => {
            value.get(key).ok_or_else(|| execution_failed(format!("Key not found: {key}")))
        }
        PathSegment::Index(index) => index
            .parse()
            .ok()
            .and_then(|position: usize| value.get(position))
            .ok_or_else(|| execution_failed(format!("Index {index} out of bounds"))),
    }
}

fn parse_path(path: &str) -> Result<Vec<PathSegment<'_>>, ToolOutcome> {
    let mut segments = Vec::new();
    if path.is_empty() {
        return Ok(segments);
    }
    for segment in path.split('.') {
        let (key, indexes) = segment.find('[').map_or((segment, ""), |open| segment.split_at(open));
        if !key.is_empty() || indexes.is_empty() {
            segments.push(PathSegment::Key(key));
        }
        let mut left = indexes;
        while !left.is_empty() {
            let (index, rest) = first_index(left).ok_or_else(|| {
                invalid_input(format!("field `path`: expected indexes such as [0], found {left:?}"))
            })?;
            segments.push(PathSegment::Index(index));
            left = rest;
        }
    }
    Ok(segments)
}

fn first_index(text: &str) -> Option<(&str, &str)> {
    let (index, rest) = text.strip_prefix('[')?.split_once(']')?;
    let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some((index, rest))
}
