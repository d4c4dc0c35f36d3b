//! The token is nowhere but in its file: whatever is sent, and however much is logged.

use std::fs;
use std::path::Path;

use serde_json::json;
use testkit::{ScriptedModel, TestDaemon};

use crate::http::request_builder::RequestBuilder;
use crate::http::support::daemon;

#[test]
fn the_token_is_in_no_log_however_it_is_sent() {
    let model = ScriptedModel::start();
    let builder =
        daemon().model(&model).arg("--log-level").arg("trace").arg("--log-verbose").arg("--log-raw");
    let daemon = builder.start();
    let token = daemon.token().expect("a daemon has a token").to_owned();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "main" }));
    daemon.call_result("/agent/main", "send", json!({ "content": "hello" }));
    for bytes in ways_to_send(&daemon, &token) {
        let mut connection = daemon.connection();
        connection.send(&bytes);
        connection.shutdown_write();
        assert!(!connection.read_to_end().is_empty());
    }
    daemon.signal("SIGTERM");
    assert!(daemon.wait_exit().success());

    // Parts of it count too: a line may be cut.
    let part = &token[4..24];
    assert!(!daemon.stdout().contains(part), "stdout: {}", daemon.stdout());
    assert!(!daemon.stderr().contains(part), "stderr: {}", daemon.stderr());
    let searched = search(daemon.home(), part);
    assert!(searched >= 3, "only {searched} files were there to be searched");
}

/// Requests that hold the token where it belongs and where it does not.
fn ways_to_send(daemon: &TestDaemon, token: &str) -> Vec<Vec<u8>> {
    let good = RequestBuilder::valid(daemon);
    let bare = good.clone().without_header("Authorization");
    let half = &token[..30];
    let body = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":"{token}","method":"{method}"}}"#);
    let asks = [
        good.clone(),
        good.clone().replace_header(format!("Authorization: Bearer {token}x")),
        good.clone().replace_header(format!("Authorization: Bearer {half}")),
        good.clone().replace_header(format!("Authorization: Basic {token}")),
        good.clone().replace_header(format!("Authorization: {token}")),
        good.clone().header(format!("Authorization: Bearer {token}")),
        good.clone().replace_header(format!("Authorization : Bearer {token}")),
        good.clone().replace_header(format!("Authorization: Bearer {token}\u{1}")),
        good.clone().header(format!("Authorization Bearer {token}")),
        good.clone().header(format!("{token}: a")),
        good.clone().header(format!("X-Nexus-Agent: {token}")),
        good.clone().replace_header(format!("Content-Length: {token}")),
        good.clone().header(format!("Transfer-Encoding: {token}")),
        good.clone().header(format!("Expect: {token}")),
        good.clone().header(format!("Origin: {token}")),
        good.clone().replace_header(format!("Host: {token}")),
        good.clone().method(token),
        good.clone().version(token),
        good.clone().target(format!("/{token}")),
        good.clone().target(format!("/agent/{token}")),
        good.clone().target(format!("/?token={token}")),
        good.clone().target(format!("http://{token}@localhost/")),
        good.clone().body(body("list_agents")),
        good.clone().body(body(token)),
        good.clone().body(token),
        good.clone().body(json!({ "jsonrpc": "2.0", "method": "send", "params": { token: 1 } }).to_string()),
        good.body(body("get_tokens")).target("/agent/main"),
        bare.clone().target(format!("/?token={token}")),
        bare.clone().header(format!("Cookie: token={token}")),
        bare.clone().header(format!("Referer: http://127.0.0.1/?{token}")),
        bare.header(format!("Proxy-Authorization: Bearer {token}")),
    ];
    let mut ways: Vec<_> = asks.iter().map(RequestBuilder::bytes).collect();
    ways.push(format!("{token}\r\n\r\n").into_bytes());
    ways.push(format!("\0{token}").into_bytes());
    ways
}

/// Looks into every file under a directory; how many there were.
fn search(directory: &Path, part: &str) -> usize {
    let mut searched = 0;
    for entry in fs::read_dir(directory).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            searched += search(&path, part);
            continue;
        }
        let bytes = fs::read(&path).expect("the file can be read");
        let found = bytes.windows(part.len()).any(|window| window == part.as_bytes());
        assert!(!found, "{} holds the token", path.display());
        searched += 1;
    }
    searched
}
