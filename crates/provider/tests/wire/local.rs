//! Tests of the embedded model's child process: started at the first request, restarted after crashes.

use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::outside::{ModelTier, Models};
use provider::{DiscoverOptions, LocalFiles, LocalOptions, ModelRegistry, NO_LOCAL_ENGINE, RegistryOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::harness::{call, collect, request};

/// Fake model server: logs its arguments, links the test's server to the socket path, and waits for EOF on its input.
/// Exits at once if a file `crash` is beside it.
const CHILD: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/started"
echo $$ > "$here/pid"
if [ -e "$here/crash" ]; then echo "no memory" >&2; exit 3; fi
while [ $# -gt 0 ]; do if [ "$1" = --socket ]; then ln -s "$here/real.sock" "$2"; fi; shift; done
cat > /dev/null
echo ended >> "$here/ended"
"#;

const RESPONSE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

struct Files(PathBuf);

impl LocalFiles for Files {
    fn find(&self, id: &str) -> Option<PathBuf> {
        (id == "tiny").then(|| self.0.join("tiny.gguf"))
    }

    fn list(&self) -> Vec<String> {
        vec!["tiny".to_owned()]
    }
}

fn registry(dir: &Path) -> ModelRegistry {
    let program = dir.join("child");
    std::fs::write(&program, CHILD).expect("the file is writable");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).expect("we own the file");
    let local = LocalOptions {
        program,
        args: vec!["model-server".to_owned()],
        socket_dir: dir.to_owned(),
        idle: Duration::from_secs(300),
        start_timeout: Duration::from_secs(20),
        files: Arc::new(Files(dir.to_owned())),
        counter: |_| Err("not here".to_owned()),
    };
    let discover = DiscoverOptions { providers: Vec::new(), ..DiscoverOptions::default() };
    let options = RegistryOptions { local: Some(local), discover, ..RegistryOptions::default() };
    ModelRegistry::open(options).expect("the options are valid")
}

/// Responds to every request on the socket; returns the list of requests.
fn serve(dir: &Path) -> Arc<Mutex<Vec<String>>> {
    serve_until(dir, &[])
}

/// Like `serve`, but the first requests get only these prefixes of a response, then the child is killed.
fn serve_until(dir: &Path, beginnings: &[&'static str]) -> Arc<Mutex<Vec<String>>> {
    let listener = UnixListener::bind(dir.join("real.sock")).expect("the socket can be bound");
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requests);
    let (dir, mut beginnings) = (dir.to_owned(), VecDeque::from(beginnings.to_vec()));
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut bytes = vec![0; 65_536];
            let count = connection.read(&mut bytes).await.unwrap_or(0);
            let request = String::from_utf8_lossy(&bytes[..count]).into_owned();
            let is_post = !request.starts_with("GET /health ");
            log.lock().expect("not poisoned").push(request);
            if is_post && let Some(beginning) = beginnings.pop_front() {
                let _ = connection.write_all(beginning.as_bytes()).await;
                let _ = connection.shutdown().await;
                kill(&dir);
                continue;
            }
            let body = if is_post { RESPONSE } else { "{}" };
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = connection.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    requests
}

fn kill(dir: &Path) {
    let pid = std::fs::read_to_string(dir.join("pid")).expect("the child wrote its pid");
    let killed = Command::new("kill").args(["-KILL", pid.trim()]).status().expect("kill exists");
    assert!(killed.success());
}

fn request_count(requests: &Mutex<Vec<String>>) -> usize {
    let requests = requests.lock().expect("not poisoned");
    requests.iter().filter(|request| request.starts_with("POST ")).count()
}

fn lines(dir: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn embedded_model_is_the_default_without_other_models() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let requests = serve(dir.path());
    let registry = registry(dir.path());
    let model = registry.default_model();
    assert_eq!((model.model(), model.spec().tier), (Some("local/tiny"), ModelTier::Small));
    assert!(lines(dir.path(), "started").is_empty(), "no child before the first request");
    let responses = futures_util::future::join_all((0..5).map(|_| call(&model))).await;
    assert!(responses.iter().all(|response| response.text() == "Hello"), "{responses:?}");
    let started = lines(dir.path(), "started");
    assert_eq!(started.len(), 1, "one child for all requests: {started:?}");
    let arguments = format!("model-server --model {}/tiny.gguf --socket ", dir.path().display());
    assert!(
        started[0].starts_with(&arguments) && started[0].ends_with(" --idle-s 300 --die-with-stdin"),
        "{started:?}"
    );
    let requests = requests.lock().expect("not poisoned");
    let posts: Vec<_> =
        requests.iter().filter(|request| request.starts_with("POST /v1/chat/completions ")).collect();
    assert_eq!(posts.len(), 5);
    assert!(posts[0].contains("x-nexus-root: 0\r\n") && !posts[0].contains("authorization"), "{posts:?}");
}

#[tokio::test]
async fn crash_at_startup_fails_the_request_and_the_next_restarts() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let _requests = serve(dir.path());
    let registry = registry(dir.path());
    std::fs::write(dir.path().join("crash"), "").expect("the file is writable");
    let model = registry.find("local/tiny").expect("the model is installed");
    let response = call(&model).await;
    assert!(
        response.fault().public.starts_with("The embedded model local/tiny failed: it exited at startup"),
        "{response:?}"
    );
    std::fs::remove_file(dir.path().join("crash")).expect("the file exists");
    assert_eq!(call(&model).await.text(), "Hello");
    assert_eq!(lines(dir.path(), "started").len(), 2);
}

/// Output of a child that is killed before its response begins.
const CUT_BEFORE_CONTENT: [&str; 3] = [
    "",
    "HTTP/1.1 200 OK\r\nconnection: cl",
    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n: reading\n\n",
];

#[tokio::test]
async fn crash_before_the_response_restarts_and_retries() {
    for beginning in CUT_BEFORE_CONTENT {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let requests = serve_until(dir.path(), &[beginning]);
        let model = registry(dir.path()).default_model();
        assert_eq!(call(&model).await.text(), "Hello", "{beginning:?}");
        assert_eq!((request_count(&requests), lines(dir.path(), "started").len()), (2, 2), "{beginning:?}");
    }
}

#[tokio::test]
async fn concurrent_requests_share_the_restarted_child() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let _requests = serve_until(dir.path(), &[""]);
    let model = registry(dir.path()).default_model();
    let responses = futures_util::future::join_all((0..5).map(|_| call(&model))).await;
    assert!(responses.iter().all(|response| response.text() == "Hello"), "{responses:?}");
    assert_eq!(lines(dir.path(), "started").len(), 2);
}

#[tokio::test]
async fn request_that_crashes_every_child_is_tried_twice() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let requests = serve_until(dir.path(), &["", ""]);
    let model = registry(dir.path()).default_model();
    let response = call(&model).await;
    let text = "The embedded model local/tiny failed: it exited twice before its response (signal: 9 (SIGKILL)). See the daemon's log.";
    assert_eq!(response.fault().public, text);
    assert_eq!((request_count(&requests), lines(dir.path(), "started").len()), (2, 2));
    assert_eq!(call(&model).await.text(), "Hello", "the next request succeeds");
}

#[tokio::test]
async fn crash_within_a_response_is_a_fault_without_retry() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let partial = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1000\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";
    let requests = serve_until(dir.path(), &[partial]);
    let model = registry(dir.path()).default_model();
    let response = call(&model).await;
    let text = "The embedded model local/tiny failed: it exited in the middle of its response (signal: 9 (SIGKILL)). See the daemon's log.";
    assert_eq!((response.text().as_str(), response.fault().public.as_ref()), ("Hel", text));
    assert_eq!(request_count(&requests), 1, "a started response is not retried");
    assert_eq!(call(&model).await.text(), "Hello");
}

#[tokio::test]
async fn missing_weights_are_reported_with_the_pull_command() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let fault = registry(dir.path()).find("local/big").err().expect("it is not installed");
    assert!(fault.public.contains("nexus3 models pull big --yes"), "{fault}");
    let found = registry(dir.path()).find("local").expect("the bare name means the first model");
    assert_eq!(found.model(), Some("local/tiny"));
    drop(collect(found.call(request())));
}

#[test]
fn local_models_are_refused_without_a_local_engine() {
    let open = |options| ModelRegistry::open(RegistryOptions { local: None, ..options });
    let registry = open(RegistryOptions::default()).expect("the options are valid");
    let (default_model, fallback) = (Some("local/tiny".to_owned()), vec!["local/tiny".to_owned()]);
    let faults = [
        registry.find("local/tiny").err(),
        registry.find("local").err(),
        open(RegistryOptions { default_model, ..RegistryOptions::default() }).err(),
        open(RegistryOptions { fallback, ..RegistryOptions::default() }).err(),
    ];
    for fault in faults {
        let fault = fault.expect("there is no local engine");
        assert!(fault.public.ends_with(NO_LOCAL_ENGINE), "{fault}");
    }
}
