//! The whole server over real sockets, with scripted models behind it.

mod brains;
mod client;
mod faults;
mod life;
mod talk;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::backend::BackendLoaders;
use super::{ModelListener, ServeFault, ServeOptions, serve_backends};
use brains::{Stage, WordLengths};
use client::{Caller, Reply};

/// How long a test waits for what it expects.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A server with scripted models, on a Unix socket in a directory of its own.
struct Server {
    stage: Stage,
    path: PathBuf,
    stop: CancellationToken,
    running: JoinHandle<Result<(), ServeFault>>,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        Self::with(ServeOptions::default())
    }

    fn with(options: ServeOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.sock");
        let stage = Stage::default();
        let listener = ModelListener::unix(&path).unwrap();
        let options = ServeOptions { model_name: Some("scripted".to_owned()), ..options };
        let engines =
            BackendLoaders { chat: Some(stage.load()), embedder: Some(Box::new(|| Ok(Box::new(WordLengths)))) };
        let stop = CancellationToken::new();
        let running = tokio::spawn(serve_backends(listener, options, engines, stop.clone()));
        Self { stage, path, stop, running, _directory: directory }
    }

    async fn caller(&self) -> Caller {
        Caller::unix(&self.path).await
    }

    /// Asks from a connection of its own.
    async fn send(&self, root: &'static str, text: &'static str) -> JoinHandle<Reply> {
        let mut caller = self.caller().await;
        tokio::spawn(async move { caller.chat_from(root, &ask(text)).await })
    }

    /// Waits until so many jobs wait; those whose clients are gone do not count.
    async fn wait_waiting(&self, count: usize) {
        let mut caller = self.caller().await;
        let reached = async {
            while caller.get("/health").await.json()["waiting"] != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, reached).await.expect("the jobs wait");
    }
}

/// A chat of one message; what it says is what the scripted model does.
fn ask(text: &str) -> Value {
    json!({"model": "scripted", "messages": [{"role": "user", "content": text}]})
}

fn ask_stream(text: &str) -> Value {
    let mut request = ask(text);
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true});
    request
}
