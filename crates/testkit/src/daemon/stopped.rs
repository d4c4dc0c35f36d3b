//! A daemon that is gone, and what it left: it can be started again on the same home.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{FailedStart, StartingDaemon, TestDaemon, TestDaemonBuilder};
use crate::command::{CommandOutput, run};
use crate::process::{PROCESS_TIMEOUT, Process};

/// What is left of a daemon. Dropping it removes what was made for it.
#[derive(Debug)]
pub struct StoppedDaemon {
    /// How it ended.
    pub status: ExitStatus,
    /// Everything it wrote to stdout.
    pub stdout: String,
    /// Everything it wrote to stderr.
    pub stderr: String,
    /// Where it listened; 0 where it never said.
    pub port: u16,
    home: PathBuf,
    builder: TestDaemonBuilder,
    directory: TempDir,
}

impl TestDaemon {
    /// Ends it at once, by SIGKILL.
    pub fn kill(self) -> StoppedDaemon {
        self.process.signal(Signal::KILL);
        self.wait_stopped()
    }

    /// Ends it in order, by SIGTERM.
    pub fn stop(self) -> StoppedDaemon {
        self.process.signal(Signal::TERM);
        self.wait_stopped()
    }

    /// Waits for its end, by a fault that a test has prepared or by anything else; panics after 20 s.
    pub fn wait_stopped(self) -> StoppedDaemon {
        let Self { process, port, home, builder, directory, .. } = self;
        collect_stopped(&process, port, home, builder, directory)
    }
}

impl StartingDaemon {
    /// Ends it at once, by SIGKILL, however far it has come.
    pub fn kill(self) -> StoppedDaemon {
        self.process.signal(Signal::KILL);
        self.wait_stopped()
    }

    /// Waits for its end; panics after 20 s.
    pub fn wait_stopped(self) -> StoppedDaemon {
        let Self { process, home, builder, directory } = self;
        collect_stopped(&process, 0, home, builder, directory)
    }
}

fn collect_stopped(
    process: &Process,
    port: u16,
    home: PathBuf,
    builder: TestDaemonBuilder,
    directory: TempDir,
) -> StoppedDaemon {
    let status = process.wait_exit();
    let status =
        status.unwrap_or_else(|| panic!("the daemon did not end within {PROCESS_TIMEOUT:?}{process}"));
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

    /// Starts it again as before; panics where it does not get ready.
    pub fn start(self) -> TestDaemon {
        self.start_with(|builder| builder)
    }

    /// Starts it again with other options, which stay for later starts; panics where it does not get ready.
    pub fn start_with(self, change: impl FnOnce(TestDaemonBuilder) -> TestDaemonBuilder) -> TestDaemon {
        self.spawn_with(change).wait_ready().unwrap_or_else(|failed| panic!("{failed}"))
    }

    /// Starts it again with other options.
    pub fn try_start_with(
        self,
        change: impl FnOnce(TestDaemonBuilder) -> TestDaemonBuilder,
    ) -> Result<TestDaemon, FailedStart> {
        self.spawn_with(change).wait_ready()
    }

    /// Starts it again with other options and does not wait until it is ready.
    pub fn spawn_with(self, change: impl FnOnce(TestDaemonBuilder) -> TestDaemonBuilder) -> StartingDaemon {
        change(self.builder.home(self.home)).spawn_in(self.directory)
    }
}
