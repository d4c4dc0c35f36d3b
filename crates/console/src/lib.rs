//! The command line: an ordinary client. Owns the words of `nexus3 rpc …` and `nexus3 ask`, and what they print; reads
//! neither the environment nor the terminal by itself, so that the binary and the tests hand in what they have.

mod args;
mod ask;
mod commands;
mod connection;
mod events;
mod images;
mod lifecycle;
mod send;
mod snapshot_file;
#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::pin::{Pin, pin};

pub use args::{AskArgs, CreateArgs, EventsArgs, RpcArgs, RpcCommand, SendArgs};
pub use ask::AskRequest;
pub use snapshot_file::{SnapshotFileFault, input_label, read_snapshot};

use connection::ConnectionOptions;

/// Exit code: done.
pub const EXIT_SUCCESS: u8 = 0;

/// Exit code: the daemon or the connection said no. The message is on standard error.
pub const EXIT_FAILURE: u8 = 1;

/// Exit code: what a shell takes for "ended by Ctrl-C".
pub const EXIT_INTERRUPTED: u8 = 130;

/// What the binary knows and the arguments do not say.
pub struct ConsoleOptions {
    /// The directory with the token files.
    pub home: PathBuf,
    /// What `NEXUS3_API_KEY` holds.
    pub api_key: Option<String>,
    /// The daemon's address on this machine.
    pub host: String,
    /// The port when the arguments name none.
    pub port: u16,
    /// Makes a name for a send: 16 random hex digits.
    pub new_request_id: fn() -> String,
}

/// The streams a command reads and writes.
pub struct Streams<'a> {
    /// Where a message written as `-` is read from.
    pub input: &'a mut dyn Read,
    /// Where answers go, as JSON.
    pub output: &'a mut dyn Write,
    /// Where messages for people go.
    pub errors: &'a mut dyn Write,
}

/// Ctrl-C, as the commands that care about it see it.
type Interrupt<'a> = Pin<&'a mut dyn Future<Output = ()>>;

/// Runs one command and says its exit code. `interrupt` ends when the user presses Ctrl-C; it is polled only while a
/// send is waiting for its answer, which is then cancelled at the daemon, and while events are watched.
pub async fn run(
    args: RpcArgs,
    options: &ConsoleOptions,
    mut streams: Streams<'_>,
    interrupt: impl Future<Output = ()>,
) -> u8 {
    let interrupt = pin!(interrupt);
    let session = match &args.command {
        RpcCommand::Detect => Ok(ConnectionOptions::without_discovery(&args.address, options)),
        _ => ConnectionOptions::with_discovered_token(&args.address, options),
    };
    let session = match session {
        Ok(session) => session,
        Err(fault) => return report_failure(&mut streams, &fault.to_string()),
    };
    match commands::run(args.command, &session, &mut streams, interrupt).await {
        Ok(code) => code,
        Err(failure) => report_failure(&mut streams, &failure.explain(&session)),
    }
}

/// Asks once. `start` starts a daemon on a port when none is there, and returns when it answers; what it says when it
/// fails is for the user. `interrupt` is polled all the time: before the question is sent it ends everything at once,
/// then the send is cancelled at the daemon.
pub async fn ask(
    question: AskRequest,
    options: &ConsoleOptions,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
    mut streams: Streams<'_>,
    interrupt: impl Future<Output = ()>,
) -> u8 {
    let mut interrupt = pin!(interrupt);
    let prepared = tokio::select! {
        biased;
        () = interrupt.as_mut() => return EXIT_INTERRUPTED,
        prepared = prepare_ask(&question.args, options, start) => prepared,
    };
    let (session, asked) = match prepared {
        Ok(prepared) => prepared,
        Err(text) => return report_failure(&mut streams, &text),
    };
    match ask::run(question, asked, &session, &mut streams, interrupt).await {
        Ok(code) => code,
        Err(failure) => report_failure(&mut streams, &failure.explain(&session)),
    }
}

/// Everything that a question needs before it is sent.
async fn prepare_ask(
    args: &AskArgs,
    options: &ConsoleOptions,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
) -> Result<(ConnectionOptions, ask::AskTarget), String> {
    let daemon =
        ask::ensure_daemon(&ConnectionOptions::without_discovery(&args.address, options), start).await?;
    let session = ConnectionOptions::with_discovered_token(&args.address, options)
        .map_err(|fault| fault.to_string())?;
    let asked = ask::prepare_agent(args, &session).await;
    let asked = asked.map_err(|failure| daemon.explain_unknown_model(failure.explain(&session)))?;
    Ok((session, asked))
}

fn report_failure(streams: &mut Streams<'_>, text: &str) -> u8 {
    // With standard error gone there is nobody left to tell; the exit code still says it.
    let _ = writeln!(streams.errors, "{text}");
    EXIT_FAILURE
}
