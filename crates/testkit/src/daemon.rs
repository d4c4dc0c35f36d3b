//! The daemon under test: the real binary as a process with its own home. `client.rs` has the methods to call it;
//! `daemon/start.rs` starts it; `daemon/stopped.rs` restarts it.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::DaemonClient;
use crate::process::captured_output::OutputWait;
use crate::process::{PROCESS_TIMEOUT, Process};

mod start;
mod stopped;

pub use start::{FailedStart, StartingDaemon, TestDaemonBuilder};
pub use stopped::StoppedDaemon;

/// A running daemon; calls go through its [`DaemonClient`]. Dropping it kills the process, prints its output if the test
/// fails, and removes its temporary directory.
#[derive(Debug)]
pub struct TestDaemon {
    process: Process,
    client: DaemonClient,
    home: PathBuf,
    builder: TestDaemonBuilder,
    /// Last, so that it is removed after the process has ended.
    directory: TempDir,
}

impl Deref for TestDaemon {
    type Target = DaemonClient;

    fn deref(&self) -> &DaemonClient {
        &self.client
    }
}

impl TestDaemon {
    /// Prepares `BINARY serve` on a free port; tests pass `env!("CARGO_BIN_EXE_nexus3")`.
    pub fn builder(binary: impl Into<PathBuf>) -> TestDaemonBuilder {
        TestDaemonBuilder::new(binary.into())
    }

    /// The daemon's home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stdout so far.
    pub fn stdout(&self) -> String {
        self.process.stdout.text()
    }

    /// Stderr so far.
    pub fn stderr(&self) -> String {
        self.process.stderr.text()
    }

    /// Waits until stderr contains `text`; panics after 60 s, or when stderr is closed.
    pub fn wait_stderr(&self, text: &str) {
        match self.process.stderr.wait(PROCESS_TIMEOUT, |all| all.contains(text).then_some(())) {
            OutputWait::Found(()) => {}
            OutputWait::Closed => panic!("stderr ended without {text:?}{}", self.process),
            OutputWait::TimedOut => {
                panic!("stderr has no {text:?} after {PROCESS_TIMEOUT:?}{}", self.process)
            }
        }
    }

    /// Sends a signal by its name, such as `SIGTERM`; panics if the daemon has exited.
    pub fn signal(&self, name: &str) {
        let sent = self.process.signal(parse_signal(name));
        assert!(sent, "no daemon to send {name} to{}", self.process);
    }

    /// Waits for the exit; panics after 60 s.
    pub fn wait_exit(&self) -> ExitStatus {
        let status = self.process.wait_exit();
        status.unwrap_or_else(|| panic!("the daemon did not exit within {PROCESS_TIMEOUT:?}{}", self.process))
    }

    /// Resident anonymous memory, without file-backed pages, which the kernel loads and evicts at will.
    pub fn anonymous_memory_kb(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(path).expect("a running process has a status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        kb.expect("a running process has resident memory")
    }

    /// The number of open file descriptors.
    pub fn open_fds(&self) -> usize {
        let path = format!("/proc/{}/fd", self.pid());
        fs::read_dir(path).expect("a running process lists its descriptors").count()
    }
}

fn parse_signal(name: &str) -> Signal {
    match name {
        "SIGTERM" => Signal::TERM,
        "SIGINT" => Signal::INT,
        "SIGKILL" => Signal::KILL,
        "SIGSTOP" => Signal::STOP,
        "SIGCONT" => Signal::CONT,
        "SIGHUP" => Signal::HUP,
        "SIGQUIT" => Signal::QUIT,
        "SIGPIPE" => Signal::PIPE,
        "SIGUSR1" => Signal::USR1,
        "SIGUSR2" => Signal::USR2,
        _ => panic!("unknown signal {name}"),
    }
}
