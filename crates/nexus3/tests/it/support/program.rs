//! A child process that a test controls directly, for features that `TestDaemon` and `run` lack: another address, a
//! signal to a command, standard input.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use testkit::CommandOutput;

use super::{BIN, WAIT_MAX};

/// A running child process, killed when the handle is dropped.
pub(crate) struct Program {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: Option<BufReader<ChildStderr>>,
    stdout_read: String,
}

impl Program {
    /// Starts the binary with `input` on standard input. Its environment is `TZ`, `NEXUS3_HOME` and `env`.
    pub(crate) fn start(args: &[&str], env: &[(&str, &str)], home: &Path, input: &[u8]) -> Self {
        let mut command = Command::new(BIN);
        command.env_clear().env("TZ", "UTC").env("NEXUS3_HOME", home).envs(env.iter().copied()).args(args);
        Self::spawn(command, input)
    }

    /// Runs a shell command in the test's environment.
    pub(crate) fn shell(line: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        Self::spawn(command, b"")
    }

    fn spawn(mut command: Command, input: &[u8]) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|fault| panic!("cannot start {command:?}: {fault}"));
        let mut stdin = child.stdin.take().expect("stdin is piped");
        // A program may exit without reading its input.
        let _ = stdin.write_all(input);
        drop(stdin);
        let stdout = child.stdout.take().map(BufReader::new);
        let stderr = child.stderr.take().map(BufReader::new);
        Self { child, stdout, stderr, stdout_read: String::new() }
    }

    /// Waits for a line of stdout with this prefix and returns the rest of the line.
    pub(crate) fn wait_line(&mut self, start: &str) -> String {
        let stdout = self.stdout.as_mut().expect("a program's stdout is read before its exit");
        loop {
            let mut line = String::new();
            let bytes = stdout.read_line(&mut line).expect("stdout can be read");
            assert_ne!(bytes, 0, "stdout ended without {start:?}: {}", self.stdout_read);
            self.stdout_read += &line;
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
        }
    }

    /// Waits for the next line of stderr.
    pub(crate) fn next_stderr_line(&mut self) -> String {
        let stderr = self.stderr.as_mut().expect("a program's stderr is read before its exit");
        let mut line = String::new();
        stderr.read_line(&mut line).expect("stderr can be read");
        line
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal)
            .expect("a child that was not reaped takes signals");
    }

    /// Closes the read ends of stdout and stderr, so that writes of the program fail.
    pub(crate) fn stop_reading(&mut self) {
        self.stdout = None;
        self.stderr = None;
    }

    /// Waits for the exit and returns the code and the output.
    pub(crate) fn finish(mut self) -> CommandOutput {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let errors = thread::spawn(move || read_to_end(stderr));
        let output = thread::spawn(move || read_to_end(stdout));
        let status = self.wait_exit();
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        let stdout = std::mem::take(&mut self.stdout_read) + &output.join().expect("stdout can be read");
        let stderr = errors.join().expect("stderr can be read");
        CommandOutput { code: code.expect("a process exits by code or signal"), stdout, stderr }
    }

    /// Waits for the exit with a time limit, which `Child::wait` does not have.
    fn wait_exit(&mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.child);
        let (ended, end) = channel();
        thread::spawn(move || {
            let waited = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            // The receiver is gone when the test has timed out.
            let _ = ended.send(waited.is_ok());
        });
        assert!(end.recv_timeout(WAIT_MAX).expect("the program exits in time"), "a child can be waited for");
        self.child.wait().expect("a child can be reaped")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail if the program has exited already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_to_end(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    pipe.map(|mut pipe| pipe.read_to_string(&mut text));
    text
}
