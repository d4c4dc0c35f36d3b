//! The limit of a command's processes and threads. The kernel applies it to users other than root; the supervisor counts.

use std::fs;

use rustix::event::Timespec;
use rustix::process::{Signal, geteuid};

use super::kill_scope::KillScope;

/// The limit, and what is needed to find out quickly that it is exceeded.
pub(super) struct ProcessLimit {
    processes_max: u64,
    /// For root, whose processes the kernel does not limit: the tasks of the system at the last count.
    tasks_before: Option<u64>,
}

impl ProcessLimit {
    /// Call it before the command starts.
    pub(super) fn new(processes_max: u64) -> Self {
        Self { processes_max, tasks_before: geteuid().is_root().then(system_tasks) }
    }

    /// How often to check.
    pub(super) fn interval(&self) -> Timespec {
        let milliseconds = if self.tasks_before.is_some() { 20 } else { 250 };
        Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 }
    }

    /// The reason to kill the command, if it has too many processes.
    pub(super) fn check(&mut self, scope: &KillScope) -> Option<String> {
        let is_exceeded = match &mut self.tasks_before {
            None => has_more_descendants(self.processes_max),
            Some(before) => {
                let tasks = system_tasks();
                if tasks <= *before + self.processes_max {
                    return None;
                }
                *before = tasks;
                is_exceeded_when_stopped(scope, self.processes_max)
            }
        };
        is_exceeded.then(|| format!("it had more than {} processes and threads", self.processes_max))
    }
}

/// Counts while the command is stopped: processes that fork without end start more than can be counted meanwhile.
fn is_exceeded_when_stopped(scope: &KillScope, limit: u64) -> bool {
    scope.signal_all(Signal::STOP);
    let is_exceeded = has_more_descendants(limit);
    if !is_exceeded {
        scope.signal_all(Signal::CONT);
    }
    is_exceeded
}

/// The number of processes and threads of the system; 0 if it is unknown.
fn system_tasks() -> u64 {
    // Three averages, then the running and all tasks, as in `1/345`.
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let tasks = load.split_whitespace().nth(3).and_then(|tasks| tasks.split_once('/'));
    tasks.and_then(|(_, all)| all.parse().ok()).unwrap_or(0)
}

/// Whether this process has more descendants than this, with their threads.
fn has_more_descendants(limit: u64) -> bool {
    let mut count = 0;
    let mut pending = vec![std::process::id().to_string()];
    while let Some(process) = pending.pop() {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for task in tasks {
            count += 1;
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pending.extend(children.split_whitespace().map(str::to_owned));
        }
        // This process itself is not counted.
        if count > limit + 1 {
            return true;
        }
    }
    false
}
