//! Base64 tools: standard alphabet with padding.

mod decode;
mod encode;

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<encode::Encode>(), tool::<decode::Decode>()];
