//! The servers under test: the daemon, the floor and the scripted model, each on a free port, and how to call them.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Bench;
use super::http::{self, Connection};
use super::process::{ChildProcess, clean_command};
use crate::command::Failure;

/// A daemon that nobody calls comes to rest when it has seen nothing happen between two looks, ten seconds apart.
const IDLE_WAIT: Duration = Duration::from_secs(22);

/// Returns when all daemons that nobody calls have come to rest.
pub(crate) fn wait_until_idle() {
    let since = Instant::now();
    while let Some(left) = IDLE_WAIT.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

/// What the daemon is told beside the port and its home.
#[derive(Default)]
pub(crate) struct DaemonOptions<'a> {
    pub(crate) model: Option<SocketAddr>,
    /// As in `limits.turns_running_max`.
    pub(crate) turns_running_max: Option<usize>,
    /// A home that is there already; a fresh one without it.
    pub(crate) home: Option<&'a Path>,
}

/// A server that answers.
pub(crate) struct Server {
    pub(crate) process: ChildProcess,
    pub(crate) address: SocketAddr,
    /// The daemon's; empty for the others.
    pub(crate) home: PathBuf,
    token: Option<String>,
    /// Kept open: a server that prints more must not fail.
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

    /// Asks `model` with so many bytes at every call.
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

    /// A daemon with a home of its own, and its token read.
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

    /// Starts a program and reads its output up to the line that names its address.
    fn launch(bench: &Bench, mut command: Command, ready: &str, folder: &Path) -> Result<Self, Failure> {
        let messages = folder.join("stderr");
        let stderr = File::create(&messages)
            .map_err(|cause| Failure::Failed(format!("{}: {cause}", messages.display())))?;
        let mut process = bench.process_group.start(command.stdout(Stdio::piped()).stderr(stderr))?;
        let mut stdout =
            BufReader::new(process.take_stdout().ok_or_else(|| exited_early(&command, &messages))?);
        let address = loop {
            let mut line = String::new();
            match stdout.read_line(&mut line) {
                Ok(0) | Err(_) => return Err(exited_early(&command, &messages)),
                Ok(_) => {}
            }
            let authority = line.trim().strip_prefix(ready).and_then(|rest| rest.split('/').next());
            if let Some(address) = authority.and_then(|authority| authority.parse().ok()) {
                break address;
            }
        };
        Ok(Self { process, address, home: PathBuf::new(), token: None, _stdout: stdout })
    }

    /// The bytes of a call at a path, as our clients send them.
    pub(crate) fn request(&self, path: &str, method: &str, params: &str) -> Vec<u8> {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":1}}"#);
        http::post_request(self.address, path, self.token.as_deref(), &body)
    }

    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        Connection::open(self.address).map_err(|cause| self.failure(&cause))
    }

    pub(crate) fn failure(&self, cause: &io::Error) -> Failure {
        Failure::Failed(format!("the server on {}: {cause}", self.address))
    }

    /// Creates an agent whose context begins with `SYSTEM_PROMPT`.
    pub(crate) fn create_agent(&self, connection: &mut Connection, name: &str) -> Result<(), Failure> {
        let params = format!(r#"{{"agent_id":"{name}","system_prompt":"{SYSTEM_PROMPT}"}}"#);
        self.call(connection, "/", "create_agent", &params).map(|_| ())
    }

    /// Calls a method that has to succeed; gives the answer's body.
    pub(crate) fn call(
        &self,
        connection: &mut Connection,
        path: &str,
        method: &str,
        params: &str,
    ) -> Result<String, Failure> {
        let request = self.request(path, method, params);
        let answer = connection.call(&request).map_err(|cause| self.failure(&cause))?;
        let body = String::from_utf8_lossy(answer.body).into_owned();
        if body.contains(r#""result":"#) {
            return Ok(body);
        }
        Err(Failure::Failed(format!("{method} was answered {body}")))
    }
}

/// The key that the scripted model is called with.
pub(crate) const MODEL_KEY: &str = "sk-scripted";

/// The system prompt of the agents here; the turn group sends it to the model itself.
pub(crate) const SYSTEM_PROMPT: &str = "You are measured. Be brief.";

/// An empty folder in the leash's, for its owner alone: a daemon would not close one that holds other things.
pub(crate) fn temporary_folder(bench: &Bench) -> Result<PathBuf, Failure> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let folder = bench.process_group.folder().join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
    let made = DirBuilder::new().mode(0o700).create(&folder);
    made.map_err(|cause| Failure::Failed(format!("{}: {cause}", folder.display())))?;
    Ok(folder)
}

fn exited_early(command: &Command, messages: &Path) -> Failure {
    // Without its messages the name alone has to do.
    let said = fs::read_to_string(messages).unwrap_or_default();
    Failure::Failed(format!("{:?} ended before it served: {}", command.get_program(), said.trim()))
}
