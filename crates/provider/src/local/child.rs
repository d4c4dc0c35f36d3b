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
const HEALTH_POLL_INTERVAL: Duration = Duration::from_millis(25);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

const BACKOFF_FIRST: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long is waited for the end of a child whose connection was cut, and how often is looked: its sockets are closed
/// before it is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// One that lived this long did not fall over at once.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Where the child may find other programs.
const CHILD_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The most of its complaints that are passed to the log.
const STDERR_LOG_BYTES_MAX: u64 = 64 * 1024;

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
pub(super) struct Generation(u64);

#[derive(Default)]
struct State {
    running: Option<RunningProcess>,
    /// The last one that came to answer.
    generation: Generation,
    /// How the last one ended that did.
    last_exit: Option<String>,
    /// Times in a row that it fell over.
    crashes: u32,
    not_before: Option<Instant>,
}

struct RunningProcess {
    process: Process,
    /// Its end tells the child that the daemon is gone.
    _stdin: Option<ChildStdin>,
    started_at: Instant,
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
    pub(super) async fn ensure_running(&self) -> Result<Generation, Fault> {
        let mut state = self.state.lock().await;
        self.reap(&mut state);
        if state.running.is_some() {
            return Ok(state.generation);
        }
        if let Some(until) = state.not_before.take() {
            tokio::time::sleep_until(until).await;
        }
        let mut running = self.spawn()?;
        match self.wait_until_healthy(&mut running).await {
            Ok(()) => {
                tracing::info!(model = self.id, "the embedded model is running");
                state.running = Some(running);
                state.generation.0 += 1;
                Ok(state.generation)
            }
            Err(fault) => {
                state.record_crash();
                Err(fault)
            }
        }
    }

    /// How the child of this start has ended, if it has; one that is just about to is waited for.
    pub(super) async fn wait_for_exit(&self, start: Generation) -> Option<String> {
        let until = Instant::now() + EXIT_TIMEOUT;
        loop {
            {
                let mut state = self.state.lock().await;
                self.reap(&mut state);
                if state.running.is_none() || state.generation != start {
                    return Some(state.last_exit.clone().unwrap_or_default());
                }
            }
            if Instant::now() >= until {
                return None;
            }
            tokio::time::sleep(EXIT_POLL_INTERVAL).await;
        }
    }

    /// Looks whether it has ended; on its own when idle is no fall.
    fn reap(&self, state: &mut State) {
        let Some(running) = &mut state.running else { return };
        let Ok(Some(status)) = running.process.try_wait() else { return };
        let lived = running.started_at.elapsed();
        state.running = None;
        state.last_exit = Some(status.to_string());
        if status.success() || lived >= STABLE_AFTER {
            (state.crashes, state.not_before) = (0, None);
        }
        if !status.success() {
            tracing::warn!(model = self.id, "the embedded model ended: {status}");
            if lived < STABLE_AFTER {
                state.record_crash();
            }
        }
    }

    fn spawn(&self) -> Result<RunningProcess, Fault> {
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
            tokio::spawn(log_stderr(self.id.clone(), stderr));
        }
        Ok(RunningProcess { process, _stdin: stdin, started_at: Instant::now() })
    }

    async fn wait_until_healthy(&self, running: &mut RunningProcess) -> Result<(), Fault> {
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
            tokio::time::sleep(HEALTH_POLL_INTERVAL).await;
        }
    }

    pub(super) fn fault(&self, why: &str) -> Fault {
        let text = format!("The embedded model local/{} failed: {why}. The daemon's log says more.", self.id);
        Fault::new(FaultKind::Model, text)
    }
}

impl State {
    fn record_crash(&mut self) {
        let pause = BACKOFF_FIRST.saturating_mul(1 << self.crashes.min(16)).min(BACKOFF_MAX);
        self.crashes += 1;
        self.not_before = Some(Instant::now() + pause);
    }
}

async fn log_stderr(id: String, stderr: ChildStderr) {
    let mut stderr = BufReader::new(stderr);
    let mut lines = (&mut stderr).take(STDERR_LOG_BYTES_MAX).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::info!(model = id, "the embedded model says: {line}");
    }
    // A pipe that nobody reads would stop the child.
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
}
