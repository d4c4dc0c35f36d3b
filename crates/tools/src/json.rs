//! Tools for JSON.

mod parse;
mod query;

pub(crate) use parse::Parse;
pub(crate) use query::Query;

use agent::ToolOutcome;
use serde_json::Value;

use crate::define::failed;

/// Reads JSON text.
fn parsed(text: &str) -> Result<Value, ToolOutcome> {
    serde_json::from_str(text).map_err(|fault| failed(format!("Invalid JSON: {fault}")))
}
