//! A daemon that has exited: its output, and restarting it on the same home.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{FailedStart, StartingDaemon, TestDaemon, TestDaemonBuilder};
use crate::command::{CommandOutput, run};
use crate::process::{PROCESS_TIMEOUT, Process};

/// A daemon that has exited. Dropping it removes its temporary directory.
#[derive(Debug)]
pub struct StoppedDaemon {
    /// Exit status.
    pub status: ExitStatus,
    /// Complete stdout.
    pub stdout: String,
    /// Complete stderr.
    pub stderr: String,
    /// The port it listened on; 0 if it never became ready.
    pub port: u16,
    home: PathBuf,
    builder: TestDaemonBuilder,
    directory: TempDir,
}

impl TestDaemon {
    /// Kills it with SIGKILL.
    pub fn kill(self) -> StoppedDaemon {
        self.process.signal(Signal::KILL);
        self.wait_stopped()
    }

    /// Stops it gracefully with SIGTERM.
    pub fn stop(self) -> StoppedDaemon {
        self.process.signal(Signal::TERM);
        self.wait_stopped()
    }

    /// Waits for its exit, by an injected fault or any other cause; panics after 60 s.
    pub fn wait_stopped(self) -> StoppedDaemon {
        let Self { process, client, home, builder, directory } = self;
        wait_process_stopped(&process, client.port(), home, builder, directory)
    }
}

impl StartingDaemon {
    /// Kills it with SIGKILL, ready or not.
    pub fn kill(self) -> StoppedDaemon {
        self.process.signal(Signal::KILL);
        self.wait_stopped()
    }

    /// Waits for its exit; panics after 60 s.
    pub fn wait_stopped(self) -> StoppedDaemon {
        let Self { process, home, builder, directory } = self;
        wait_process_stopped(&process, 0, home, builder, directory)
    }
}

/// Waits for the exit of `process` and collects its output; panics after 60 s.
fn wait_process_stopped(
    process: &Process,
    port: u16,
    home: PathBuf,
    builder: TestDaemonBuilder,
    directory: TempDir,
) -> StoppedDaemon {
    let status = process.wait_exit();
    let status =
        status.unwrap_or_else(|| panic!("the daemon did not exit within {PROCESS_TIMEOUT:?}{process}"));
    let (stdout, stderr) = (process.stdout.text(), process.stderr.text());
    StoppedDaemon { status, stdout, stderr, port, home, builder, directory }
}

impl StoppedDaemon {
    /// The daemon's home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Runs another command of the same binary on the same home, such as `check`.
    pub fn run(&self, args: &[&str]) -> CommandOutput {
        run(self.builder.binary(), args, &[], &self.home)
    }

    /// Restarts it with the same options; panics if it does not become ready.
    pub fn start(self) -> TestDaemon {
        self.start_with(|builder| builder)
    }

    /// Restarts it with changed options, which later restarts reuse; panics if it does not become ready.
    pub fn start_with(self, change: impl FnOnce(TestDaemonBuilder) -> TestDaemonBuilder) -> TestDaemon {
        self.spawn_with(change).wait_ready().unwrap_or_else(|failed| panic!("{failed}"))
    }

    /// Restarts it with changed options; an error if it exits before it is ready.
    pub fn try_start_with(
        self,
        change: impl FnOnce(TestDaemonBuilder) -> TestDaemonBuilder,
    ) -> Result<TestDaemon, FailedStart> {
        self.spawn_with(change).wait_ready()
    }

    /// Restarts it with changed options, without waiting until it is ready.
    pub fn spawn_with(self, change: impl FnOnce(TestDaemonBuilder) -> TestDaemonBuilder) -> StartingDaemon {
        change(self.builder.home(self.home)).spawn_in(self.directory)
    }
}
