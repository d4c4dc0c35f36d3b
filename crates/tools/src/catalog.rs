//! The catalog of built-in tools: the families, in the order in which models see their tools. To add a tool, add its file
//! and two lines to its family's file.

use std::sync::Arc;

use agent::ToolSpec;
use agent::outside::Tool;

use crate::definition::{ToolDependencies, ToolEntry};
use crate::{
    agents, approvals, base64, commands, fs, git, hash, json, memory, net, plan, process, regex, result,
    text, time, uuid,
};

const FAMILIES: &[&[ToolEntry]] = &[
    text::TOOLS,
    time::TOOLS,
    base64::TOOLS,
    json::TOOLS,
    uuid::TOOLS,
    hash::TOOLS,
    regex::TOOLS,
    fs::TOOLS,
    git::TOOLS,
    commands::TOOLS,
    process::TOOLS,
    net::TOOLS,
    result::TOOLS,
    memory::TOOLS,
    plan::TOOLS,
    agents::TOOLS,
    approvals::TOOLS,
];

/// The specifications of all built-in tools, in the order in which models see them.
#[must_use]
pub fn builtin_specs() -> Vec<Arc<ToolSpec>> {
    entries().map(ToolEntry::spec).collect()
}

/// Builds all tools.
pub(crate) fn tools(dependencies: &Arc<ToolDependencies>) -> Vec<Arc<dyn Tool>> {
    entries().map(|entry| entry.build(dependencies)).collect()
}

fn entries() -> impl Iterator<Item = &'static ToolEntry> {
    FAMILIES.iter().copied().flatten()
}
