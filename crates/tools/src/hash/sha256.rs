//! `hash.sha256`: the SHA-256 digest of a text.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Deserialize;
use sha2::Digest;

use crate::blocking::CancelFlag;
use crate::definition::{PureTool, ToolResult, execution_failed};

pub(crate) struct Sha256;

/// Returns the SHA-256 digest of a text's UTF-8 bytes as lowercase hex.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The text to hash.
    text: String,
}

impl PureTool for Sha256 {
    type Input = Input;
    const NAME: &'static str = "hash.sha256";
    const IS_OFFERED_BY_DEFAULT: bool = false;

    fn compute(input: Input, _stop: &CancelFlag) -> ToolResult {
        let mut hex = String::with_capacity(64);
        for byte in sha2::Sha256::digest(input.text) {
            write!(hex, "{byte:02x}").map_err(execution_failed)?;
        }
        Ok(hex)
    }
}
