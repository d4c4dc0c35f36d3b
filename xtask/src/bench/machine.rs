//! Facts about the machine for the report, and its limit on file descriptors.

use std::fs;
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The properties of the machine that the figures depend on.
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    /// The load averages at the start of the benchmark.
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

/// Returns the load averages over 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Raises the soft limit on file descriptors to the hard limit; child processes inherit it.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // The groups that need many descriptors check the limit themselves.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Returns the limit on file descriptors; none when there is no limit.
pub(crate) fn descriptors_max() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|count| usize::try_from(count).unwrap_or(usize::MAX))
}

/// Reads a file; empty when it does not exist, so that only this fact is missing from the report.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
