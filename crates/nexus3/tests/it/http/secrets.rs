//! The daemon's token is stored only in its file, whatever clients send and at every log level.

use std::fs;
use std::path::Path;

use serde_json::json;
use testkit::http::RequestBuilder;
use testkit::{ScriptedModel, TestDaemon};

use crate::http::daemon;

#[test]
fn token_is_in_no_log_wherever_a_client_puts_it() {
    let model = ScriptedModel::start();
    let builder =
        daemon().model(&model).arg("--log-level").arg("trace").arg("--log-verbose").arg("--log-raw");
    let daemon = builder.start();
    let token = daemon.token().expect("a daemon has a token").to_owned();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "main" }));
    daemon.call_result("/agent/main", "send", json!({ "content": "hello" }));
    for bytes in requests_with_token(&daemon, &token) {
        let mut connection = daemon.connection();
        connection.send(&bytes);
        connection.shutdown_write();
        assert!(!connection.read_to_end().is_empty());
    }
    daemon.signal("SIGTERM");
    assert!(daemon.wait_exit().success());

    // Searches for a part of the token, because a log line may be truncated.
    let part = &token[4..24];
    assert!(!daemon.stdout().contains(part), "stdout: {}", daemon.stdout());
    assert!(!daemon.stderr().contains(part), "stderr: {}", daemon.stderr());
    let searched = search(daemon.home(), part);
    assert!(searched >= 3, "only {searched} files were searched");
}

/// Requests with the token in the Authorization header and in other places.
fn requests_with_token(daemon: &TestDaemon, token: &str) -> Vec<Vec<u8>> {
    let valid = RequestBuilder::valid(daemon);
    let without_token = valid.clone().without_header("Authorization");
    let half = &token[..30];
    let body = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":"{token}","method":"{method}"}}"#);
    let requests = [
        valid.clone(),
        valid.clone().replace_header(format!("Authorization: Bearer {token}x")),
        valid.clone().replace_header(format!("Authorization: Bearer {half}")),
        valid.clone().replace_header(format!("Authorization: Basic {token}")),
        valid.clone().replace_header(format!("Authorization: {token}")),
        valid.clone().header(format!("Authorization: Bearer {token}")),
        valid.clone().replace_header(format!("Authorization : Bearer {token}")),
        valid.clone().replace_header(format!("Authorization: Bearer {token}\u{1}")),
        valid.clone().header(format!("Authorization Bearer {token}")),
        valid.clone().header(format!("{token}: a")),
        valid.clone().header(format!("X-Nexus-Agent: {token}")),
        valid.clone().replace_header(format!("Content-Length: {token}")),
        valid.clone().header(format!("Transfer-Encoding: {token}")),
        valid.clone().header(format!("Expect: {token}")),
        valid.clone().header(format!("Origin: {token}")),
        valid.clone().replace_header(format!("Host: {token}")),
        valid.clone().method(token),
        valid.clone().version(token),
        valid.clone().target(format!("/{token}")),
        valid.clone().target(format!("/agent/{token}")),
        valid.clone().target(format!("/?token={token}")),
        valid.clone().target(format!("http://{token}@localhost/")),
        valid.clone().body(body("list_agents")),
        valid.clone().body(body(token)),
        valid.clone().body(token),
        valid.clone().body(json!({ "jsonrpc": "2.0", "method": "send", "params": { token: 1 } }).to_string()),
        valid.body(body("get_tokens")).target("/agent/main"),
        without_token.clone().target(format!("/?token={token}")),
        without_token.clone().header(format!("Cookie: token={token}")),
        without_token.clone().header(format!("Referer: http://127.0.0.1/?{token}")),
        without_token.header(format!("Proxy-Authorization: Bearer {token}")),
    ];
    let mut bytes: Vec<_> = requests.iter().map(RequestBuilder::bytes).collect();
    bytes.push(format!("{token}\r\n\r\n").into_bytes());
    bytes.push(format!("\0{token}").into_bytes());
    bytes
}

/// Asserts that no file below a directory contains the text; returns the number of files.
fn search(directory: &Path, part: &str) -> usize {
    let mut searched = 0;
    for entry in fs::read_dir(directory).expect("the directory is readable") {
        let path = entry.expect("the directory is readable").path();
        if path.is_dir() {
            searched += search(&path, part);
            continue;
        }
        let bytes = fs::read(&path).expect("the file is readable");
        let found = bytes.windows(part.len()).any(|window| window == part.as_bytes());
        assert!(!found, "{} contains the token", path.display());
        searched += 1;
    }
    searched
}
