//! Table tests of sets, presets and verdicts. `tests/ceiling` has the properties of whole trees.

mod approvals;
mod hosts;
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

fn pattern(text: &str) -> HostPattern {
    HostPattern::parse(text).unwrap()
}

fn patterns(texts: &[&str]) -> Vec<HostPattern> {
    texts.iter().map(|text| pattern(text)).collect()
}

fn hosts(allowed: &[&str]) -> HostSet {
    HostSet::new(patterns(allowed), [])
}

/// A destination like `example.com:80`.
fn destination(text: &str) -> Destination {
    let (host, port) = text.rsplit_once(':').unwrap();
    Destination { host: RemoteHost::parse(host).unwrap(), port: port.parse().unwrap() }
}

fn agent(name: &str) -> crate::AgentId {
    crate::AgentId::parse(name).unwrap()
}
