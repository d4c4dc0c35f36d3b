//! `base64.decode`: decodes base64 to text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::blocking::CancelFlag;
use crate::definition::{PureTool, ToolResult, execution_failed};

pub(crate) struct Decode;

/// Decodes base64 (standard alphabet, padded) to text. Fails when the bytes are not UTF-8.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The base64 to decode.
    encoded: String,
}

impl PureTool for Decode {
    type Input = Input;
    const NAME: &'static str = "base64.decode";
    const IS_OFFERED_BY_DEFAULT: bool = false;

    fn compute(input: Input, _stop: &CancelFlag) -> ToolResult {
        let bytes = STANDARD
            .decode(input.encoded)
            .map_err(|fault| execution_failed(format!("Invalid base64: {fault}")))?;
        String::from_utf8(bytes).map_err(|fault| {
            execution_failed(format!("the decoded bytes are not UTF-8 text: {}", fault.utf8_error()))
        })
    }
}
