//! Child process of the embedded model: started on demand, polled until healthy, and restarted with backoff after
//! crashes.

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

/// Interval and timeout of health checks during the start.
const HEALTH_POLL_INTERVAL: Duration = Duration::from_millis(25);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

const BACKOFF_FIRST: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Timeout and poll interval for the exit of a child after a lost connection: its sockets close before it exits.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Uptime after which a crash does not delay the next start.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// `PATH` of the child.
const CHILD_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Most bytes of the child's stderr that are logged.
const STDERR_LOG_BYTES_MAX: u64 = 64 * 1024;

/// The model server child of one model file.
pub(super) struct Child {
    id: String,
    file: PathBuf,
    socket: PathBuf,
    options: LocalOptions,
    endpoint: Arc<Endpoint>,
    state: Mutex<State>,
}

/// Number of a start of the child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Generation(u64);

#[derive(Default)]
struct State {
    running: Option<RunningProcess>,
    /// Last start that became healthy.
    generation: Generation,
    /// Exit status of the last child that exited.
    last_exit: Option<String>,
    /// Consecutive crashes.
    crashes: u32,
    /// End of the backoff before the next start.
    not_before: Option<Instant>,
}

struct RunningProcess {
    process: Process,
    /// Closing it makes the child exit.
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

    /// Starts the child if it is not running and waits until it is healthy. Concurrent callers wait for the same start.
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

    /// Returns the exit status of the child of this generation, if it has exited or exits shortly.
    pub(super) async fn wait_for_exit(&self, generation: Generation) -> Option<String> {
        let until = Instant::now() + EXIT_TIMEOUT;
        loop {
            {
                let mut state = self.state.lock().await;
                self.reap(&mut state);
                if state.running.is_none() || state.generation != generation {
                    return Some(state.last_exit.clone().unwrap_or_default());
                }
            }
            if Instant::now() >= until {
                return None;
            }
            tokio::time::sleep(EXIT_POLL_INTERVAL).await;
        }
    }

    /// Reaps the child if it has exited. A clean exit, such as when idle, is no crash.
    fn reap(&self, state: &mut State) {
        let Some(running) = &mut state.running else { return };
        let Ok(Some(status)) = running.process.try_wait() else { return };
        let uptime = running.started_at.elapsed();
        state.running = None;
        state.last_exit = Some(status.to_string());
        if status.success() || uptime >= STABLE_AFTER {
            (state.crashes, state.not_before) = (0, None);
        }
        if !status.success() {
            tracing::warn!(model = self.id, "the embedded model exited: {status}");
            if uptime < STABLE_AFTER {
                state.record_crash();
            }
        }
    }

    fn spawn(&self) -> Result<RunningProcess, Fault> {
        // The socket of an earlier child would prevent this one from binding.
        match std::fs::remove_file(&self.socket) {
            Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
                return Err(self.fault("its old socket cannot be removed").caused_by(fault));
            }
            _ => {}
        }
        let mut command = Command::new(&self.options.program);
        // The child must not see the keys of other models.
        command.env_clear().env("PATH", CHILD_PATH);
        command.args(&self.options.args);
        command.arg("--model").arg(&self.file).arg("--socket").arg(&self.socket);
        command.arg("--idle-s").arg(self.options.idle.as_secs().to_string()).arg("--die-with-stdin");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process =
            command.spawn().map_err(|fault| self.fault("it cannot be started").caused_by(fault))?;
        let stdin = process.stdin.take();
        if let Some(stderr) = process.stderr.take() {
            // The task ends when the child exits.
            tokio::spawn(log_stderr(self.id.clone(), stderr));
        }
        Ok(RunningProcess { process, _stdin: stdin, started_at: Instant::now() })
    }

    async fn wait_until_healthy(&self, running: &mut RunningProcess) -> Result<(), Fault> {
        let until = Instant::now() + self.options.start_timeout;
        let url = self.endpoint.base_url.at_root("health");
        loop {
            if let Ok(Some(status)) = running.process.try_wait() {
                return Err(self.fault(&format!("it exited at startup ({status})")));
            }
            let request = self.endpoint.get(url.clone())?;
            if let Ok(Ok(response)) = tokio::time::timeout(HEALTH_TIMEOUT, request.send()).await
                && response.status().is_success()
            {
                return Ok(());
            }
            if Instant::now() >= until {
                let seconds = self.options.start_timeout.as_secs_f64();
                return Err(self.fault(&format!("it was not ready within {seconds} s")));
            }
            tokio::time::sleep(HEALTH_POLL_INTERVAL).await;
        }
    }

    pub(super) fn fault(&self, why: &str) -> Fault {
        let text = format!("The embedded model local/{} failed: {why}. See the daemon's log.", self.id);
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
        tracing::info!(model = id, "embedded model: {line}");
    }
    // A full pipe would block the child.
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
}
