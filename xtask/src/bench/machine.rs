//! The machine that is measured on: what a reader has to know about it, and its limit of descriptors.

use std::fs;
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the numbers depend on.
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    /// The load averages when the measuring began.
    pub(crate) load: String,
}

pub(crate) fn describe() -> Machine {
    let cpus = read("/proc/cpuinfo");
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Machine {
        cores: thread::available_parallelism().map_or(0, usize::from),
        cpu: cpu.map_or("unknown", |(_, name)| name.trim()).to_owned(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        load: load(),
    }
}

/// The load averages over 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Takes all descriptors we may have; children inherit them.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // What can't be raised is found out by who needs many.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// How many descriptors a process may have; none when there is no limit.
pub(crate) fn descriptors_max() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|count| usize::try_from(count).unwrap_or(usize::MAX))
}

/// Empty where there is no such file: a fact is missing then, and nothing else.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
