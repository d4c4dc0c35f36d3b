//! The tool for the agent's plan.

mod todo;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<todo::Todo>()];
