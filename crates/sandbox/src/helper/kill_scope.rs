//! Signals the command with all its descendants by one system call, which no process can evade by forking: `kill(-1)`
//! reaches every process that the caller may signal. A kill scope is the proof that these are the command's only.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, test_kill_process};

use super::{landlock_domain, sys};

/// The processes that this process may signal are those that it starts from now on, and their descendants.
pub(super) struct KillScope(());

impl KillScope {
    /// Enters a Landlock domain for signals. Processes that this process starts are in it; they cannot signal this
    /// process if they enter a further domain.
    pub(super) fn enter_domain() -> io::Result<Self> {
        // A kernel that does not enforce the domain would kill the processes of the user: try it.
        let parent = getppid().ok_or_else(|| io::Error::other("the parent is in another namespace"))?;
        test_kill_process(parent)?;
        landlock_domain::enter_signal_scope().map_err(io::Error::other)?;
        match test_kill_process(parent) {
            Err(Errno::PERM) => Ok(Self(())),
            _ => Err(io::Error::other("the kernel does not restrict signals")),
        }
    }

    /// The scope of the first process of a process id namespace.
    pub(super) fn of_namespace() -> io::Result<Self> {
        if getpid() == Pid::INIT {
            return Ok(Self(()));
        }
        Err(io::Error::other("not the first process of its namespace"))
    }

    /// Sends a signal to all processes of the scope but this one.
    pub(super) fn signal_all(&self, signal: Signal) {
        sys::signal_reachable(signal);
    }
}
