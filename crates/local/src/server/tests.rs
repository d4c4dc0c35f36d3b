//! Tests: the whole server over real sockets, with scripted models.

mod client;
mod faults;
mod lifecycle;
mod responses;
mod scripted_backend;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::backend::BackendLoaders;
use super::{ModelListener, ServeFault, ServeOptions, serve_backends};
use client::{TestClient, TestResponse};
use scripted_backend::{LengthEmbedder, ScriptHandle};

/// How long a test waits for an expected event.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A server with scripted models, on a Unix socket in a temporary directory.
struct TestServer {
    script: ScriptHandle,
    path: PathBuf,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServeFault>>,
    _directory: tempfile::TempDir,
}

impl TestServer {
    fn start() -> Self {
        Self::start_with(ServeOptions::default())
    }

    fn start_with(options: ServeOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.sock");
        let script = ScriptHandle::default();
        let listener = ModelListener::unix(&path).unwrap();
        let options = ServeOptions { model_name: Some("scripted".to_owned()), ..options };
        let loaders = BackendLoaders {
            chat: Some(script.loader()),
            embedder: Some(Box::new(|| Ok(Box::new(LengthEmbedder)))),
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve_backends(listener, options, loaders, stop.clone()));
        Self { script, path, stop, task, _directory: directory }
    }

    async fn connect(&self) -> TestClient {
        TestClient::unix(&self.path).await
    }

    /// Sends a chat request on a new connection.
    async fn send(&self, root: &'static str, text: &'static str) -> JoinHandle<TestResponse> {
        let mut client = self.connect().await;
        tokio::spawn(async move { client.chat_from(root, &chat_request(text)).await })
    }

    /// Waits until `count` jobs are queued, abandoned ones not counted.
    async fn wait_queued(&self, count: usize) {
        let mut client = self.connect().await;
        let reached = async {
            while client.get("/health").await.json()["waiting"] != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, reached).await.expect("jobs are queued");
    }
}

/// A chat request with one message, which is the scripted model's command.
fn chat_request(text: &str) -> Value {
    json!({"model": "scripted", "messages": [{"role": "user", "content": text}]})
}

fn stream_request(text: &str) -> Value {
    let mut request = chat_request(text);
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true});
    request
}
