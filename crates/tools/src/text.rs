//! Text tools.

mod echo;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<echo::Echo>()];
