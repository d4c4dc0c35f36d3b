//! `TestDaemon` and `run`, with fake daemons.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{ScriptedModel, TestDaemon, TestDaemonBuilder, run};

use crate::support::{chat_request, stream_events, without_stream};

const FAKE_DAEMON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fake-daemon.sh");

/// A fake daemon that prints the model's port as its own, so that the model gets the requests to it.
fn fake_daemon(model: &ScriptedModel) -> TestDaemonBuilder {
    TestDaemon::builder(FAKE_DAEMON).env("FAKE_DAEMON_PORT", model.port().to_string())
}

#[test]
fn failing_binary_is_a_failed_start() {
    let failed = TestDaemon::builder("/bin/false").try_start().expect_err("false fails");
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!((failed.stdout.as_str(), failed.stderr.as_str()), ("", ""));
    assert!(failed.to_string().starts_with("the daemon exited before it was ready: exit status: 1"));
}

#[test]
fn failed_start_includes_the_output() {
    let failed = TestDaemon::builder("/bin/echo").arg("--no-auth").try_start().expect_err("echo ends");
    assert!(failed.status.success());
    assert!(failed.stdout.starts_with("serve --port 0 --home "), "{}", failed.stdout);
    assert!(failed.stdout.ends_with(" --no-auth\n"), "{}", failed.stdout);
}

#[test]
fn daemon_has_private_home_and_clean_environment() {
    let model = ScriptedModel::with_key("sk-model");
    let daemon = fake_daemon(&model).model(&model).config("number = 42\n").start();
    daemon.wait_stderr("number = 42");
    let stderr = daemon.stderr();
    let mode = fs::metadata(daemon.home()).expect("a home").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let args = format!("args: serve --port 0 --home {} --model openai/scripted\n", daemon.home().display());
    assert!(stderr.starts_with(&args), "{stderr}");
    let line = stderr.lines().find_map(|line| line.strip_prefix("env: ")).expect("the environment's names");
    let expected = ["FAKE_DAEMON_PORT", "HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL", "PATH", "TZ"];
    let set_by_shell = ["OLDPWD", "PWD", "SHLVL", "_"];
    let names: Vec<_> = line.split_whitespace().filter(|name| !set_by_shell.contains(name)).collect();
    assert_eq!(names, expected);
    assert!(daemon.stdout().starts_with("Welcome\nServer: "));
}

#[test]
fn post_sends_the_token_unless_overridden() {
    let model = ScriptedModel::with_key("sk-fake-daemon");
    let daemon = fake_daemon(&model).start();
    assert_eq!((daemon.port(), daemon.token()), (model.port(), Some("sk-fake-daemon")));
    assert_eq!(daemon.base_url(), format!("http://127.0.0.1:{}", model.port()));
    let path = "/v1/chat/completions";
    let response = daemon.post(path, &[("X-Trace", "7")], chat_request("Hello").to_string().as_bytes());
    assert_eq!(stream_events(&response).len(), 4);
    assert_eq!(model.requests()[0].header("x-trace"), Some("7"));
    let body = without_stream(chat_request("Hello")).to_string();
    assert_eq!(daemon.post(path, &[("authorization", "Bearer no")], body.as_bytes()).status, 401);
    let response = daemon.send_raw(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((response.status, response.body.len()), (404, 0));
    let mut connection = daemon.connection();
    connection.send(&daemon.post_bytes(path, &[], body.as_bytes()));
    assert_eq!(connection.read_response().status, 200);
}

/// Sends each response to one request; the thread returns the requests.
fn serve_responses(responses: [&'static str; 3]) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let serve_one = move |response: &str| {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            let mut chunk = [0; 4096];
            let read = stream.read(&mut chunk).expect("a request");
            request.extend_from_slice(&chunk[..read]);
        }
        let length = response.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{response}")
            .expect("a peer that reads");
        String::from_utf8(request).expect("text")
    };
    (port, thread::spawn(move || responses.into_iter().map(serve_one).collect()))
}

#[test]
fn calls_are_json_rpc_with_unique_ids() {
    let responses = [
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"ok\":true}}",
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32601,\"message\":\"no\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":{\"code\":-32601,\"message\":\"no\"}}",
    ];
    let (port, server) = serve_responses(responses);
    let daemon = TestDaemon::builder(FAKE_DAEMON).env("FAKE_DAEMON_PORT", port.to_string()).start();
    assert_eq!(daemon.call_result("/", "list_agents", json!({ "a": 1 })), json!({ "ok": true }));
    assert_eq!(daemon.call("/agent/x", "nothing", json!([]))["error"]["code"], -32601);
    let failed = catch_unwind(AssertUnwindSafe(|| daemon.call_result("/", "nothing", json!({}))));
    let message = failed.expect_err("an error is no result");
    let message = message.downcast_ref::<String>().expect("a panic with a text");
    assert!(message.starts_with("nothing on / failed: {\"code\":-32601"), "{message}");
    let requests = server.join().expect("server");
    assert!(requests[0].starts_with("POST / HTTP/1.1\r\n"), "{}", requests[0]);
    assert!(requests[0].contains("\r\nAuthorization: Bearer sk-fake-daemon\r\n"), "{}", requests[0]);
    let body = requests[0].split_once("\r\n\r\n").expect("a body").1;
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body, json!({ "jsonrpc": "2.0", "id": 1, "method": "list_agents", "params": { "a": 1 } }));
}

#[test]
fn daemon_receives_signals_and_exits() {
    let model = ScriptedModel::start();
    let daemon = fake_daemon(&model).start();
    assert!(daemon.anonymous_memory_kb() > 0 && daemon.open_fds() >= 3);
    daemon.signal("SIGTERM");
    daemon.wait_stderr("stopping");
    assert_eq!(daemon.wait_exit().code(), Some(7));
    let daemon = fake_daemon(&model).start();
    daemon.signal("SIGSTOP");
    daemon.signal("SIGKILL");
    assert_eq!(daemon.wait_exit().signal(), Some(9));
}

#[test]
fn dropped_daemon_exits_and_a_given_home_stays() {
    let model = ScriptedModel::start();
    let directory = TempDir::new().expect("a directory");
    let home = directory.path().join("deep/home");
    let daemon = fake_daemon(&model).home(&home).start();
    let process = format!("/proc/{}", daemon.pid());
    assert!(fs::exists(&process).expect("proc is readable"));
    drop(daemon);
    assert!(!fs::exists(&process).expect("proc is readable"));
    assert!(home.join(format!("rpc-{}.token", model.port())).exists());
    let daemon = fake_daemon(&model).start();
    let temporary = daemon.home().to_owned();
    drop(daemon);
    assert!(!temporary.exists());
}

#[test]
fn run_uses_a_clean_environment() {
    let home = TempDir::new().expect("a directory");
    let script = "echo \"$HOME $NEXUS3_HOME $TZ $GIVEN\"; echo no >&2; exit 3";
    let finished = run("/bin/sh", &["-c", script], &[("GIVEN", "1")], home.path());
    let path = home.path().display();
    assert_eq!(finished.stdout, format!("{path} {path} UTC 1\n"));
    assert_eq!((finished.code, finished.stderr.as_str()), (3, "no\n"));
    assert_eq!(run("/bin/sh", &["-c", "kill -9 $$"], &[], home.path()).code, 137);
}

#[test]
fn scripted_model_program_prints_address_and_help() {
    let home = TempDir::new().expect("a directory");
    let program = env!("CARGO_BIN_EXE_scripted-model");
    let help = run(program, &["--help"], &[], home.path());
    assert_eq!(help.code, 0);
    assert!(help.stdout.contains("  !hold NAME [TEXT]"), "{}", help.stdout);
    assert!(help.stdout.lines().all(|line| line.chars().count() <= 80), "{}", help.stdout);
    let wrong = run(program, &["--prot", "1"], &[], home.path());
    assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""));
    assert_eq!(run(program, &["--port"], &[], home.path()).code, 2);
    let model = ScriptedModel::start();
    let conflict = run(program, &["--port", &model.port().to_string()], &[], home.path());
    assert_eq!(conflict.code, 1, "{}", conflict.stderr);
    let script = "cd \"$HOME\"; mkfifo out; \"$PROGRAM\" >out & pid=$!; exec 3<\"$HOME/out\"; \
                  read -r line <&3; echo \"$line\"; kill -TERM $pid; wait $pid";
    let stopped = run("/bin/sh", &["-c", script], &[("PROGRAM", program)], home.path());
    assert_eq!((stopped.code, stopped.stderr.as_str()), (0, ""));
    assert!(stopped.stdout.starts_with("Listening on http://127.0.0.1:"), "{}", stopped.stdout);
}
