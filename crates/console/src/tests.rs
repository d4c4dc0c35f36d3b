//! The commands against a scripted daemon: their requests, output and exit codes.

mod agents;
mod ask_command;
mod events;
mod help;
mod lifecycle_commands;
mod scripted_daemon;
mod streaming;

use std::fs;
use std::future::pending;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::Parser;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use scripted_daemon::{Reply, ScriptedDaemon};

/// The command line of the binary, reduced to `rpc` and `ask`.
#[derive(Parser)]
struct Binary {
    #[command(subcommand)]
    command: TopCommand,
}

#[derive(clap::Subcommand)]
enum TopCommand {
    Rpc(RpcArgs),
    Ask(AskArgs),
}

struct CommandOutcome {
    code: u8,
    output: String,
    errors: String,
}

impl CommandOutcome {
    fn json(&self) -> Value {
        serde_json::from_str(&self.output).unwrap_or_else(|_| panic!("{} / {}", self.output, self.errors))
    }
}

/// A run of the program, by default on a machine without tokens.
struct CommandRun<'a> {
    arguments: &'a [&'a str],
    port: u16,
    input: &'a str,
    api_key: Option<&'a str>,
    home: Option<&'a Path>,
}

impl<'a> CommandRun<'a> {
    fn new(daemon: &ScriptedDaemon, arguments: &'a [&'a str]) -> Self {
        Self { arguments, port: daemon.port, input: "", api_key: None, home: None }
    }

    async fn finish(self) -> CommandOutcome {
        self.finish_with_interrupt(pending()).await
    }

    async fn finish_with_interrupt(self, interrupt: impl Future<Output = ()>) -> CommandOutcome {
        let args = Binary::try_parse_from(["nexus3", "rpc"].iter().chain(self.arguments)).unwrap().command;
        self.execute(args, async |_| pending().await, interrupt).await
    }

    /// Runs `nexus3 ask`.
    async fn ask_with_interrupt(
        self,
        start: impl AsyncFnOnce(u16) -> Result<(), String>,
        interrupt: impl Future<Output = ()>,
    ) -> CommandOutcome {
        let args = Binary::try_parse_from(["nexus3", "ask"].iter().chain(self.arguments)).unwrap().command;
        self.execute(args, start, interrupt).await
    }

    async fn execute(
        self,
        args: TopCommand,
        start: impl AsyncFnOnce(u16) -> Result<(), String>,
        interrupt: impl Future<Output = ()>,
    ) -> CommandOutcome {
        let empty = TempDir::new().unwrap();
        let options = ConsoleOptions {
            home: self.home.unwrap_or(empty.path()).to_owned(),
            api_key: self.api_key.map(str::to_owned),
            host: "127.0.0.1".to_owned(),
            port: self.port,
            new_request_id: || "0123456789abcdef".to_owned(),
        };
        let (mut input, mut output, mut errors) = (self.input.as_bytes(), Vec::new(), Vec::new());
        let streams = Streams { input: &mut input, output: &mut output, errors: &mut errors };
        let code = match args {
            TopCommand::Rpc(args) => run(args, &options, streams, interrupt).await,
            TopCommand::Ask(args) => {
                let request = AskRequest::read(args, &mut std::io::empty()).unwrap();
                ask(request, &options, start, streams, interrupt).await
            }
        };
        let [output, errors] = [output, errors].map(|bytes| String::from_utf8(bytes).unwrap());
        CommandOutcome { code, output, errors }
    }
}

async fn rpc(daemon: &ScriptedDaemon, arguments: &[&str]) -> CommandOutcome {
    CommandRun::new(daemon, arguments).finish().await
}

fn home_with_token_file(mode: u32) -> (TempDir, String) {
    let home = TempDir::new().unwrap();
    let path = home.path().join("rpc.token");
    fs::write(&path, "nxk_secret").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let path_text = path.display().to_string();
    (home, path_text)
}

fn send_output(content: &str) -> Value {
    json!({ "content": content, "request_id": "0123456789abcdef", "halted_at_iteration_limit": false })
}

fn cancelled_send_output(content: &str) -> Value {
    let mut result = send_output(content);
    result["cancelled"] = json!(true);
    result
}

fn cancel_reply(cancelled: bool) -> Reply {
    Reply::Result(json!({ "cancelled": cancelled, "request_id": "0123456789abcdef" }))
}

fn empty_list_reply() -> Reply {
    Reply::Result(json!({ "agents": [], "total": 0 }))
}

#[test]
fn wrong_usage_exits_2() {
    let lines: [&[&str]; 28] = [
        &[],
        &["nothing"],
        &["send", "a"],
        &["send", "a", "b", "c"],
        &["send", "a", "b", "-t", "0"],
        &["send", "a", "b", "-t", "soon"],
        &["messages", "a", "--limit", "0"],
        &["messages", "a", "--limit", "2001"],
        &["messages", "a", "--offset=-1"],
        &["create", "a", "b"],
        &["create", "a", "--temporary"],
        &["create", "-t", "0"],
        &["create", "--write-path"],
        &["steer", "a"],
        &["show"],
        &["destroy", "--orphan"],
        &["permissions", "a", "b"],
        &["list", "-p", "0"],
        &["list", "--api-key", "two words"],
        &["create", "--on-restart", "maybe"],
        &["sessions", "--limit", "0"],
        &["fork"],
        &["fork", "a", "--messages=-1"],
        &["rollback", "a"],
        &["rename", "a"],
        &["import"],
        &["events", "--kind", "nothing"],
        &["events", "--after", "soon"],
    ];
    for line in lines {
        let fault = Binary::try_parse_from(["nexus3", "rpc"].iter().chain(line)).err().unwrap();
        assert_eq!(fault.exit_code(), 2, "{line:?}");
    }
}

#[test]
fn arguments_never_show_the_key() {
    let line = ["nexus3", "rpc", "list", "--api-key", "nxk_secret"];
    let TopCommand::Rpc(args) = Binary::try_parse_from(line).unwrap().command else { panic!("not rpc") };
    assert!(!format!("{args:?}").contains("secret"));
}

#[tokio::test]
async fn list_is_one_call_on_one_connection() {
    let daemon = ScriptedDaemon::start(&[("list_agents", empty_list_reply())]);
    let outcome = rpc(&daemon, &["list"]).await;
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "{\n  \"agents\": [],\n  \"total\": 0\n}\n"));
    assert_eq!(outcome.errors, "");
    assert_eq!((daemon.methods(), daemon.connections()), (vec!["list_agents".to_owned()], 1));
}

#[tokio::test]
async fn port_option_works_before_and_after_the_command() {
    let daemon = ScriptedDaemon::start(&[("list_agents", empty_list_reply())]);
    let port = daemon.port.to_string();
    let lines: [&[&str]; 2] = [&["-p", &port, "list"], &["list", "--port", &port]];
    for line in lines {
        let outcome = CommandRun { port: 1, ..CommandRun::new(&daemon, line) }.finish().await;
        assert_eq!(outcome.code, 0, "{}", outcome.errors);
    }
}

#[tokio::test]
async fn detect_prints_port_and_result_and_sends_no_token() {
    let rejection = Reply::HttpRefusal(401, "Authorization header required");
    let daemon = ScriptedDaemon::start(&[("list_agents", rejection)]);
    // The probe does not read the token file, so an invalid one does not stop it.
    let (home, _) = home_with_token_file(0o644);
    let outcome =
        CommandRun { home: Some(home.path()), ..CommandRun::new(&daemon, &["detect"]) }.finish().await;
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.json(), json!({ "port": daemon.port, "result": "nexus_server", "running": true }));
}

#[tokio::test]
async fn missing_daemon_exits_1_with_the_start_command() {
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = reserved.local_addr().unwrap().port();
    let run = |arguments| CommandRun { arguments, port, input: "", api_key: None, home: None }.finish();

    let outcome = run(&["list"]).await;
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert_eq!(
        outcome.errors,
        format!("no nexus3 daemon at 127.0.0.1:{port}; start one with: nexus3 serve {port}\n")
    );

    let outcome = run(&["detect"]).await;
    assert_eq!(outcome.code, 1);
    assert_eq!(outcome.json(), json!({ "port": port, "result": "no_server", "running": false }));
}

#[tokio::test]
async fn create_sends_its_arguments() {
    let created = json!({ "agent_id": "a", "url": "/agent/a", "token": "nxc_a" });
    let daemon = ScriptedDaemon::start(&[("create_agent", Reply::Result(created.clone()))]);
    let outcome = rpc(&daemon, &["create", "a", "--system-prompt", "be brief"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, created));
    assert_eq!(daemon.received()[0].params, json!({ "agent_id": "a", "system_prompt": "be brief" }));

    rpc(&daemon, &["create"]).await;
    assert_eq!(daemon.received()[1].params, Value::Null);
}

#[tokio::test]
async fn create_with_a_message_prints_agent_and_response() {
    let created = json!({ "agent_id": "1a2b3c4d", "url": "/agent/1a2b3c4d", "token": "nxc_a" });
    let daemon = ScriptedDaemon::start(&[
        ("create_agent", Reply::Result(created)),
        ("send", Reply::Result(send_output("hi"))),
    ]);
    let outcome = rpc(&daemon, &["create", "-M", "hello"]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert_eq!(outcome.json()["agent_id"], "1a2b3c4d");
    assert_eq!(outcome.json()["response"]["content"], "hi");
    assert_eq!(daemon.received()[1].path, "/agent/1a2b3c4d");
    assert_eq!(daemon.connections(), 1);
}

#[tokio::test]
async fn create_prints_the_agent_id_when_its_message_failed() {
    let created = json!({ "agent_id": "1a2b3c4d", "url": "/agent/1a2b3c4d", "token": "nxc_a" });
    let failed = Reply::HttpRefusal(500, "Provider failed");
    let daemon = ScriptedDaemon::start(&[("create_agent", Reply::Result(created.clone())), ("send", failed)]);
    let outcome = rpc(&daemon, &["create", "-M", "hello"]).await;
    assert_eq!((outcome.code, outcome.json()), (1, created));
    assert_eq!(outcome.errors, "Provider failed (-32600)\n");
}

#[tokio::test]
async fn send_has_a_request_id_and_prints_the_response() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Result(send_output("hi")))]);
    let outcome = rpc(&daemon, &["send", "a", "hello"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, send_output("hi")));
    let request = &daemon.received()[0];
    assert_eq!(request.path, "/agent/a");
    assert_eq!(request.params, json!({ "content": "hello", "request_id": "0123456789abcdef" }));
}

#[tokio::test]
async fn dash_reads_the_message_from_standard_input() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Result(send_output("hi")))]);
    let outcome =
        CommandRun { input: "two\nlines\n", ..CommandRun::new(&daemon, &["send", "a", "-"]) }.finish().await;
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert_eq!(daemon.received()[0].params["content"], "two\nlines\n");
}

#[tokio::test]
async fn send_is_cancelled_at_the_timeout_with_partial_text() {
    let daemon = ScriptedDaemon::start(&[
        ("send", Reply::UntilCancel(cancelled_send_output("half"))),
        ("cancel", cancel_reply(true)),
    ]);
    let outcome = rpc(&daemon, &["send", "a", "hello", "-t", "0.05"]).await;
    assert_eq!((outcome.code, outcome.json()), (1, cancelled_send_output("half")));
    assert!(outcome.errors.starts_with("no response within 50ms; cancelling 0123456789abcdef\n"));
    assert!(outcome.errors.contains("cancelled; the text is partial"), "{}", outcome.errors);
    assert_eq!(daemon.methods(), ["send", "cancel"]);
    assert_eq!(daemon.received()[1].params, json!({ "request_id": "0123456789abcdef" }));
}

#[tokio::test]
async fn ctrl_c_cancels_the_turn_at_the_daemon() {
    let daemon = ScriptedDaemon::start(&[
        ("send", Reply::UntilCancel(cancelled_send_output("half"))),
        ("cancel", cancel_reply(true)),
    ]);
    let interrupt = daemon.send_arrived();
    let outcome = CommandRun::new(&daemon, &["send", "a", "hello"]).finish_with_interrupt(interrupt).await;
    assert_eq!((outcome.code, outcome.json()), (1, cancelled_send_output("half")));
    assert!(outcome.errors.starts_with("interrupted; cancelling 0123456789abcdef\n"), "{}", outcome.errors);
}

#[tokio::test]
async fn cancel_that_overtook_its_send_is_repeated() {
    let daemon = ScriptedDaemon::start(&[
        ("send", Reply::UntilCancel(cancelled_send_output(""))),
        ("cancel", cancel_reply(false)),
        ("cancel", cancel_reply(true)),
    ]);
    let interrupt = daemon.send_arrived();
    let outcome = CommandRun::new(&daemon, &["send", "a", "hello"]).finish_with_interrupt(interrupt).await;
    assert_eq!((outcome.code, outcome.json()), (1, cancelled_send_output("")));
    assert_eq!(daemon.methods(), ["send", "cancel", "cancel"]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_that_does_not_end_is_abandoned() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Hang), ("cancel", cancel_reply(true))]);
    let outcome = rpc(&daemon, &["send", "a", "hello", "-t", "5"]).await;
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert!(outcome.errors.ends_with("try: nexus3 rpc cancel a 0123456789abcdef\n"), "{}", outcome.errors);
}

#[tokio::test]
async fn cancel_tries_a_numeric_id_as_text_and_number() {
    let not_found = json!({ "cancelled": false, "request_id": "5", "reason": "not_found_or_completed" });
    let found = json!({ "cancelled": true, "request_id": 5 });
    let daemon = ScriptedDaemon::start(&[
        ("cancel", Reply::Result(not_found.clone())),
        ("cancel", Reply::Result(found.clone())),
    ]);
    let outcome = rpc(&daemon, &["cancel", "a", "5"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, found));
    assert_eq!(daemon.received()[0].params, json!({ "request_id": "5" }));
    assert_eq!(daemon.received()[1].params, json!({ "request_id": 5 }));

    let daemon = ScriptedDaemon::start(&[("cancel", Reply::Result(not_found.clone()))]);
    assert_eq!(rpc(&daemon, &["cancel", "a", "5"]).await.json(), not_found);
    let daemon = ScriptedDaemon::start(&[("cancel", Reply::Result(not_found.clone()))]);
    assert_eq!(rpc(&daemon, &["cancel", "a", "r-5"]).await.json(), not_found);
    assert_eq!(daemon.methods(), ["cancel"]);
}

#[tokio::test]
async fn status_prints_tokens_and_context_from_one_connection() {
    let used = json!({ "requests": 0, "input_tokens": 0, "output_tokens": 0, "cached_tokens": 0 });
    let tokens = json!({
        "system": 1, "dynamic": 0, "tools": 0, "messages": 2, "total": 3, "budget": 10, "available": 8,
        "remaining": 5, "used": used,
    });
    let context = json!({
        "message_count": 1, "system_prompt": true, "halted_at_iteration_limit": false,
        "last_iteration_count": 1, "max_tool_iterations": 10,
    });
    let daemon = ScriptedDaemon::start(&[
        ("get_tokens", Reply::Result(tokens.clone())),
        ("get_context", Reply::Result(context.clone())),
    ]);
    let outcome = rpc(&daemon, &["status", "a"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, json!({ "tokens": tokens, "context": context })));
    assert_eq!(daemon.connections(), 1);
}

#[tokio::test]
async fn messages_requests_the_given_page() {
    let page = json!({ "agent_id": "a", "total": 0, "offset": 3, "limit": 7, "messages": [] });
    let daemon = ScriptedDaemon::start(&[("get_messages", Reply::Result(page.clone()))]);
    let outcome = rpc(&daemon, &["messages", "a", "--offset", "3", "--limit", "7"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, page));
    assert_eq!(daemon.received()[0].params, json!({ "offset": 3, "limit": 7 }));
    rpc(&daemon, &["messages", "a"]).await;
    assert_eq!(daemon.received()[1].params, Value::Null);
}

#[tokio::test]
async fn destroy_exits_1_when_the_agent_does_not_exist() {
    for (success, code, errors) in [(true, 0, ""), (false, 1, "agent not found: a\n")] {
        let result = json!({ "success": success, "agent_id": "a" });
        let daemon = ScriptedDaemon::start(&[("destroy_agent", Reply::Result(result.clone()))]);
        let outcome = rpc(&daemon, &["destroy", "a"]).await;
        assert_eq!((outcome.code, outcome.json(), outcome.errors.as_str()), (code, result, errors));
    }
}

#[tokio::test]
async fn shutdown_calls_shutdown_server() {
    let result = json!({ "success": true, "message": "Server shutting down" });
    let daemon = ScriptedDaemon::start(&[("shutdown_server", Reply::Result(result.clone()))]);
    let outcome = rpc(&daemon, &["shutdown"]).await;
    assert_eq!((outcome.code, outcome.json()), (0, result));
    assert_eq!(daemon.received()[0].path, "/");
}

#[tokio::test]
async fn rejected_token_is_named_by_origin_and_never_shown() {
    let rejection = Reply::HttpRefusal(403, "Invalid API key");
    let daemon = ScriptedDaemon::start(&[("list_agents", rejection)]);
    let (home, path) = home_with_token_file(0o600);
    let with = |line, api_key| {
        CommandRun { api_key, home: Some(home.path()), ..CommandRun::new(&daemon, line) }.finish()
    };
    let cases = [
        (with(&["list", "--api-key", "nxk_argued"], Some("nxk_env")).await, "nxk_argued", "--api-key"),
        (with(&["list"], Some("nxk_env")).await, "nxk_env", "NEXUS3_API_KEY"),
        (with(&["list"], None).await, "nxk_secret", path.as_str()),
    ];
    for (index, (outcome, token, source)) in cases.iter().enumerate() {
        assert_eq!(outcome.code, 1);
        assert_eq!(outcome.errors, format!("Invalid API key (-32600); the token came from {source}\n"));
        assert!(daemon.received()[index].head.contains(&format!("Bearer {token}")), "{source}");
    }
}

#[tokio::test]
async fn missing_token_error_lists_the_searched_files() {
    let rejection = Reply::HttpRefusal(401, "Authorization header required");
    let daemon = ScriptedDaemon::start(&[("list_agents", rejection)]);
    let outcome = rpc(&daemon, &["list"]).await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.errors.starts_with("Authorization header required (-32600); no token was found:"));
    assert!(outcome.errors.contains(&format!("rpc-{}.token, rpc.token", daemon.port)), "{}", outcome.errors);
}

#[tokio::test]
async fn exposed_token_file_stops_the_command_before_connecting() {
    let daemon = ScriptedDaemon::start(&[]);
    let (home, path) = home_with_token_file(0o644);
    let outcome =
        CommandRun { home: Some(home.path()), ..CommandRun::new(&daemon, &["list"]) }.finish().await;
    assert_eq!(outcome.code, 1);
    assert_eq!(
        outcome.errors,
        format!("token file {path} can be read by others (mode 0644); fix it with: chmod 600 {path}\n")
    );
    assert_eq!(daemon.connections(), 0);
}
