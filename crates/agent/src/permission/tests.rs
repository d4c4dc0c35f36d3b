//! Sets, presets and verdicts, each by a table. What holds for whole trees is in `tests/ceiling`.

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

fn folders(texts: &[&str]) -> DirectorySet {
    DirectorySet::from_roots(paths(texts))
}

fn arcs(texts: &[&str]) -> Vec<Arc<str>> {
    texts.iter().map(|text| Arc::from(*text)).collect()
}

fn agent(name: &str) -> crate::AgentId {
    crate::AgentId::parse(name).unwrap()
}
