//! One child process: started when it is not there, waited for until it answers, and not started too often when it keeps
//! falling over.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agent::{Fault, FaultKind};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child as Process, ChildStderr, ChildStdin, Command};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::LocalOptions;
use crate::endpoint::Endpoint;

/// How often is looked whether it answers.
const HEALTH_PAUSE: Duration = Duration::from_millis(25);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long is waited for the end of a child whose connection was cut, and how often is looked: its sockets are closed
/// before it is gone.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const END_PAUSE: Duration = Duration::from_millis(10);

/// One that lived this long did not fall over at once.
const LIVED: Duration = Duration::from_secs(60);

/// Where the child may find other programs.
const CHILD_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The most of its complaints that are passed to the log.
const COMPLAINT_BYTES_MAX: u64 = 64 * 1024;

pub(super) struct Child {
    id: String,
    file: PathBuf,
    socket: PathBuf,
    options: LocalOptions,
    endpoint: Arc<Endpoint>,
    state: Mutex<State>,
}

/// Which of its starts a child is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Start(u64);

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// The last one that came to answer.
    start: Start,
    /// How the last one ended that did.
    end: Option<String>,
    /// Times in a row that it fell over.
    falls: u32,
    not_before: Option<Instant>,
}

struct Running {
    process: Process,
    /// Its end tells the child that the daemon is gone.
    _stdin: Option<ChildStdin>,
    since: Instant,
}

impl Child {
    pub(super) fn new(
        id: &str,
        file: PathBuf,
        socket: PathBuf,
        options: &LocalOptions,
        endpoint: Arc<Endpoint>,
    ) -> Self {
        let state = Mutex::default();
        Self { id: id.to_owned(), file, socket, options: options.clone(), endpoint, state }
    }

    /// Returns when the child answers. Whoever comes meanwhile waits for the same one.
    pub(super) async fn ensure_running(&self) -> Result<Start, Fault> {
        let mut state = self.state.lock().await;
        self.note_end(&mut state);
        if state.running.is_some() {
            return Ok(state.start);
        }
        if let Some(until) = state.not_before.take() {
            tokio::time::sleep_until(until).await;
        }
        let mut running = self.start()?;
        match self.wait_until_it_answers(&mut running).await {
            Ok(()) => {
                tracing::info!(model = self.id, "the embedded model is running");
                state.running = Some(running);
                state.start.0 += 1;
                Ok(state.start)
            }
            Err(fault) => {
                state.note_fall();
                Err(fault)
            }
        }
    }

    /// How the child of this start has ended, if it has; one that is just about to is waited for.
    pub(super) async fn end_of(&self, start: Start) -> Option<String> {
        let until = Instant::now() + END_TIMEOUT;
        loop {
            {
                let mut state = self.state.lock().await;
                self.note_end(&mut state);
                if state.running.is_none() || state.start != start {
                    return Some(state.end.clone().unwrap_or_default());
                }
            }
            if Instant::now() >= until {
                return None;
            }
            tokio::time::sleep(END_PAUSE).await;
        }
    }

    /// Looks whether it has ended; on its own when idle is no fall.
    fn note_end(&self, state: &mut State) {
        let Some(running) = &mut state.running else { return };
        let Ok(Some(status)) = running.process.try_wait() else { return };
        let lived = running.since.elapsed();
        state.running = None;
        state.end = Some(status.to_string());
        if status.success() || lived >= LIVED {
            (state.falls, state.not_before) = (0, None);
        }
        if !status.success() {
            tracing::warn!(model = self.id, "the embedded model ended: {status}");
            if lived < LIVED {
                state.note_fall();
            }
        }
    }

    fn start(&self) -> Result<Running, Fault> {
        // What an earlier child has left behind would keep this one from listening.
        match std::fs::remove_file(&self.socket) {
            Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
                return Err(self.fault("its socket cannot be put away").caused_by(fault));
            }
            _ => {}
        }
        let mut command = Command::new(&self.options.program);
        // Keys of other models are none of its business.
        command.env_clear().env("PATH", CHILD_PATH);
        command.args(&self.options.args);
        command.arg("--model").arg(&self.file).arg("--socket").arg(&self.socket);
        command.arg("--idle-s").arg(self.options.idle.as_secs().to_string()).arg("--die-with-stdin");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process =
            command.spawn().map_err(|fault| self.fault("it cannot be started").caused_by(fault))?;
        let stdin = process.stdin.take();
        if let Some(stderr) = process.stderr.take() {
            // Ends with the child.
            tokio::spawn(log_complaints(self.id.clone(), stderr));
        }
        Ok(Running { process, _stdin: stdin, since: Instant::now() })
    }

    async fn wait_until_it_answers(&self, running: &mut Running) -> Result<(), Fault> {
        let until = Instant::now() + self.options.start_timeout;
        let url = self.endpoint.base_url.at_root("health");
        loop {
            if let Ok(Some(status)) = running.process.try_wait() {
                return Err(self.fault(&format!("it ended at its start ({status})")));
            }
            let asked = self.endpoint.get(url.clone())?;
            if let Ok(Ok(response)) = tokio::time::timeout(HEALTH_TIMEOUT, asked.send()).await
                && response.status().is_success()
            {
                return Ok(());
            }
            if Instant::now() >= until {
                let seconds = self.options.start_timeout.as_secs_f64();
                return Err(self.fault(&format!("it did not answer in {seconds} s")));
            }
            tokio::time::sleep(HEALTH_PAUSE).await;
        }
    }

    pub(super) fn fault(&self, why: &str) -> Fault {
        let text = format!("The embedded model local/{} failed: {why}. The daemon's log says more.", self.id);
        Fault::new(FaultKind::Model, text)
    }
}

impl State {
    fn note_fall(&mut self) {
        let pause = PAUSE_FIRST.saturating_mul(1 << self.falls.min(16)).min(PAUSE_MAX);
        self.falls += 1;
        self.not_before = Some(Instant::now() + pause);
    }
}

async fn log_complaints(id: String, stderr: ChildStderr) {
    let mut stderr = BufReader::new(stderr);
    let mut lines = (&mut stderr).take(COMPLAINT_BYTES_MAX).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::info!(model = id, "the embedded model says: {line}");
    }
    // A pipe that nobody reads would stop the child.
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
}
