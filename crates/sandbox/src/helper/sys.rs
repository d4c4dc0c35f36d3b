//! System calls that have no safe wrapper. Called in the helper only, which has one thread.

#![expect(unsafe_code, reason = "fork, close_range, unshare, mount_setattr and signals have no safe wrapper")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::process::{Pid, Signal};
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

/// Closes all descriptors from `first` on. For a process that does not return to the owners of the descriptors.
pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the caller ends the process without dropping the owners of the closed descriptors.
    match unsafe { libc::close_range(first, u32::MAX, 0) } {
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

/// Ignores all signals that can be ignored, except that children are reported: nothing but SIGKILL shall end the helper
/// before it has killed the command. A daemon that ignores SIGCHLD must not hide the end of the command.
pub(super) fn ignore_signals() {
    set_dispositions(libc::SIG_IGN);
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Restores the default disposition of all signals and blocks none; an executed program would inherit both.
pub(super) fn restore_signals() {
    set_dispositions(libc::SIG_DFL);
    // SAFETY: the set is initialized by sigemptyset before it is used.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn set_dispositions(disposition: libc::sighandler_t) {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no handler is installed, only SIG_IGN or SIG_DFL. It fails for SIGKILL, SIGSTOP and signals of the C
        // library.
        unsafe { libc::signal(signal, disposition) };
    }
}

/// Sends a signal to every other process that this process may signal. Only a kill scope calls it.
pub(super) fn signal_reachable(signal: Signal) {
    // SAFETY: the call has no memory effects. It fails if there is no other process.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Sets attributes of a mount and all mounts below it; the others stay as they are.
pub(super) fn set_mount_attributes(mount: BorrowedFd<'_>, attributes: u64, flags: i32) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is a C string, and the size is that of the attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends the process at once, without running destructors or flushing buffers of the parent's state.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}
