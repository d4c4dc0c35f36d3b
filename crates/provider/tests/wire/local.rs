//! The embedded model's child: started once, at the first question, again after it fell over; asked over its socket.

use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::outside::{ModelTier, Models};
use provider::{DiscoverOptions, LocalFiles, LocalOptions, ModelRegistry, RegistryOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::harness::{call, collect, request};

/// Stands in for the program: says its words, lets the test's server be found under the socket's name, and waits for the
/// end of its input. With a file `fall` beside it, it falls over at once.
const CHILD: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/started"
echo $$ > "$here/pid"
if [ -e "$here/fall" ]; then echo "no memory" >&2; exit 3; fi
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
    std::fs::write(&program, CHILD).expect("a file can be written");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).expect("it is ours");
    let local = LocalOptions {
        program,
        args: vec!["model-server".to_owned()],
        socket_dir: dir.to_owned(),
        idle: Duration::from_secs(300),
        start_timeout: Duration::from_secs(20),
        files: Arc::new(Files(dir.to_owned())),
        counter: |_| Err("not here".to_owned()),
    };
    let nowhere = DiscoverOptions { providers: Vec::new(), ..DiscoverOptions::default() };
    let options = RegistryOptions { local: Some(local), discover: nowhere, ..RegistryOptions::default() };
    ModelRegistry::open(options).expect("nothing is wrong")
}

/// Answers every question on the socket; keeps what was asked.
fn serve(dir: &Path) -> Arc<Mutex<Vec<String>>> {
    serve_until(dir, &[])
}

/// The first questions get no more than these beginnings of an answer each; then the child is killed.
fn serve_until(dir: &Path, beginnings: &[&'static str]) -> Arc<Mutex<Vec<String>>> {
    let listener = UnixListener::bind(dir.join("real.sock")).expect("a socket can be bound");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let (dir, mut beginnings) = (dir.to_owned(), VecDeque::from(beginnings.to_vec()));
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut bytes = vec![0; 65_536];
            let count = connection.read(&mut bytes).await.unwrap_or(0);
            let request = String::from_utf8_lossy(&bytes[..count]).into_owned();
            let is_question = !request.starts_with("GET /health ");
            seen.lock().expect("nobody panicked").push(request);
            if is_question && let Some(beginning) = beginnings.pop_front() {
                let _ = connection.write_all(beginning.as_bytes()).await;
                let _ = connection.shutdown().await;
                kill(&dir);
                continue;
            }
            let body = if is_question { RESPONSE } else { "{}" };
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = connection.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    asked
}

fn kill(dir: &Path) {
    let pid = std::fs::read_to_string(dir.join("pid")).expect("the child has said its number");
    let killed = Command::new("kill").args(["-KILL", pid.trim()]).status().expect("there is kill");
    assert!(killed.success());
}

fn request_count(asked: &Mutex<Vec<String>>) -> usize {
    let asked = asked.lock().expect("nobody panicked");
    asked.iter().filter(|request| request.starts_with("POST ")).count()
}

fn lines(dir: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_embedded_model_is_the_usual_one_when_there_is_no_other() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let asked = serve(dir.path());
    let book = registry(dir.path());
    let model = book.default_model();
    assert_eq!((model.model(), model.spec().tier), (Some("local/tiny"), ModelTier::Small));
    assert!(lines(dir.path(), "started").is_empty(), "nothing runs before somebody asks");
    let answers = futures_util::future::join_all((0..5).map(|_| call(&model))).await;
    assert!(answers.iter().all(|answer| answer.text() == "Hello"), "{answers:?}");
    let started = lines(dir.path(), "started");
    assert_eq!(started.len(), 1, "one child for all: {started:?}");
    let words = format!("model-server --model {}/tiny.gguf --socket ", dir.path().display());
    assert!(
        started[0].starts_with(&words) && started[0].ends_with(" --idle-s 300 --die-with-stdin"),
        "{started:?}"
    );
    let asked = asked.lock().expect("nobody panicked");
    let questions: Vec<_> =
        asked.iter().filter(|request| request.starts_with("POST /v1/chat/completions ")).collect();
    assert_eq!(questions.len(), 5);
    assert!(
        questions[0].contains("x-nexus-root: 0\r\n") && !questions[0].contains("authorization"),
        "{questions:?}"
    );
}

#[tokio::test]
async fn a_child_that_falls_over_costs_its_turn_and_is_started_again() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let _asked = serve(dir.path());
    let book = registry(dir.path());
    std::fs::write(dir.path().join("fall"), "").expect("a file can be written");
    let model = book.find("local/tiny").expect("it is there");
    let answer = call(&model).await;
    assert!(
        answer.fault().public.starts_with("The embedded model local/tiny failed: it ended at its start"),
        "{answer:?}"
    );
    std::fs::remove_file(dir.path().join("fall")).expect("it is there");
    assert_eq!(call(&model).await.text(), "Hello");
    assert_eq!(lines(dir.path(), "started").len(), 2);
}

/// What a child has written when it is killed before its answer begins.
const CUT_BEFORE_CONTENT: [&str; 3] = [
    "",
    "HTTP/1.1 200 OK\r\nconnection: cl",
    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n: reading\n\n",
];

#[tokio::test]
async fn a_child_that_dies_before_its_answer_begins_is_started_again_and_asked_again() {
    for beginning in CUT_BEFORE_CONTENT {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let asked = serve_until(dir.path(), &[beginning]);
        let model = registry(dir.path()).default_model();
        assert_eq!(call(&model).await.text(), "Hello", "{beginning:?}");
        assert_eq!((request_count(&asked), lines(dir.path(), "started").len()), (2, 2), "{beginning:?}");
    }
}

#[tokio::test]
async fn many_who_asked_a_child_that_died_share_the_next_one() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let _asked = serve_until(dir.path(), &[""]);
    let model = registry(dir.path()).default_model();
    let answers = futures_util::future::join_all((0..5).map(|_| call(&model))).await;
    assert!(answers.iter().all(|answer| answer.text() == "Hello"), "{answers:?}");
    assert_eq!(lines(dir.path(), "started").len(), 2);
}

#[tokio::test]
async fn a_question_that_kills_every_child_is_asked_twice_and_no_more() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let asked = serve_until(dir.path(), &["", ""]);
    let model = registry(dir.path()).default_model();
    let answer = call(&model).await;
    let text = "The embedded model local/tiny failed: it ended twice before it answered (signal: 9 (SIGKILL)). The daemon's log says more.";
    assert_eq!(answer.fault().public, text);
    assert_eq!((request_count(&asked), lines(dir.path(), "started").len()), (2, 2));
    assert_eq!(call(&model).await.text(), "Hello", "the next one is none of its business");
}

#[tokio::test]
async fn a_child_that_dies_in_the_middle_of_an_answer_costs_the_turn_and_the_next_one_works() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let begun = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1000\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";
    let asked = serve_until(dir.path(), &[begun]);
    let model = registry(dir.path()).default_model();
    let answer = call(&model).await;
    let text = "The embedded model local/tiny failed: it ended in the middle of its answer (signal: 9 (SIGKILL)). The daemon's log says more.";
    assert_eq!((answer.text().as_str(), answer.fault().public.as_ref()), ("Hel", text));
    assert_eq!(request_count(&asked), 1, "what has begun is not asked for again");
    assert_eq!(call(&model).await.text(), "Hello");
}

#[tokio::test]
async fn weights_that_are_not_here_are_told_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let fault = registry(dir.path()).find("local/big").err().expect("it is not there");
    assert!(fault.public.contains("nexus3 models pull big --yes"), "{fault}");
    let found = registry(dir.path()).find("local").expect("the first is meant");
    assert_eq!(found.model(), Some("local/tiny"));
    drop(collect(found.call(request())));
}
