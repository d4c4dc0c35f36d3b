//! `nexus3 ask`: sends one question to the running daemon, or to a new one that stops after an idle timeout.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nexus3_client::{DETECT_TIMEOUT, Detection, Endpoint, detect_server};
use tokio::time::Instant;

use crate::config::Config;
use crate::home::{self, Environment};
use crate::local_engine;
use crate::model_registry;
use crate::models::{self, Consent, PullOutcome};
use crate::{Failure, console_errors, console_options, console_output, console_runtime, signals};

/// Idle timeout of a daemon that `ask` started: long enough that the next question finds it running.
const IDLE_TIMEOUT_S: &str = "900";

/// Time allowed for the daemon to start. Resuming turns after a crash can take long.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between checks whether the daemon responds.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of the daemon's standard error that are shown when it did not start.
const STDERR_BYTES_MAX: u64 = 4096;

pub(crate) fn run(
    args: console::AskArgs,
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Result<u8, Failure> {
    let options = console_options(home.to_owned(), config, environment)?;
    let runtime = console_runtime()?;
    let rooms = config.room_options();
    let endpoint = Endpoint::new(rooms.host, args.port().unwrap_or(rooms.port));
    let needs_model = args.model.is_none();
    let consent = if args.yes { Consent::Given } else { Consent::Ask };
    let (mut input, mut output, mut errors) = (io::stdin(), console_output(), console_errors());
    let request = console::AskRequest::read(args, &mut input).map_err(Failure::Run)?;
    if request.is_empty() {
        let text = "the question is empty: pass a text, or - to read it from standard input";
        return Err(Failure::Usage(text.to_owned()));
    }
    let starts_daemon = runtime.block_on(detect_server(&endpoint, DETECT_TIMEOUT)) == Detection::NoServer;
    if starts_daemon && needs_model {
        match ensure_model(home, config, environment, consent, &runtime)? {
            ModelAvailability::Available => {}
            ModelAvailability::Declined(code) => return Ok(code),
        }
    }
    let streams = console::Streams { input: &mut input, output: &mut output, errors: &mut errors };
    let start = async |port| start_daemon(home, rooms.host, port).await.map_err(|fault| fault.to_string());
    Ok(runtime.block_on(console::ask(request, &options, start, streams, signals::wait_for_interrupt())))
}

/// Whether a default model can be used.
enum ModelAvailability {
    Available,
    /// The user declined or interrupted the download; holds the exit code.
    Declined(u8),
}

/// Checks that a default model exists: configured, reachable with an API key, on a local model server, or downloaded.
/// Otherwise offers to download a small one.
fn ensure_model(
    home: &Path,
    config: &Config,
    environment: &Environment,
    consent: Consent,
    runtime: &tokio::runtime::Runtime,
) -> Result<ModelAvailability, Failure> {
    let registry = model_registry::open_registry(home, config, environment, Arc::default())?;
    if runtime.block_on(registry.resolve_default()) {
        return Ok(ModelAvailability::Available);
    }
    let _ = writeln!(
        io::stderr(),
        "No model found: no API key in the environment, no model server on this machine, no downloaded model."
    );
    local_engine::require()?;
    match models::offer_pull(&models::starter_model()?, consent, home, environment)? {
        PullOutcome::AlreadyInstalled(_) | PullOutcome::Installed(_) => Ok(ModelAvailability::Available),
        PullOutcome::Declined => {
            let text = "To use another model, set an API key (such as ANTHROPIC_API_KEY or OPENAI_API_KEY), start a \
                        model server (such as Ollama), or run nexus3 models.";
            let _ = writeln!(io::stderr(), "{text}");
            Ok(ModelAvailability::Declined(1))
        }
        PullOutcome::Interrupted => Ok(ModelAvailability::Declined(console::EXIT_INTERRUPTED)),
    }
}

/// Starts a daemon that outlives this process and waits until it responds.
async fn start_daemon(home: &Path, host: &str, port: u16) -> Result<(), Failure> {
    home::prepare(home)?;
    let mut stderr_file = create_stderr_file(home)?;
    let mut daemon = spawn_daemon(home, port, &stderr_file)?;
    let endpoint = Endpoint::new(host, port);
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        if detect_server(&endpoint, DETECT_TIMEOUT).await == Detection::NexusServer {
            return Ok(());
        }
        if let Ok(Some(status)) = daemon.try_wait() {
            return Err(Failure::Run(format!(
                "the daemon did not start ({status}): {}",
                read_stderr(&mut stderr_file)
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    // The daemon may still be starting; two daemons must not run on one home.
    let _ = daemon.kill();
    Err(Failure::Run(format!(
        "the daemon did not respond within {} s: {}; run nexus3 serve to see why",
        START_TIMEOUT.as_secs(),
        read_stderr(&mut stderr_file)
    )))
}

fn spawn_daemon(home: &Path, port: u16, stderr_file: &File) -> Result<Child, Failure> {
    let start_failure = |fault: io::Error| Failure::Run(format!("cannot start the daemon: {fault}"));
    Command::new(std::env::current_exe().map_err(start_failure)?)
        .arg("--home")
        .arg(home)
        .args(["serve", "--port", &port.to_string(), "--idle-timeout", IDLE_TIMEOUT_S])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr_file.try_clone().map_err(start_failure)?)
        // Ctrl-C cancels the question; it must not stop the daemon.
        .process_group(0)
        .spawn()
        .map_err(start_failure)
}

/// Creates the file that receives the daemon's standard error, so that a failed start can be explained.
fn create_stderr_file(home: &Path) -> Result<File, Failure> {
    let path = home.join("ask.stderr");
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .map_err(|fault| Failure::Run(format!("cannot write {}: {fault}", path.display())))
}

fn read_stderr(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // This text only explains another failure: on a read error it stays empty.
    let _ = file.rewind().and_then(|()| file.take(STDERR_BYTES_MAX).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    match text.trim() {
        "" => "no output on standard error".to_owned(),
        text => text.to_owned(),
    }
}
