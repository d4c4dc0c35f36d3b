//! Tools that show and answer the approval requests of descendants. Off unless a preset or request names them.

mod answer;
mod list;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<list::List>(), tool::<answer::Answer>()];
