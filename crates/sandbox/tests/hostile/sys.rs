//! System calls and their errors, and a process of its own for each attempt.

use std::ffi::CString;
use std::io;

/// Success, or the number of the error.
pub(crate) type Outcome = Result<(), i32>;

/// The numbers of errors that attempts meet, with their names.
const NAMES: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::ENOEXEC, "ENOEXEC"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EXDEV, "EXDEV"),
    (libc::ENODEV, "ENODEV"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::EROFS, "EROFS"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EISCONN, "EISCONN"),
];

/// Runs an attempt in a child, so that it can change or lose the process, and names how it ended.
pub(crate) fn in_child(attempt: impl FnOnce() -> Outcome) -> String {
    // SAFETY: the program has one thread here.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        exit(attempt());
    }
    let mut status = 0;
    // SAFETY: the status is a valid place to write to.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        return if signal == libc::SIGSYS { "SIGSYS".to_owned() } else { format!("signal {signal}") };
    }
    name(libc::WEXITSTATUS(status))
}

/// The name of an error; `ok` for none.
fn name(errno: i32) -> String {
    match NAMES.iter().find(|(number, _)| *number == errno) {
        _ if errno == 0 => "ok".to_owned(),
        Some((_, name)) => (*name).to_owned(),
        None => format!("errno {errno}"),
    }
}

/// Ends the process with the outcome as its exit code.
pub(crate) fn exit(outcome: Outcome) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(outcome.err().unwrap_or(0)) }
}

/// Makes a system call; the value it returns is dropped.
pub(crate) fn call(number: i64, arguments: [usize; 6]) -> Outcome {
    value(number, arguments).map(drop)
}

/// Makes a system call and returns its value.
pub(crate) fn value(number: i64, arguments: [usize; 6]) -> Result<usize, i32> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the arguments are numbers, or addresses of values that live until the call returns.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    usize::try_from(result).map_err(|_| errno())
}

/// The outcome of a function of the C library.
pub(crate) fn check(result: impl Into<i64>) -> Outcome {
    if result.into() == -1 { Err(errno()) } else { Ok(()) }
}

/// The error of the last call.
pub(crate) fn errno() -> i32 {
    code(&io::Error::last_os_error())
}

/// The number of an error.
pub(crate) fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(255)
}

/// The outcome of a function of the standard library.
pub(crate) fn outcome<T>(result: io::Result<T>) -> Outcome {
    result.map(drop).map_err(|error| code(&error))
}

/// A path as the C library takes it.
pub(crate) fn path(path: &str) -> CString {
    CString::new(path).unwrap()
}

/// The address of a path, for `call`.
pub(crate) fn address(path: &CString) -> usize {
    path.as_ptr() as usize
}

/// Executes a program in this process; returns only if it cannot.
pub(crate) fn execute(program: &str, arguments: &[&str]) -> Outcome {
    use std::os::unix::process::CommandExt;
    Err(code(&std::process::Command::new(program).args(arguments).exec()))
}
