//! The names and paths of all cases: few, so that collisions are frequent.

use std::net::IpAddr;
use std::sync::Arc;

use agent::AgentId;
use agent::permission::{Destination, FilePath, HostPattern, RemoteHost};
use testkit::TestRng;

const TOOLS: &[&str] =
    &["fs.read_file", "fs.write_file", "agent_create", "agent_list", "agent_send", "other", "never_named"];
const PROGRAMS: &[&str] = &["one", "two", "three", "never_named"];

/// Patterns that contain each other, with hosts of the public and the local network.
const HOST_PATTERNS: &[&str] = &[
    "*",
    "*:8443",
    "*.com",
    "*.a.com",
    "a.com",
    "a.com:22",
    "x.a.com",
    "x.a.com:8443",
    "xa.com",
    "localhost",
    "*.lan",
    "box.lan",
    "10.0.0.1",
    "10.0.0.1:22",
    "8.8.8.8",
    "127.0.0.1",
    "[::1]:8443",
];
const HOSTS: &[&str] = &[
    "a.com",
    "x.a.com",
    "y.x.a.com",
    "xa.com",
    "b.org",
    "localhost",
    "box.lan",
    "10.0.0.1",
    "8.8.8.8",
    "[::1]",
    "0.0.0.0",
];
const PORTS: &[u16] = &[80, 443, 22, 8443, 6379];
const ADDRESSES: &[&str] =
    &["8.8.8.8", "9.9.9.9", "10.0.0.1", "127.0.0.1", "::1", "169.254.169.254", "::ffff:8.8.8.8", "2600::1"];
const AGENTS: &[&str] = &["bob", "eve", "kid", "never_named"];
const PRESETS: &[&str] = &["worker", "sandboxed", "trusted", "yolo", "mine.0", "mine.1", "mine.2"];

/// Components with common prefixes, which a plain text comparison would confuse.
const PARTS: &[&str] = &["a", "ab", "a.b", "b"];

/// The names and paths, created once per thread: creating them would dominate the time of a case.
pub(crate) struct Vocabulary {
    pub(crate) tools: Vec<Arc<str>>,
    pub(crate) programs: Vec<Arc<str>>,
    pub(crate) host_patterns: Vec<HostPattern>,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) agents: Vec<Arc<str>>,
    pub(crate) ids: Vec<AgentId>,
    pub(crate) presets: Vec<Arc<str>>,
    /// By depth: the root, then all paths of one component, and so on.
    paths: Vec<Vec<FilePath>>,
}

impl Vocabulary {
    pub(crate) fn new() -> Self {
        let arcs = |texts: &[&str]| texts.iter().map(|text| Arc::from(*text)).collect();
        let children = |directory: &FilePath| {
            let directory = directory.clone();
            PARTS.iter().map(move |part| resolve(part, &directory))
        };
        let mut paths = vec![vec![FilePath::root()]];
        for depth in 0..4 {
            let next = paths[depth].iter().flat_map(children).collect();
            paths.push(next);
        }
        Self {
            tools: arcs(TOOLS),
            programs: arcs(PROGRAMS),
            host_patterns: HOST_PATTERNS
                .iter()
                .map(|text| HostPattern::parse(text).expect("valid"))
                .collect(),
            destinations: HOSTS
                .iter()
                .flat_map(|host| PORTS.iter().map(|port| destination(host, *port)))
                .collect(),
            addresses: ADDRESSES.iter().map(|text| text.parse().expect("an address")).collect(),
            agents: arcs(AGENTS),
            ids: AGENTS.iter().map(|name| AgentId::parse(name).expect("a valid name")).collect(),
            presets: arcs(PRESETS),
            paths,
        }
    }

    /// A path of `low` to `high` components.
    pub(crate) fn path(&self, rng: &mut TestRng, low: usize, high: usize) -> FilePath {
        let depth = rng.between(low, high);
        rng.pick(&self.paths[depth]).clone()
    }

    /// A path in this directory, or next to it.
    pub(crate) fn path_near(&self, rng: &mut TestRng, directory: &FilePath) -> FilePath {
        match rng.below(6) {
            0 => directory.clone(),
            1 | 2 => resolve(rng.pick::<&str>(PARTS), directory),
            3 => resolve(&format!("{}/x/{}", rng.pick(PARTS), rng.pick(PARTS)), directory),
            4 => resolve(&format!("../{}", rng.pick(PARTS)), directory),
            _ => resolve("..", directory),
        }
    }
}

fn destination(host: &str, port: u16) -> Destination {
    Destination { host: RemoteHost::parse(host).expect("a host"), port }
}

fn resolve(text: &str, base: &FilePath) -> FilePath {
    FilePath::resolve(text, base).expect("a valid path")
}
