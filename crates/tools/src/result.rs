//! Tools for results of earlier tool calls.

mod read;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<read::Read>()];
