//! The few names and paths that everything is made of: few, so that they meet.

use std::sync::Arc;

use agent::AgentId;
use agent::permission::FilePath;

use crate::rng::TestRng;

const TOOLS: &[&str] =
    &["fs.read_file", "fs.write_file", "agent_create", "agent_list", "agent_send", "other", "never_named"];
const PROGRAMS_AND_HOSTS: &[&str] = &["one", "two", "three", "never_named"];
const AGENTS: &[&str] = &["bob", "eve", "kid", "never_named"];
const PRESETS: &[&str] = &["worker", "sandboxed", "trusted", "yolo", "mine.0", "mine.1", "mine.2"];

/// Names that begin like each other, so that text alone would mix them up.
const PARTS: &[&str] = &["a", "ab", "a.b", "b"];

/// Made once and handed out as clones: most of a case's time would go into making them.
pub(crate) struct Vocabulary {
    pub(crate) tools: Vec<Arc<str>>,
    /// Programs and hosts.
    pub(crate) programs_and_hosts: Vec<Arc<str>>,
    pub(crate) agents: Vec<Arc<str>>,
    pub(crate) ids: Vec<AgentId>,
    pub(crate) presets: Vec<Arc<str>>,
    /// By depth: the root, then all of one part, and so on.
    paths: Vec<Vec<FilePath>>,
}

impl Vocabulary {
    pub(crate) fn new() -> Self {
        let arcs = |texts: &[&str]| texts.iter().map(|text| Arc::from(*text)).collect();
        let below = |folder: &FilePath| {
            let folder = folder.clone();
            PARTS.iter().map(move |part| resolve(part, &folder))
        };
        let mut paths = vec![vec![FilePath::root()]];
        for depth in 0..4 {
            let next = paths[depth].iter().flat_map(below).collect();
            paths.push(next);
        }
        Self {
            tools: arcs(TOOLS),
            programs_and_hosts: arcs(PROGRAMS_AND_HOSTS),
            agents: arcs(AGENTS),
            ids: AGENTS.iter().map(|name| AgentId::parse(name).expect("it is a name")).collect(),
            presets: arcs(PRESETS),
            paths,
        }
    }

    /// A path of `low` to `high` parts.
    pub(crate) fn path(&self, rng: &mut TestRng, low: usize, high: usize) -> FilePath {
        let depth = rng.between(low, high);
        rng.pick(&self.paths[depth]).clone()
    }

    /// A path in this folder, or beside it.
    pub(crate) fn path_near(&self, rng: &mut TestRng, folder: &FilePath) -> FilePath {
        match rng.below(6) {
            0 => folder.clone(),
            1 | 2 => resolve(rng.pick::<&str>(PARTS), folder),
            3 => resolve(&format!("{}/x/{}", rng.pick(PARTS), rng.pick(PARTS)), folder),
            4 => resolve(&format!("../{}", rng.pick(PARTS)), folder),
            _ => resolve("..", folder),
        }
    }
}

fn resolve(text: &str, base: &FilePath) -> FilePath {
    FilePath::resolve(text, base).expect("it is a path")
}
