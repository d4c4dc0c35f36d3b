//! Supervision of a command: forwards orders of the daemon, reaps processes, and kills the command with all its
//! descendants when it ends, when the daemon closes the control socket, and when the daemon dies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, pidfd_open, wait,
};

use crate::control;
use crate::request::{Order, Report};

/// Orphans of the command are reaped at this interval while it runs; killed processes are awaited as long.
const REAP_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// A descendant that resists SIGKILL is in an uninterruptible wait, for example for a dead disk.
const KILL_TIME_MAX: Duration = Duration::from_secs(10);

/// Waits for the command or the end of the daemon, then kills what is left. Returns the report, if there is a daemon
/// to read it.
pub(super) fn supervise(control: BorrowedFd<'_>, command: Pid) -> io::Result<Option<Report>> {
    let pidfd = pidfd_open(command, PidfdFlags::empty())?;
    let report = loop {
        let mut events =
            [PollFd::from_borrowed_fd(control, PollFlags::IN), PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut events, Some(&REAP_INTERVAL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let has_order = !events[0].revents().is_empty();
        if let Some(report) = reap(Some(command)) {
            break Some(report);
        }
        if has_order && !follow_order(control.as_fd(), command) {
            break None;
        }
    };
    kill_descendants();
    Ok(report)
}

/// Reaps all dead children; returns how the command ended, if it is one of them.
fn reap(command: Option<Pid>) -> Option<Report> {
    let mut report = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if Some(pid) == command {
            report = Some(describe(status));
        }
    }
    report
}

fn describe(status: WaitStatus) -> Report {
    match status.terminating_signal() {
        Some(signal) => Report::Killed(signal),
        None => Report::Exited(status.exit_status().unwrap_or(-1)),
    }
}

/// Reads one order and follows it; false if the daemon has closed the socket.
fn follow_order(control: BorrowedFd<'_>, command: Pid) -> bool {
    match control::receive::<Order>(control) {
        Ok(Some((Order::Terminate, _))) => {
            // An error means that it has ended already.
            let _ = kill_process_group(command, Signal::TERM);
            true
        }
        Ok(None) | Err(_) => false,
    }
}

/// Kills all descendants. This process is their subreaper, or the init of their namespace: when a parent dies, its
/// children become children of this process, so that none is left when it has no children.
pub(super) fn kill_descendants() {
    let start = Instant::now();
    while start.elapsed() < KILL_TIME_MAX {
        reap(None);
        if matches!(wait(WaitOptions::NOHANG), Err(rustix::io::Errno::CHILD)) {
            return;
        }
        let children = children();
        for child in &children {
            // An error means that it is dead already.
            let _ = kill_process(*child, Signal::KILL);
        }
        if let Some(pidfd) = children.first().and_then(|child| pidfd_open(*child, PidfdFlags::empty()).ok()) {
            let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&REAP_INTERVAL));
        }
    }
}

/// The children of this process, which has one thread.
fn children() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_nonzero();
    let listed = std::fs::read_to_string(format!("/proc/self/task/{own}/children"));
    match listed {
        Ok(text) => text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect(),
        // Kernels without CONFIG_PROC_CHILDREN.
        Err(_) => children_by_parent(own.get()),
    }
}

fn children_by_parent(parent: i32) -> Vec<Pid> {
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may contain anything; state and parent follow it.
        let mut fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        fields.nth(1).and_then(|field| field.parse::<i32>().ok()) == Some(parent)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(is_child).filter_map(Pid::from_raw).collect()
}
