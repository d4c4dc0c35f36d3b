//! The command line: an ordinary client. Owns the words of `nexus3 rpc …` and `nexus3 ask`, and what they print; reads neither the
//! environment nor the terminal by itself, so that the binary and the tests hand in what they have.

mod args;
mod ask;
mod commands;
mod document;
mod events;
mod images;
mod send;
mod session;
mod sessions;
#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::pin::{Pin, pin};

pub use args::{AskArgs, CreateArgs, EventsArgs, RpcArgs, RpcCommand, SendArgs};
pub use ask::Question;
pub use document::{DocumentFault, document_name, read_document};

use session::Session;

/// Exit code: done.
pub const EXIT_DONE: u8 = 0;

/// Exit code: the daemon or the connection said no. The message is on standard error.
pub const EXIT_REFUSED: u8 = 1;

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
        RpcCommand::Detect => Ok(Session::unsigned(&args.address, options)),
        _ => Session::open(&args.address, options),
    };
    let session = match session {
        Ok(session) => session,
        Err(fault) => return refuse(&mut streams, &fault.to_string()),
    };
    match commands::run(args.command, &session, &mut streams, interrupt).await {
        Ok(code) => code,
        Err(failure) => refuse(&mut streams, &failure.text(&session)),
    }
}

/// Asks once. `start` starts a daemon on a port when none is there, and returns when it answers; what it says when it
/// fails is for the user. `interrupt` is polled all the time: before the question is sent it ends everything at once, then
/// the send is cancelled at the daemon.
pub async fn ask(
    question: Question,
    options: &ConsoleOptions,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
    mut streams: Streams<'_>,
    interrupt: impl Future<Output = ()>,
) -> u8 {
    let mut interrupt = pin!(interrupt);
    let prepared = tokio::select! {
        biased;
        () = interrupt.as_mut() => return EXIT_INTERRUPTED,
        prepared = prepare(&question.args, options, start) => prepared,
    };
    let (session, asked) = match prepared {
        Ok(prepared) => prepared,
        Err(text) => return refuse(&mut streams, &text),
    };
    match ask::run(question, asked, &session, &mut streams, interrupt).await {
        Ok(code) => code,
        Err(failure) => refuse(&mut streams, &failure.text(&session)),
    }
}

/// Everything that a question needs before it is sent.
async fn prepare(
    args: &AskArgs,
    options: &ConsoleOptions,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
) -> Result<(Session, ask::Asked), String> {
    let daemon = ask::find_daemon(&Session::unsigned(&args.address, options), start).await?;
    let session = Session::open(&args.address, options).map_err(|fault| fault.to_string())?;
    let asked = ask::prepare(args, &session).await;
    let asked = asked.map_err(|failure| daemon.explain(failure.text(&session)))?;
    Ok((session, asked))
}

fn refuse(streams: &mut Streams<'_>, text: &str) -> u8 {
    // With standard error gone there is nobody left to tell; the exit code still says it.
    let _ = writeln!(streams.errors, "{text}");
    EXIT_REFUSED
}
