//! Servers of the benchmark: the daemon, bare hyper, the relay and the scripted model, each on a free port.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::Bench;
use super::http::{self, Connection};
use super::process::{ChildProcess, clean_command};
use crate::command::Failure;

/// Options of the daemon.
#[derive(Default)]
pub(crate) struct DaemonOptions<'a> {
    pub(crate) model: Option<SocketAddr>,
    /// The setting `limits.turns_running_max`.
    pub(crate) turns_running_max: Option<usize>,
    /// An existing home; by default a new, empty one.
    pub(crate) home: Option<&'a Path>,
}

/// A running server that accepts requests.
pub(crate) struct Server {
    pub(crate) process: ChildProcess,
    pub(crate) address: SocketAddr,
    /// The daemon's home; empty for other servers.
    pub(crate) home: PathBuf,
    token: Option<String>,
    /// Held open, because a write to a closed pipe would fail the server.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn baseline(bench: &Bench) -> Result<Self, Failure> {
        Self::launch(
            bench,
            clean_command(&bench.programs.baseline),
            "Server: http://",
            &temporary_folder(bench)?,
        )
    }

    /// Starts the relay, which sends a request of `bytes` bytes to `model` at every call.
    pub(crate) fn relay(bench: &Bench, model: SocketAddr, bytes: usize) -> Result<Self, Failure> {
        let mut command = clean_command(&bench.programs.relay);
        command.arg(format!("http://{model}/v1/chat/completions")).arg(bytes.to_string());
        Self::launch(bench, command, "Server: http://", &temporary_folder(bench)?)
    }

    pub(crate) fn model(bench: &Bench) -> Result<Self, Failure> {
        Self::launch(
            bench,
            clean_command(&bench.programs.scripted_model),
            "Listening on http://",
            &temporary_folder(bench)?,
        )
    }

    /// Starts a daemon and reads its token.
    pub(crate) fn daemon(bench: &Bench, options: &DaemonOptions<'_>) -> Result<Self, Failure> {
        let home = options.home.map_or_else(|| temporary_folder(bench), |home| Ok(home.to_owned()))?;
        let mut command = clean_command(&bench.programs.nexus3);
        command.arg("--home").arg(&home).args(["serve", "0"]);
        if let Some(model) = options.model {
            command.args(["--model", "openai/scripted"]);
            command.env("OPENAI_BASE_URL", format!("http://{model}/v1"));
            command.env("OPENAI_API_KEY", MODEL_KEY);
        }
        if let Some(turns) = options.turns_running_max {
            command.env("NEXUS3_LIMITS_TURNS_RUNNING_MAX", turns.to_string());
        }
        let mut daemon = Self::launch(bench, command, "Server: http://", &home)?;
        let path = home.join(format!("rpc-{}.token", daemon.address.port()));
        let token = fs::read_to_string(&path)
            .map_err(|cause| Failure::Failed(format!("{}: {cause}", path.display())))?;
        daemon.token = Some(token.trim().to_owned());
        daemon.home = home;
        Ok(daemon)
    }

    /// Starts a program and reads its stdout up to the line with its address, which follows `ready_prefix`.
    fn launch(
        bench: &Bench,
        mut command: Command,
        ready_prefix: &str,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let stderr_path = folder.join("stderr");
        let stderr = File::create(&stderr_path)
            .map_err(|cause| Failure::Failed(format!("{}: {cause}", stderr_path.display())))?;
        let mut process = bench.process_group.start(command.stdout(Stdio::piped()).stderr(stderr))?;
        let stdout = process.take_stdout().ok_or_else(|| exited_early(&command, &stderr_path))?;
        match wait_ready(stdout, ready_prefix, READY_TIMEOUT) {
            Ok((address, stdout)) => {
                Ok(Self { process, address, home: PathBuf::new(), token: None, _stdout: stdout })
            }
            Err(RecvTimeoutError::Disconnected) => Err(exited_early(&command, &stderr_path)),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Failed(format!(
                "{:?} was not ready after {} s; {}",
                command.get_program(),
                READY_TIMEOUT.as_secs(),
                process.waiting_threads()
            ))),
        }
    }

    /// Returns the bytes of a JSON-RPC request to a path.
    pub(crate) fn request(&self, path: &str, method: &str, params: &str) -> Vec<u8> {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":1}}"#);
        http::post_request(self.address, path, self.token.as_deref(), &body)
    }

    /// Returns the bytes of a GET request for a path.
    pub(crate) fn get_request(&self, path: &str) -> Vec<u8> {
        http::get_request(self.address, path, self.token.as_deref())
    }

    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        Connection::open(self.address).map_err(|cause| self.failure(&cause))
    }

    pub(crate) fn failure(&self, cause: &io::Error) -> Failure {
        Failure::Failed(format!("server on {}: {cause}", self.address))
    }

    /// Creates an agent with `SYSTEM_PROMPT`.
    pub(crate) fn create_agent(&self, connection: &mut Connection, name: &str) -> Result<(), Failure> {
        let params = format!(r#"{{"agent_id":"{name}","system_prompt":"{SYSTEM_PROMPT}"}}"#);
        self.call(connection, "/", "create_agent", &params).map(|_| ())
    }

    /// Calls a method that has to succeed and returns the body of the response.
    pub(crate) fn call(
        &self,
        connection: &mut Connection,
        path: &str,
        method: &str,
        params: &str,
    ) -> Result<String, Failure> {
        let request = self.request(path, method, params);
        let response = connection.call(&request).map_err(|cause| self.failure(&cause))?;
        let body = String::from_utf8_lossy(response.body).into_owned();
        if body.contains(r#""result":"#) {
            return Ok(body);
        }
        Err(Failure::Failed(format!("{method} failed: {body}")))
    }
}

/// A server that is not ready by then has failed. The daemon syncs files at its start, which takes long while the disk
/// still writes back a build.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads up to the line with the address. The thread ends with the pipe: when the process exits or is killed.
fn wait_ready(
    stdout: ChildStdout,
    ready_prefix: &str,
    timeout: Duration,
) -> Result<(SocketAddr, BufReader<ChildStdout>), RecvTimeoutError> {
    let (sender, receiver) = mpsc::channel();
    let ready_prefix = ready_prefix.to_owned();
    thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        while stdout.read_line(&mut line).is_ok_and(|count| count > 0) {
            let authority = line.trim().strip_prefix(&ready_prefix).and_then(|rest| rest.split('/').next());
            if let Some(address) = authority.and_then(|authority| authority.parse().ok()) {
                // An error means that the timeout has passed.
                let _ = sender.send((address, stdout));
                return;
            }
            line.clear();
        }
    });
    receiver.recv_timeout(timeout)
}

/// The API key of the scripted model.
pub(crate) const MODEL_KEY: &str = "sk-scripted";

/// The system prompt of all agents; the group `turn` also sends it directly to the model.
pub(crate) const SYSTEM_PROMPT: &str = "You are measured. Be brief.";

/// Creates an empty directory with mode 0700 in the process group's directory. The daemon would not set this mode on a
/// directory that contains other files.
pub(crate) fn temporary_folder(bench: &Bench) -> Result<PathBuf, Failure> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let folder = bench.process_group.folder().join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
    let created = DirBuilder::new().mode(0o700).create(&folder);
    created.map_err(|cause| Failure::Failed(format!("{}: {cause}", folder.display())))?;
    Ok(folder)
}

fn exited_early(command: &Command, stderr_path: &Path) -> Failure {
    let stderr = fs::read_to_string(stderr_path).unwrap_or_default();
    Failure::Failed(format!("{:?} exited before it was ready: {}", command.get_program(), stderr.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for_output_of(script: &str, timeout: Duration) -> Result<SocketAddr, RecvTimeoutError> {
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let ready = wait_ready(child.stdout.take().unwrap(), "Server: http://", timeout);
        child.kill().unwrap();
        child.wait().unwrap();
        ready.map(|(address, _)| address)
    }

    #[test]
    fn server_that_is_silent_or_exits_is_not_awaited_for_ever() {
        let minute = Duration::from_secs(60);
        let ready = "echo starting; echo Server: http://127.0.0.1:7/; exec sleep 60";
        assert_eq!(wait_for_output_of(ready, minute), Ok(SocketAddr::from(([127, 0, 0, 1], 7))));
        assert_eq!(wait_for_output_of("echo no", minute), Err(RecvTimeoutError::Disconnected));
        let silent = wait_for_output_of("exec sleep 60", Duration::from_millis(1));
        assert_eq!(silent, Err(RecvTimeoutError::Timeout));
    }
}
