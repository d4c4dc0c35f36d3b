//! Logging: standard error for the operator, three files per agent (`context.md`, `verbose.md`, `raw.jsonl`) that never
//! mix, and one audit trail. Reads no environment; `LogOptions` selects the outputs.

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

/// Log files open at once. There may be ten thousand agents; closed files are reopened on demand.
const HANDLES_MAX: usize = 64;

const QUEUE_LIMITS: QueueLimits = QueueLimits { records_max: 8_192, bytes_max: 64 * 1_048_576 };

/// Log outputs, levels and rotation.
#[derive(Debug, Clone)]
pub(crate) struct LogOptions {
    /// Parent of the agents' log directories.
    pub(crate) dir: PathBuf,
    /// Log level on standard error.
    pub(crate) level: Level,
    /// Log to standard error as JSON lines.
    pub(crate) json: bool,
    /// Use colours on standard error, if it is a terminal.
    pub(crate) color: bool,
    /// Write `verbose.md`.
    pub(crate) verbose: bool,
    /// Write `raw.jsonl`.
    pub(crate) raw: bool,
    pub(crate) file_bytes_max: u64,
    pub(crate) files_max: usize,
}

/// Why logging could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogFault {
    #[error("cannot create the log directory {}: {source}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start the log writer's thread: {0}")]
    Thread(io::Error),
    #[error("cannot start logging: it is already started")]
    AlreadyStarted,
}

/// Handle of the running log writer. Dropping it writes all queued records and joins the thread.
#[derive(Debug)]
pub(crate) struct Logs {
    sender: LogSender,
    thread: Option<JoinHandle<()>>,
}

impl Logs {
    /// Writes all queued records and ends the writer's thread. Logging to standard error keeps working.
    pub(crate) fn finish(self) {
        drop(self);
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.sender.stop();
            // A panic of the writer is already on standard error; its queue is lost.
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

/// Builds the subscriber and starts the writer without installing the subscriber.
fn assemble<W>(options: LogOptions, stderr: W) -> Result<(impl Subscriber + Send + Sync, Logs), LogFault>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    create_directory(&options.dir)
        .map_err(|source| LogFault::Directory { path: options.dir.clone(), source })?;
    let format = match options {
        LogOptions { json: true, .. } => StderrFormat::Json,
        LogOptions { color: true, .. } => StderrFormat::Colored,
        LogOptions { .. } => StderrFormat::Plain,
    };
    let limits = FileLimits {
        file_bytes_max: options.file_bytes_max,
        files_max: options.files_max,
        handles_max: HANDLES_MAX,
    };
    let filter = LogFilter { level: options.level, verbose: options.verbose, raw: options.raw };
    let (sender, receiver) = channel(QUEUE_LIMITS);
    let report = Box::new(|text: &str| tracing::error!(target: "nexus3::logs", "{text}"));
    let writer = LogWriter::new(receiver, LogFiles::new(options.dir, limits), report);
    let thread = writer.spawn().map_err(LogFault::Thread)?;
    // One filter for all layers: with a filter per layer, an `event_enabled!` that is not followed by its event
    // would make tracing-subscriber lose a later one.
    let subscriber = tracing_subscriber::registry()
        .with(stderr::layer(format, filter, stderr))
        .with(Router::new(filter, sender.clone()))
        .with(filter_fn(move |metadata| filter.is_enabled(metadata)));
    Ok((subscriber, Logs { sender, thread: Some(thread) }))
}
