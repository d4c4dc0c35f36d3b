//! Hash tools.

mod sha256;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<sha256::Sha256>()];
