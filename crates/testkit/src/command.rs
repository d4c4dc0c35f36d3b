//! Runs a command to completion in the clean environment that all processes of a test get.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::process::{PROCESS_TIMEOUT, Process, exit_code};

/// Output of a finished command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit code; 128 + the signal number if a signal ended it.
    pub code: i32,
    /// Everything it wrote to stdout.
    pub stdout: String,
    /// Everything it wrote to stderr.
    pub stderr: String,
}

/// Runs a command with an empty stdin and only PATH, TZ, HOME, NEXUS3_HOME (both `home`) and `env` in its environment;
/// panics if it takes longer than 60 s.
pub fn run(binary: impl AsRef<OsStr>, args: &[&str], env: &[(&str, &str)], home: &Path) -> CommandOutput {
    let mut command = clean_command(binary, home);
    command.env("NEXUS3_HOME", home).args(args).envs(env.iter().copied());
    let process = Process::spawn(&mut command);
    let Some(status) = process.wait_exit() else {
        panic!("{command:?} did not exit within {PROCESS_TIMEOUT:?}{process}");
    };
    CommandOutput { code: exit_code(status), stdout: process.stdout.text(), stderr: process.stderr.text() }
}

/// A command whose environment has only PATH, TZ and HOME.
#[expect(clippy::disallowed_methods, reason = "a child that starts others needs the search path of the test")]
pub(crate) fn clean_command(binary: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_clear().env("TZ", "UTC").env("HOME", home);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}
