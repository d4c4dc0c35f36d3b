//! The model server: a GGUF model and an embedding model with OpenAI's HTTP API, on a Unix socket or loopback. This
//! file owns options, startup and shutdown; `http` routes requests, `queue` schedules jobs, `worker` runs them.

mod backend;
mod body_reader;
mod completion;
mod connections;
mod embeddings;
mod generation_channel;
mod http;
mod listener;
mod queue;
mod refusal;
mod request;
mod stream;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::embed::{Embedder, MiniLm};
use crate::generation::{EngineKind, LoadOptions, LoadedModel};
use backend::{Backend, BackendLoaders};
use http::Shared;
pub use listener::ModelListener;

/// Number of conversations whose prefix stays in the KV cache.
const CACHED_SEQUENCES: usize = 4;

/// How long open connections and worker threads may take to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of the model server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// GGUF file of the chat model; without it, chat requests are rejected.
    pub model: Option<PathBuf>,
    /// Name of the chat model; the file name without its extension when `None`.
    pub model_name: Option<String>,
    /// ONNX file of all-MiniLM-L6-v2; without it, embedding requests are rejected.
    pub embedder: Option<PathBuf>,
    /// Inference engine of the chat model.
    pub engine: EngineKind,
    /// Number of compute threads per model.
    pub threads: usize,
    /// Largest context window; the file's own limit when `None`.
    pub window_tokens_max: Option<usize>,
    /// Most queued requests per model; further ones are rejected with status 429.
    pub queue_max: usize,
    /// Idle time after which the server stops; `None` disables it.
    pub idle_timeout: Option<Duration>,
    /// Whether worker threads run at low priority (nice 10).
    pub lowers_priority: bool,
    /// Checks a weights file before it is loaded.
    pub inspector: Option<Arc<dyn Inspector>>,
}

/// Decides whether a weights file may be loaded, for example by its recorded checksum.
pub trait Inspector: std::fmt::Debug + Send + Sync {
    /// Checks the file.
    ///
    /// # Errors
    /// Why the file may not be used, as text for the user.
    fn inspect(&self, file: &Path) -> Result<(), String>;
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            model: None,
            model_name: None,
            embedder: None,
            engine: EngineKind::default(),
            threads: 1,
            window_tokens_max: None,
            queue_max: 64,
            idle_timeout: None,
            lowers_priority: false,
            inspector: None,
        }
    }
}

/// Failure to start the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeFault {
    /// The options name no model.
    #[error("no model to serve: name a chat model or an embedding model")]
    NothingToServe,
    /// A worker thread could not be spawned.
    #[error("cannot spawn the model's thread: {0}")]
    Thread(#[source] io::Error),
}

/// Serves until `stop` is cancelled or the idle timeout expires. The first request that needs a model loads it. When
/// this returns, the socket file is removed; the parent process starts the server again when needed.
///
/// # Errors
/// When the options name no model, or a worker thread cannot be spawned.
pub async fn serve(
    listener: ModelListener,
    options: ServeOptions,
    stop: CancellationToken,
) -> Result<(), ServeFault> {
    let loaders = BackendLoaders {
        chat: options.model.clone().map(|path| chat_loader(path, &options)),
        embedder: options.embedder.clone().map(|path| embedder_loader(path, &options)),
    };
    serve_backends(listener, options, loaders, stop).await
}

fn chat_loader(path: PathBuf, options: &ServeOptions) -> backend::Loader<dyn Backend> {
    let inspector = options.inspector.clone();
    let options = LoadOptions {
        engine: options.engine,
        threads: options.threads,
        window_tokens_max: options.window_tokens_max,
        sequences: CACHED_SEQUENCES,
    };
    Box::new(move || {
        inspect(inspector.as_deref(), &path)?;
        let model = LoadedModel::open(&path, &options).map_err(|fault| fault.to_string())?;
        Ok(Box::new(model))
    })
}

fn embedder_loader(path: PathBuf, options: &ServeOptions) -> backend::Loader<dyn Embedder> {
    let (inspector, threads) = (options.inspector.clone(), options.threads);
    Box::new(move || {
        inspect(inspector.as_deref(), &path)?;
        let model = MiniLm::open(&path, threads).map_err(|fault| fault.to_string())?;
        Ok(Box::new(model))
    })
}

fn inspect(inspector: Option<&dyn Inspector>, path: &Path) -> Result<(), String> {
    inspector.map_or(Ok(()), |inspector| inspector.inspect(path))
}

async fn serve_backends(
    listener: ModelListener,
    options: ServeOptions,
    loaders: BackendLoaders,
    stop: CancellationToken,
) -> Result<(), ServeFault> {
    if loaders.chat.is_none() && loaders.embedder.is_none() {
        return Err(ServeFault::NothingToServe);
    }
    let name = options.model_name.clone().or_else(|| options.model.as_deref().map(file_stem));
    let threads = TaskTracker::new();
    let queues = worker::start(loaders, &options, &threads).map_err(ServeFault::Thread)?;
    let embedder_file = options.embedder.as_deref().map(file_stem);
    let shared = Shared::new(name.unwrap_or_default(), embedder_file, queues, listener.is_tcp());
    let shared = Arc::new(shared);
    let connections = connections::start(listener, Arc::clone(&shared));
    let idle = async {
        match options.idle_timeout {
            Some(time) => shared.activity.wait_idle(time, || false).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => tracing::info!("model server stopping: shutdown requested"),
        () = idle => tracing::info!("model server stopping: idle timeout"),
    }
    connections.close();
    shared.stop();
    threads.close();
    let all_ended = async { tokio::join!(connections.wait_ended(), threads.wait()) };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all_ended).await.is_err() {
        tracing::warn!("model server stopped before all requests finished: shutdown timeout");
    }
    Ok(())
}

fn file_stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
