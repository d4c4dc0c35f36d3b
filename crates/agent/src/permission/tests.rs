//! Table tests of sets, presets and verdicts. `tests/ceiling` has the properties of whole trees.

mod approvals;
mod lineage;
mod paths;
mod presets;
mod sets;
mod verdicts;

use std::sync::Arc;

use super::*;

fn path(text: &str) -> FilePath {
    FilePath::resolve(text, &FilePath::root()).unwrap()
}

fn paths(texts: &[&str]) -> Vec<FilePath> {
    texts.iter().map(|text| path(text)).collect()
}

fn directories(texts: &[&str]) -> DirectorySet {
    DirectorySet::from_roots(paths(texts))
}

fn arcs(texts: &[&str]) -> Vec<Arc<str>> {
    texts.iter().map(|text| Arc::from(*text)).collect()
}

fn agent(name: &str) -> crate::AgentId {
    crate::AgentId::parse(name).unwrap()
}
