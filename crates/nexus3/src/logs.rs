//! The logs: standard error for whoever runs the daemon, three files per agent (`context.md`, `verbose.md`, `raw.jsonl`)
//! that never mix, and one audit trail. Reads no environment: what is logged comes in as options.

mod files;
mod queue;
mod record;
mod router;
mod stderr;
#[cfg(test)]
mod tests;
mod text;
mod writer;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::thread::JoinHandle;

use tracing::{Level, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use self::files::{FileLimits, LogFiles, create_directory};
use self::queue::{LogSender, QueueLimits, channel};
use self::router::{LogFilter, Router};
use self::stderr::StderrFormat;
use self::writer::LogWriter;

/// Files open at once; there may be ten thousand agents, and the rest are reopened when needed.
const HANDLES_MAX: usize = 64;

const QUEUE_LIMITS: QueueLimits = QueueLimits { records_max: 8_192, bytes_max: 64 * 1_048_576 };

/// What to log, and where.
#[derive(Debug, Clone)]
pub(crate) struct LogOptions {
    /// Where the agents' directories are.
    pub(crate) dir: PathBuf,
    /// Least severe level on standard error.
    pub(crate) level: Level,
    /// Standard error as JSON lines.
    pub(crate) json: bool,
    /// Colours on standard error, if it is a terminal.
    pub(crate) color: bool,
    /// Keep `verbose.md`.
    pub(crate) verbose: bool,
    /// Keep `raw.jsonl`.
    pub(crate) raw: bool,
    pub(crate) file_bytes_max: u64,
    pub(crate) files_max: usize,
}

/// Why the logs could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogFault {
    #[error("cannot create the log directory {}: {source}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start the thread that writes the logs: {0}")]
    Thread(io::Error),
    #[error("the logs are already started")]
    AlreadyStarted,
}

/// The running logs. Ending it writes everything that was logged before.
#[derive(Debug)]
pub(crate) struct Logs {
    sender: LogSender,
    thread: Option<JoinHandle<()>>,
}

impl Logs {
    /// Writes what is waiting and ends the writer's thread. Standard error goes on working.
    pub(crate) fn finish(self) {
        drop(self);
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.sender.stop();
            // A writer that panicked has said so on standard error; there is nothing left to save.
            let _ = thread.join();
        }
    }
}

/// Starts logging for the whole process.
pub(crate) fn start(options: LogOptions) -> Result<Logs, LogFault> {
    let color = options.color && io::stderr().is_terminal();
    let (subscriber, logs) = assemble(LogOptions { color, ..options }, io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogFault::AlreadyStarted)?;
    Ok(logs)
}

/// Puts the parts together without installing them.
fn assemble<W>(options: LogOptions, stderr: W) -> Result<(impl Subscriber + Send + Sync, Logs), LogFault>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    create_directory(&options.dir)
        .map_err(|source| LogFault::Directory { path: options.dir.clone(), source })?;
    let look = match options {
        LogOptions { json: true, .. } => StderrFormat::Json,
        LogOptions { color: true, .. } => StderrFormat::Colored,
        LogOptions { .. } => StderrFormat::Plain,
    };
    let limits = FileLimits {
        file_bytes_max: options.file_bytes_max,
        files_max: options.files_max,
        handles_max: HANDLES_MAX,
    };
    let wanted = LogFilter { level: options.level, verbose: options.verbose, raw: options.raw };
    let (outbox, inbox) = channel(QUEUE_LIMITS);
    let report = Box::new(|text: &str| tracing::error!(target: "nexus3::logs", "{text}"));
    let writer = LogWriter::new(inbox, LogFiles::new(options.dir, limits), report);
    let thread = writer.spawn().map_err(LogFault::Thread)?;
    // One filter for all layers: with a filter per layer, an `event_enabled!` that is not followed by its event
    // would make tracing-subscriber lose a later one.
    let subscriber = tracing_subscriber::registry()
        .with(stderr::layer(look, wanted, stderr))
        .with(Router::new(wanted, outbox.clone()))
        .with(filter_fn(move |metadata| wanted.is_enabled(metadata)));
    Ok((subscriber, Logs { sender: outbox, thread: Some(thread) }))
}
