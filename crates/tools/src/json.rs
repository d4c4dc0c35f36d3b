//! JSON tools.

mod parse;
mod query;

use agent::ToolOutcome;
use serde_json::Value;

use crate::definition::{ToolEntry, execution_failed, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<parse::Parse>(), tool::<query::Query>()];

/// Parses JSON text.
fn parse_json(text: &str) -> Result<Value, ToolOutcome> {
    serde_json::from_str(text).map_err(|fault| execution_failed(format!("Invalid JSON: {fault}")))
}
