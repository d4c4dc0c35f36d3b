//! Command-line client: arguments, output and exit codes of `nexus3 rpc` and `nexus3 ask`. It reads neither the
//! environment nor the terminal: the binary, or a test, passes in what it needs.

mod approvals;
mod args;
mod ask;
mod commands;
mod connection;
mod events;
mod images;
mod lifecycle;
mod send;
mod snapshot_file;
mod terminal_text;
#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::pin::{Pin, pin};

pub use approvals::ApprovalsArgs;
pub use args::{AskArgs, CreateArgs, EventsArgs, RpcArgs, RpcCommand, SendArgs};
pub use ask::AskRequest;
pub use snapshot_file::{SnapshotFileFault, input_label, read_snapshot};
pub use terminal_text::TerminalWriter;

use connection::ConnectionOptions;

/// Exit code: success.
pub const EXIT_SUCCESS: u8 = 0;

/// Exit code: the daemon or the connection failed. The message is on standard error.
pub const EXIT_FAILURE: u8 = 1;

/// Exit code: interrupted by Ctrl-C, as shells report it.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Values that the binary passes in beside the arguments.
pub struct ConsoleOptions {
    /// Directory with the token files.
    pub home: PathBuf,
    /// Value of `NEXUS3_API_KEY`.
    pub api_key: Option<String>,
    /// Host of the daemon.
    pub host: String,
    /// Port if the arguments have none.
    pub port: u16,
    /// Generates a request id: 16 random hex digits.
    pub new_request_id: fn() -> String,
}

/// The streams a command reads and writes.
pub struct Streams<'a> {
    /// Standard input, read when a message is `-`.
    pub input: &'a mut dyn Read,
    /// Standard output, for results.
    pub output: &'a mut dyn Write,
    /// Standard error, for messages.
    pub errors: &'a mut dyn Write,
}

/// A future that resolves at Ctrl-C.
type Interrupt<'a> = Pin<&'a mut dyn Future<Output = ()>>;

/// Runs one command and returns its exit code. `interrupt` resolves at Ctrl-C; it is polled only while a send waits for
/// its response, which is then cancelled at the daemon, and while events are printed.
pub async fn run(
    args: RpcArgs,
    options: &ConsoleOptions,
    mut streams: Streams<'_>,
    interrupt: impl Future<Output = ()>,
) -> u8 {
    let interrupt = pin!(interrupt);
    let connection = match &args.command {
        RpcCommand::Detect => Ok(ConnectionOptions::without_discovery(&args.connection, options)),
        _ => ConnectionOptions::with_discovered_token(&args.connection, options),
    };
    let connection = match connection {
        Ok(connection) => connection,
        Err(fault) => return report_failure(&mut streams, &fault.to_string()),
    };
    match commands::run(args.command, &connection, &mut streams, interrupt).await {
        Ok(code) => code,
        Err(failure) => report_failure(&mut streams, &failure.explain(&connection)),
    }
}

/// Runs `nexus3 approvals` and returns its exit code.
pub async fn approvals(args: ApprovalsArgs, options: &ConsoleOptions, mut streams: Streams<'_>) -> u8 {
    let connection = match ConnectionOptions::with_discovered_token(&args.connection, options) {
        Ok(connection) => connection,
        Err(fault) => return report_failure(&mut streams, &fault.to_string()),
    };
    match approvals::run(args, &connection, &mut streams).await {
        Ok(code) => code,
        Err(failure) => report_failure(&mut streams, &failure.explain(&connection)),
    }
}

/// Runs `nexus3 ask` and returns its exit code. `start` starts a daemon on a port when none is running, and returns
/// when it answers, or an error text for the user. `interrupt` is polled throughout: before the question is sent it
/// exits at once, afterwards it cancels the send at the daemon.
pub async fn ask(
    request: AskRequest,
    options: &ConsoleOptions,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
    mut streams: Streams<'_>,
    interrupt: impl Future<Output = ()>,
) -> u8 {
    let mut interrupt = pin!(interrupt);
    let prepared = tokio::select! {
        biased;
        () = interrupt.as_mut() => return EXIT_INTERRUPTED,
        prepared = prepare_ask(&request.args, options, start) => prepared,
    };
    let (connection, target) = match prepared {
        Ok(prepared) => prepared,
        Err(text) => return report_failure(&mut streams, &text),
    };
    match ask::run(request, target, &connection, &mut streams, interrupt).await {
        Ok(code) => code,
        Err(failure) => report_failure(&mut streams, &failure.explain(&connection)),
    }
}

/// Finds or starts the daemon, and finds or creates the agent.
async fn prepare_ask(
    args: &AskArgs,
    options: &ConsoleOptions,
    start: impl AsyncFnOnce(u16) -> Result<(), String>,
) -> Result<(ConnectionOptions, ask::AskTarget), String> {
    let daemon =
        ask::ensure_daemon(&ConnectionOptions::without_discovery(&args.connection, options), start).await?;
    let connection = ConnectionOptions::with_discovered_token(&args.connection, options)
        .map_err(|fault| fault.to_string())?;
    let target = ask::prepare_agent(args, &connection).await;
    let target = target.map_err(|failure| daemon.explain_unknown_model(failure.explain(&connection)))?;
    Ok((connection, target))
}

fn report_failure(streams: &mut Streams<'_>, text: &str) -> u8 {
    // If standard error is closed, the exit code still reports the failure.
    let _ = writeln!(streams.errors, "{text}");
    EXIT_FAILURE
}
