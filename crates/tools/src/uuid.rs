//! UUID tools.

mod generate;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<generate::Generate>()];
