//! `base64.encode`: encodes text as base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::blocking::CancelFlag;
use crate::definition::{PureTool, ToolResult};

pub(crate) struct Encode;

/// Encodes a text's UTF-8 bytes as base64 (standard alphabet, padded).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The text to encode.
    text: String,
}

impl PureTool for Encode {
    type Input = Input;
    const NAME: &'static str = "base64.encode";
    const IS_OFFERED_BY_DEFAULT: bool = false;

    fn compute(input: Input, _stop: &CancelFlag) -> ToolResult {
        Ok(STANDARD.encode(input.text))
    }
}
