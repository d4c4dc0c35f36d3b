//! `json.parse`: validates and formats JSON.

use schemars::JsonSchema;
use serde::Deserialize;

use super::parse_json;
use crate::blocking::CancelFlag;
use crate::definition::{PureTool, SortedKeys, ToolResult, pretty_json};

pub(crate) struct Parse;

/// Parses JSON text and returns it indented, with sorted keys. Reports line and column of a syntax error.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The JSON text.
    text: String,
}

impl PureTool for Parse {
    type Input = Input;
    const NAME: &'static str = "json.parse";
    const IS_OFFERED_BY_DEFAULT: bool = false;

    fn compute(input: Input, _stop: &CancelFlag) -> ToolResult {
        pretty_json(&SortedKeys(&parse_json(&input.text)?))
    }
}
