//! A child process with captured output, an awaitable exit, and a lifetime that ends with its handle.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

pub(crate) mod captured_output;

use captured_output::CapturedOutput;

/// Deadline for everything a test waits for from a process.
pub(crate) const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait for the end of the output after the exit: a grandchild may hold the pipes open for ever.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    exit: Arc<Exit>,
    reaper: Option<JoinHandle<()>>,
    pub(crate) stdout: Arc<CapturedOutput>,
    pub(crate) stderr: Arc<CapturedOutput>,
}

/// The exit status, with a condition variable. The reaper removes the child from the process table while it holds this
/// lock, and signals are sent under it, so that a signal never reaches another process with a reused pid.
#[derive(Debug, Default)]
struct Exit {
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

impl Process {
    /// Starts a command with an empty stdin; panics if it cannot be started.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|cause| panic!("cannot start {command:?}: {cause}"));
        let pid = Pid::from_child(&child);
        let stdout = CapturedOutput::spawn_reader("stdout", child.stdout.take().expect("stdout is piped"));
        let stderr = CapturedOutput::spawn_reader("stderr", child.stderr.take().expect("stderr is piped"));
        let exit = Arc::new(Exit::default());
        let reaper = {
            let exit = Arc::clone(&exit);
            thread::Builder::new().name("reaper".to_owned()).spawn(move || exit.reap(pid, child))
        };
        Self { pid, exit, reaper: Some(reaper.expect("a thread can be started")), stdout, stderr }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal; false if the process has exited.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let status = self.exit.lock();
        if status.is_some() {
            return false;
        }
        kill_process(self.pid, signal).expect("a child that was not reaped takes signals");
        true
    }

    /// Waits for the exit, then for the end of the output; none on timeout.
    pub(crate) fn wait_exit(&self) -> Option<ExitStatus> {
        let status = self.exit.wait(PROCESS_TIMEOUT)?;
        self.stdout.wait_closed(OUTPUT_DRAIN_TIMEOUT);
        self.stderr.wait_closed(OUTPUT_DRAIN_TIMEOUT);
        Some(status)
    }
}

/// The captured output, for panic messages.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n--- stdout\n{}\n--- stderr\n{}", self.stdout.text(), self.stderr.text())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if thread::panicking() {
            eprintln!("the process of the failed test:{self}");
        }
        if let Some(reaper) = self.reaper.take() {
            // The reader threads are not joined: a grandchild may hold the pipes open.
            let _ = reaper.join();
        }
    }
}

impl Exit {
    fn reap(&self, pid: Pid, mut child: Child) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        let mut status = self.lock();
        *status = Some(child.wait().expect("an exited child can be reaped"));
        self.changed.notify_all();
    }

    fn wait(&self, within: Duration) -> Option<ExitStatus> {
        let waited = self.changed.wait_timeout_while(self.lock(), within, |status| status.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exit code as a shell shows it: 128 + the signal number for a signal.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .expect("a process ends by code or signal")
}
