//! `echo`: returns its input.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::blocking::CancelFlag;
use crate::definition::{PureTool, ToolResult};

pub(crate) struct Echo;

/// Returns the given text unchanged.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The text to return.
    text: String,
}

impl PureTool for Echo {
    type Input = Input;
    const NAME: &'static str = "echo";
    const IS_OFFERED_BY_DEFAULT: bool = false;

    fn compute(input: Input, _stop: &CancelFlag) -> ToolResult {
        Ok(input.text)
    }
}
