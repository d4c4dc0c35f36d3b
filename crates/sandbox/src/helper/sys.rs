//! System calls that have no safe wrapper. Called in the helper only, which has one thread.

#![expect(unsafe_code, reason = "fork, close_range, unshare and signal dispositions have no safe wrapper")]

use std::ffi::CStr;
use std::io;

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Which side of a fork this is.
pub(super) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks. The helper has one thread, so that the child may allocate and take locks.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: the process has one thread, so that no lock is held by another thread at the fork.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid)
            .map(Fork::Parent)
            .ok_or_else(|| io::Error::other("fork returned no process id")),
    }
}

/// Closes all descriptors from `first` on when the process executes a program.
pub(super) fn close_from_on_exec(first: u32) -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    // SAFETY: no descriptor is closed now, only marked.
    match unsafe { libc::close_range(first, u32::MAX, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves the process into new namespaces.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags do not include CLONE_FILES, which could invalidate descriptors of other threads.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Empties a file by its path.
pub(super) fn truncate(path: &CStr) -> io::Result<()> {
    // SAFETY: the path is a valid C string.
    match unsafe { libc::truncate(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals that end a process by default and that a person or a script may send to the helper.
const TERMINATING: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Ignores the signals that would end the helper before it has killed the command.
pub(super) fn ignore_termination() {
    set_dispositions(&TERMINATING, libc::SIG_IGN);
}

/// Restores the default disposition of the signals that a Rust program or the helper ignores; an executed program would
/// inherit them.
pub(super) fn restore_signals() {
    set_dispositions(&TERMINATING, libc::SIG_DFL);
    set_dispositions(&[libc::SIGPIPE], libc::SIG_DFL);
    // SAFETY: the set is initialized by sigemptyset before it is used.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn set_dispositions(signals: &[libc::c_int], disposition: libc::sighandler_t) {
    for signal in signals {
        // SAFETY: no handler is installed, only SIG_IGN or SIG_DFL.
        unsafe { libc::signal(*signal, disposition) };
    }
}

/// Ends the process at once, without running destructors or flushing buffers of the parent's state.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}
