//! Supervision of a command: forwards orders of the daemon, reaps processes, and kills the command with all its
//! descendants when it ends, when the daemon closes the control socket, and when the daemon dies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, wait,
};

use super::kill_scope::KillScope;
use super::process_limit::ProcessLimit;
use crate::control;
use crate::request::{Order, Report};

/// How many dead children are reaped before anything else is looked at.
const REAPED_AT_ONCE_MAX: usize = 100;

/// How often the end of killed processes is looked for.
const DEATH_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A descendant that resists SIGKILL is in an uninterruptible wait, for example for a dead disk.
const KILL_TIME_MAX: Duration = Duration::from_secs(10);

/// Waits for the command or the end of the daemon, then kills what is left. Returns the report, if there is a daemon
/// to read it.
pub(super) fn supervise(
    control: BorrowedFd<'_>,
    command: Pid,
    scope: &KillScope,
    mut limit: ProcessLimit,
) -> io::Result<Option<Report>> {
    // Ahead of a command that starts processes without end. Only root may; the kernel limits the processes of others.
    let _ = rustix::process::setpriority_process(None, -20);
    let pidfd = pidfd_open(command, PidfdFlags::empty())?;
    let report = loop {
        let mut events =
            [PollFd::from_borrowed_fd(control, PollFlags::IN), PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut events, Some(&limit.interval())) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let has_order = !events[0].revents().is_empty();
        if let Some(report) = reap(Some(command)) {
            break Some(report);
        }
        if has_order && !follow_order(control.as_fd(), command) {
            break None;
        }
        if let Some(why) = limit.check(scope) {
            break Some(Report::Stopped(why));
        }
    };
    kill_descendants(scope);
    Ok(report)
}

/// Reaps dead children; returns how the command ended, if it is one of them.
fn reap(command: Option<Pid>) -> Option<Report> {
    let mut report = None;
    // Processes that fork and end without end must not occupy the supervisor.
    for _ in 0..REAPED_AT_ONCE_MAX {
        let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) else { break };
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

/// Kills all descendants and waits for their end. This process is their subreaper, or the init of their namespace: none
/// is left when it has no children.
pub(super) fn kill_descendants(scope: &KillScope) {
    let start = Instant::now();
    scope.signal_all(Signal::KILL);
    while start.elapsed() < KILL_TIME_MAX {
        reap(None);
        if matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) {
            return;
        }
        let _ = poll(&mut [], Some(&DEATH_INTERVAL));
    }
}
