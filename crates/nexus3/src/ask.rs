//! `nexus3 ask`: the question goes to the running daemon, or to one that is started for it and stops by itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nexus3_client::{DETECT_TIMEOUT, Detection, Endpoint, detect_server};
use tokio::time::Instant;

use crate::config::Config;
use crate::home::{self, Environment};
use crate::model_registry;
use crate::models::{self, Consent, PullOutcome};
use crate::{Failure, console_options, console_runtime, signals};

/// How long a daemon that nobody uses any more stays, so that the next question finds it.
const IDLE_TIMEOUT_S: &str = "900";

/// How long a daemon may take until it answers. Settling what a crash left takes its time.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How often to look whether it answers.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The most of what a daemon said that is shown when it did not start.
const STDERR_BYTES_MAX: u64 = 4096;

pub(crate) fn run(
    args: console::AskArgs,
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Result<u8, Failure> {
    let options = console_options(home.to_owned(), config, environment)?;
    let runtime = console_runtime()?;
    let endpoint = Endpoint::new(&config.host, args.port().unwrap_or(config.port));
    let needs_model = args.model.is_none();
    let consent = if args.yes { Consent::Given } else { Consent::Ask };
    let (mut input, mut output, mut errors) = (io::stdin(), io::stdout(), io::stderr());
    let question = console::AskRequest::read(args, &mut input).map_err(Failure::Run)?;
    if question.is_empty() {
        let text = "there is no question: give a text, or - to read it from standard input";
        return Err(Failure::Usage(text.to_owned()));
    }
    let is_first = runtime.block_on(detect_server(&endpoint, DETECT_TIMEOUT)) == Detection::NoServer;
    if is_first && needs_model {
        match ensure_model(home, config, environment, consent, &runtime)? {
            ModelAvailability::Available => {}
            ModelAvailability::Declined(code) => return Ok(code),
        }
    }
    let streams = console::Streams { input: &mut input, output: &mut output, errors: &mut errors };
    let start = async |port| start_daemon(home, &config.host, port).await.map_err(|fault| fault.to_string());
    Ok(runtime.block_on(console::ask(question, &options, start, streams, signals::wait_for_interrupt())))
}

/// Whether there is a model to ask.
enum ModelAvailability {
    Available,
    /// The user does not want one; the exit code.
    Declined(u8),
}

/// Makes sure that there is a model: one that was chosen, of a key, of a server on this machine, or pulled before. With
/// none of them the small one is offered.
fn ensure_model(
    home: &Path,
    config: &Config,
    environment: &Environment,
    consent: Consent,
    runtime: &tokio::runtime::Runtime,
) -> Result<ModelAvailability, Failure> {
    let book = model_registry::open_registry(home, config, environment)?;
    if runtime.block_on(book.resolve_default()) {
        return Ok(ModelAvailability::Available);
    }
    let _ = writeln!(
        io::stderr(),
        "There is no model yet: no key in the environment, no model of a server on this machine, no weights."
    );
    match models::offer_pull(&models::first_model()?, consent, home, environment)? {
        PullOutcome::AlreadyInstalled(_) | PullOutcome::Installed(_) => Ok(ModelAvailability::Available),
        PullOutcome::Declined => {
            let text = "Then set a key (such as ANTHROPIC_API_KEY or OPENAI_API_KEY), start a model server (such as \
                        Ollama), or see nexus3 models.";
            let _ = writeln!(io::stderr(), "{text}");
            Ok(ModelAvailability::Declined(1))
        }
        PullOutcome::Interrupted => Ok(ModelAvailability::Declined(console::EXIT_INTERRUPTED)),
    }
}

/// Starts a daemon of its own, which outlives this process, and waits until it answers.
async fn start_daemon(home: &Path, host: &str, port: u16) -> Result<(), Failure> {
    home::prepare(home)?;
    let mut said = create_stderr_file(home)?;
    let mut daemon = spawn_daemon(home, port, &said)?;
    let endpoint = Endpoint::new(host, port);
    let until = Instant::now() + START_TIMEOUT;
    while Instant::now() < until {
        if detect_server(&endpoint, DETECT_TIMEOUT).await == Detection::NexusServer {
            return Ok(());
        }
        if let Ok(Some(status)) = daemon.try_wait() {
            return Err(Failure::Run(format!(
                "the daemon did not start ({status}): {}",
                read_stderr(&mut said)
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    // It may be at work still; two of them must not be.
    let _ = daemon.kill();
    Err(Failure::Run(format!(
        "the daemon did not answer within {} s: {}; start it with nexus3 serve to see why",
        START_TIMEOUT.as_secs(),
        read_stderr(&mut said)
    )))
}

fn spawn_daemon(home: &Path, port: u16, said: &File) -> Result<Child, Failure> {
    let cannot = |fault: io::Error| Failure::Run(format!("the daemon cannot be started: {fault}"));
    Command::new(std::env::current_exe().map_err(cannot)?)
        .arg("--home")
        .arg(home)
        .args(["serve", "--port", &port.to_string(), "--idle-timeout", IDLE_TIMEOUT_S])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said.try_clone().map_err(cannot)?)
        // Ctrl-C is meant for the question, not for the daemon.
        .process_group(0)
        .spawn()
        .map_err(cannot)
}

/// Where the daemon's last words go: nobody reads its standard error. Its logs are elsewhere.
fn create_stderr_file(home: &Path) -> Result<File, Failure> {
    let path = home.join("ask.stderr");
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .map_err(|fault| Failure::Run(format!("{} cannot be written: {fault}", path.display())))
}

fn read_stderr(said: &mut File) -> String {
    let mut text = Vec::new();
    // What cannot be read is not shown.
    let _ = said.rewind().and_then(|()| said.take(STDERR_BYTES_MAX).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    match text.trim() {
        "" => "it said nothing".to_owned(),
        said => said.to_owned(),
    }
}
