//! Starts the daemon under test: arguments, clean environment, home directory, and the wait until it is ready.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use super::TestDaemon;
use crate::client::DaemonClient;
use crate::command::clean_command;
use crate::model::ScriptedModel;
use crate::process::captured_output::OutputWait;
use crate::process::{PROCESS_TIMEOUT, Process};

/// The port whose token file has no port number in its name.
const DEFAULT_PORT: u16 = 8765;

/// Builder for a daemon under test.
#[derive(Debug, Clone)]
#[must_use = "nothing runs before start"]
pub struct TestDaemonBuilder {
    binary: PathBuf,
    port: u16,
    home: Option<PathBuf>,
    config: Option<String>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

/// A daemon that exited before it was ready.
#[derive(Debug)]
pub struct FailedStart {
    /// Exit status.
    pub status: ExitStatus,
    /// Complete stdout.
    pub stdout: String,
    /// Complete stderr.
    pub stderr: String,
}

impl fmt::Display for FailedStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, stdout, stderr } = self;
        write!(
            f,
            "the daemon exited before it was ready: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }
}

impl std::error::Error for FailedStart {}

/// A daemon that may not be ready yet. Dropping it kills the process and removes its temporary directory.
#[derive(Debug)]
#[must_use = "dropping it kills the daemon"]
pub struct StartingDaemon {
    pub(super) process: Process,
    pub(super) home: PathBuf,
    pub(super) builder: TestDaemonBuilder,
    pub(super) directory: TempDir,
}

impl StartingDaemon {
    /// Waits until it is ready or has exited; panics after 60 s.
    pub fn wait_ready(self) -> Result<TestDaemon, FailedStart> {
        let Self { process, home, builder, directory } = self;
        match process.stdout.wait(PROCESS_TIMEOUT, parse_port) {
            OutputWait::Found(port) => {
                let client = DaemonClient::new(port, read_token(&home, port));
                Ok(TestDaemon { process, client, home, builder, directory })
            }
            OutputWait::Closed => {
                let status = process.wait_exit();
                let status =
                    status.unwrap_or_else(|| panic!("the daemon closed stdout but did not exit{process}"));
                Err(FailedStart { status, stdout: process.stdout.text(), stderr: process.stderr.text() })
            }
            OutputWait::TimedOut => {
                panic!("the daemon did not print its address within {PROCESS_TIMEOUT:?}{process}")
            }
        }
    }
}

impl TestDaemonBuilder {
    pub(super) fn new(binary: PathBuf) -> Self {
        Self { binary, port: 0, home: None, config: None, args: Vec::new(), env: Vec::new() }
    }

    /// Adds an argument after `serve --port N --home DIR`.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets an environment variable; otherwise there are only PATH, TZ and HOME.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Removes an environment variable that was set before.
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// Sets the port; the default is a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Writes `config.toml` into the home before the start.
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Uses the scripted model: `--model openai/scripted` and its URL and key in the environment.
    pub fn model(self, model: &ScriptedModel) -> Self {
        self.arg("--model")
            .arg("openai/scripted")
            .env("OPENAI_BASE_URL", model.base_url())
            .env("OPENAI_API_KEY", model.key().unwrap_or("sk-scripted"))
    }

    /// Uses an existing home, which is not removed on drop, instead of a temporary one.
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Starts the daemon and waits until it is ready; panics if it exits before that, or after 60 s.
    pub fn start(self) -> TestDaemon {
        self.try_start().unwrap_or_else(|failed| panic!("{failed}"))
    }

    /// Starts the daemon and waits until it is ready or has exited; panics after 60 s.
    pub fn try_start(self) -> Result<TestDaemon, FailedStart> {
        self.spawn().wait_ready()
    }

    /// Starts the daemon without waiting, so that a test can kill it before it is ready.
    pub fn spawn(self) -> StartingDaemon {
        let directory = TempDir::new().expect("a temporary directory can be created");
        self.spawn_in(directory)
    }

    /// Starts the daemon in the temporary directory of an earlier one.
    pub(super) fn spawn_in(self, directory: TempDir) -> StartingDaemon {
        let home = self.home.clone().unwrap_or_else(|| directory.path().join("home"));
        self.prepare_home(&home);
        let process = Process::spawn(&mut self.command(&home, directory.path()));
        StartingDaemon { process, home, builder: self, directory }
    }

    pub(super) fn binary(&self) -> &Path {
        &self.binary
    }

    fn prepare_home(&self, home: &Path) {
        DirBuilder::new().recursive(true).mode(0o700).create(home).expect("the home can be created");
        if let Some(text) = &self.config {
            fs::write(home.join("config.toml"), text).expect("the home can be written to");
        }
    }

    fn command(&self, home: &Path, user_home: &Path) -> Command {
        let mut command = clean_command(&self.binary, user_home);
        command.args(["serve", "--port", &self.port.to_string(), "--home"]).arg(home);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Parses the port from the line that the daemon prints when it is ready; ignores an incomplete last line.
fn parse_port(stdout: &str) -> Option<u16> {
    let complete = &stdout[..=stdout.rfind('\n')?];
    let address = complete.lines().find_map(|line| line.trim().strip_prefix("Server: http://127.0.0.1:"))?;
    address.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn read_token(home: &Path, port: u16) -> Option<String> {
    let name = if port == DEFAULT_PORT { "rpc.token".to_owned() } else { format!("rpc-{port}.token") };
    fs::read_to_string(home.join(name)).ok().map(|token| token.trim().to_owned())
}
