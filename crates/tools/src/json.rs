//! JSON tools.

mod parse;
mod query;

pub(crate) use parse::Parse;
pub(crate) use query::Query;

use agent::ToolOutcome;
use serde_json::Value;

use crate::definition::execution_failed;

/// Parses JSON text.
fn parse_json(text: &str) -> Result<Value, ToolOutcome> {
    serde_json::from_str(text).map_err(|fault| execution_failed(format!("Invalid JSON: {fault}")))
}
