//! The model server: a GGUF model and an embedding model behind OpenAI's protocol, on a Unix socket or on loopback.
//! This file is its life, from the first connection to the stop; the words are in `request` and `reply`, the work is in
//! `worker`, who is next is decided in `queue`.

mod accept;
mod activity;
mod backend;
mod body_reader;
mod completion;
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

/// How many conversations keep their computed prefix.
const CACHED_SEQUENCES: usize = 4;

/// How long answers under way may take to be written when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// What is served, and within which bounds.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The GGUF file that answers chats; without it, chats are refused.
    pub model: Option<PathBuf>,
    /// What the model is called; the file's name without its ending when `None`.
    pub model_name: Option<String>,
    /// The ONNX file of all-MiniLM-L6-v2; without it, embeddings are refused.
    pub embedder: Option<PathBuf>,
    /// What computes the model.
    pub engine: EngineKind,
    /// Threads that compute.
    pub threads: usize,
    /// The longest context; the file's own limit when `None`.
    pub window_tokens_max: Option<usize>,
    /// How many requests of a kind may wait; the next one is told to come back later.
    pub queue_max: usize,
    /// The server ends when nobody asked for work this long; `None` stays.
    pub idle_timeout: Option<Duration>,
    /// Whether the threads that compute stand back behind everybody else's (nice 10).
    pub lowers_priority: bool,
    /// Looks at a file before it is loaded.
    pub inspector: Option<Arc<dyn Inspector>>,
}

/// Whoever knows whether a file of weights may be used.
pub trait Inspector: std::fmt::Debug + Send + Sync {
    /// Looks at the file.
    ///
    /// # Errors
    /// Why it may not be used, for the user.
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

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeFault {
    /// There is nothing to serve.
    #[error("neither a model nor an embedding model was named; name at least one file")]
    NothingToServe,
    /// The system gave no thread.
    #[error("no thread for the model: {0}")]
    Thread(#[source] io::Error),
}

/// Serves until `stop`, or until nobody asked for work for the idle time. Models are loaded by the first request that needs
/// them. After it returned, the socket is gone: a parent that wants more starts the server again.
///
/// # Errors
/// When there is nothing to serve, or no thread for it.
pub async fn serve(
    listener: ModelListener,
    options: ServeOptions,
    stop: CancellationToken,
) -> Result<(), ServeFault> {
    let engines = BackendLoaders {
        chat: options.model.clone().map(|path| chat_loader(path, &options)),
        embedder: options.embedder.clone().map(|path| embedder_loader(path, &options)),
    };
    serve_backends(listener, options, engines, stop).await
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
    engines: BackendLoaders,
    stop: CancellationToken,
) -> Result<(), ServeFault> {
    if engines.chat.is_none() && engines.embedder.is_none() {
        return Err(ServeFault::NothingToServe);
    }
    let name = options.model_name.clone().or_else(|| options.model.as_deref().map(file_stem));
    let threads = TaskTracker::new();
    let workers = worker::start(engines, &options, &threads).map_err(ServeFault::Thread)?;
    let embedder_file = options.embedder.as_deref().map(file_stem);
    let shared = Shared::new(name.unwrap_or_default(), embedder_file, workers, listener.is_tcp());
    let shared = Arc::new(shared);
    let tasks = TaskTracker::new();
    tokio::select! {
        () = stop.cancelled() => tracing::info!("the model server was told to stop"),
        () = shared.activity.wait_idle(options.idle_timeout) => tracing::info!("the model server was idle and stops"),
        () = accept::accept_all(&listener, &shared, &tasks) => {}
    }
    drop(listener);
    shared.stop();
    tasks.close();
    threads.close();
    let all_ended = async { tokio::join!(tasks.wait(), threads.wait()) };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all_ended).await.is_err() {
        tracing::warn!("the model server stops with work under way");
    }
    Ok(())
}

fn file_stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
