//! Starting the daemon under test: its arguments, its clean environment, its home, and the wait until it is ready.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::AtomicU64;

use tempfile::TempDir;

use super::TestDaemon;
use crate::command::clean_command;
use crate::model::ScriptedModel;
use crate::process::captured_output::OutputWait;
use crate::process::{PROCESS_TIMEOUT, Process};

/// The port whose token file has no number in its name.
const DEFAULT_PORT: u16 = 8765;

/// How a daemon is started.
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

/// A daemon that ended before it was ready.
#[derive(Debug)]
pub struct FailedStart {
    /// How it ended.
    pub status: ExitStatus,
    /// Everything it wrote to stdout.
    pub stdout: String,
    /// Everything it wrote to stderr.
    pub stderr: String,
}

impl fmt::Display for FailedStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, stdout, stderr } = self;
        write!(
            f,
            "the daemon ended before it was ready: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }
}

impl std::error::Error for FailedStart {}

/// A daemon that may not be ready yet. Dropping it kills the process and removes what was made for it.
#[derive(Debug)]
#[must_use = "a daemon that is dropped is killed"]
pub struct StartingDaemon {
    pub(super) process: Process,
    pub(super) home: PathBuf,
    pub(super) builder: TestDaemonBuilder,
    pub(super) directory: TempDir,
}

impl StartingDaemon {
    /// Waits until it is ready; panics only where it is neither ready nor ended after 20 s.
    pub fn wait_ready(self) -> Result<TestDaemon, FailedStart> {
        let Self { process, home, builder, directory } = self;
        match process.stdout.wait(PROCESS_TIMEOUT, parse_port) {
            OutputWait::Found(port) => {
                let token = read_token(&home, port);
                let last_id = AtomicU64::new(0);
                Ok(TestDaemon { process, port, home, token, last_id, builder, directory })
            }
            OutputWait::Closed => {
                let status = process.wait_exit();
                let status = status.unwrap_or_else(|| panic!("the daemon closed stdout and stays{process}"));
                Err(FailedStart { status, stdout: process.stdout.text(), stderr: process.stderr.text() })
            }
            OutputWait::TimedOut => {
                panic!("the daemon did not say its address within {PROCESS_TIMEOUT:?}{process}")
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

    /// Sets a variable in its environment, which has only PATH, TZ and HOME otherwise.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Takes a variable away again.
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// Takes this port instead of a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Writes `config.toml` into the home before the start.
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Uses the scripted model: `--model openai/scripted` and the variables that lead there.
    pub fn model(self, model: &ScriptedModel) -> Self {
        self.arg("--model")
            .arg("openai/scripted")
            .env("OPENAI_BASE_URL", model.base_url())
            .env("OPENAI_API_KEY", model.key().unwrap_or("sk-scripted"))
    }

    /// Uses this home, which stays when the daemon is dropped, instead of a fresh one.
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Starts the daemon and waits until it is ready; panics where it ends before, or after 20 s.
    pub fn start(self) -> TestDaemon {
        self.try_start().unwrap_or_else(|failed| panic!("{failed}"))
    }

    /// Starts the daemon and waits until it is ready; panics only where it is neither ready nor ended after 20 s.
    pub fn try_start(self) -> Result<TestDaemon, FailedStart> {
        self.spawn().wait_ready()
    }

    /// Starts the daemon and does not wait: it can be ended before it is ready.
    pub fn spawn(self) -> StartingDaemon {
        let directory = TempDir::new().expect("a temporary directory can be made");
        self.spawn_in(directory)
    }

    /// What was made for an earlier daemon is used again.
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
        DirBuilder::new().recursive(true).mode(0o700).create(home).expect("the home can be made");
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

/// The port in the line that the daemon prints when it is ready; a line still being written says nothing yet.
fn parse_port(stdout: &str) -> Option<u16> {
    let whole = &stdout[..=stdout.rfind('\n')?];
    let address = whole.lines().find_map(|line| line.trim().strip_prefix("Server: http://127.0.0.1:"))?;
    address.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn read_token(home: &Path, port: u16) -> Option<String> {
    let name = if port == DEFAULT_PORT { "rpc.token".to_owned() } else { format!("rpc-{port}.token") };
    fs::read_to_string(home.join(name)).ok().map(|token| token.trim().to_owned())
}
