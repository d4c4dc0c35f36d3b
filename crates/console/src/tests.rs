//! The commands against a daemon with canned answers: what they ask, print and exit with.

mod agents;
mod ask_command;
mod events;
mod lifecycle_commands;
mod scripted_daemon;
mod streaming;

use std::fs;
use std::future::pending;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::{CommandFactory, Parser};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use scripted_daemon::{Reply, ScriptedDaemon};

/// As the binary has it.
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

/// A run of the program; what is not set is as on a machine without tokens.
struct CommandRun<'a> {
    arguments: &'a [&'a str],
    port: u16,
    input: &'a str,
    api_key: Option<&'a str>,
    home: Option<&'a Path>,
}

impl<'a> CommandRun<'a> {
    fn new(daemon: &ScriptedDaemon, line: &'a [&'a str]) -> Self {
        Self { arguments: line, port: daemon.port, input: "", api_key: None, home: None }
    }

    async fn finish(self) -> CommandOutcome {
        self.finish_with_interrupt(pending()).await
    }

    async fn finish_with_interrupt(self, interrupt: impl Future<Output = ()>) -> CommandOutcome {
        let args = Binary::try_parse_from(["nexus3", "rpc"].iter().chain(self.arguments)).unwrap().command;
        self.execute(args, async |_| pending().await, interrupt).await
    }

    /// The same with the words of `ask`.
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
                let question = AskRequest::read(args, &mut std::io::empty()).unwrap();
                ask(question, &options, start, streams, interrupt).await
            }
        };
        let [output, errors] = [output, errors].map(|bytes| String::from_utf8(bytes).unwrap());
        CommandOutcome { code, output, errors }
    }
}

async fn rpc(daemon: &ScriptedDaemon, line: &[&str]) -> CommandOutcome {
    CommandRun::new(daemon, line).finish().await
}

fn home_with_token_file(mode: u32) -> (TempDir, String) {
    let home = TempDir::new().unwrap();
    let path = home.path().join("rpc.token");
    fs::write(&path, "nxk_secret").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let shown = path.display().to_string();
    (home, shown)
}

fn send_output(content: &str) -> Value {
    json!({ "content": content, "request_id": "0123456789abcdef", "halted_at_iteration_limit": false })
}

fn cancelled_send_output(content: &str) -> Value {
    let mut answer = send_output(content);
    answer["cancelled"] = json!(true);
    answer
}

fn cancel_reply(cancelled: bool) -> Reply {
    Reply::Result(json!({ "cancelled": cancelled, "request_id": "0123456789abcdef" }))
}

fn empty_list_reply() -> Reply {
    Reply::Result(json!({ "agents": [], "total": 0 }))
}

#[test]
fn the_arguments_are_well_formed() {
    Binary::command().debug_assert();
}

#[test]
fn every_command_has_an_example() {
    let mut top = Binary::command();
    top.build();
    let rpc = top.find_subcommand("rpc").unwrap();
    for command in rpc.get_subcommands().filter(|command| command.get_name() != "help") {
        let help = command.clone().render_long_help().to_string();
        assert!(help.contains(&format!("nexus3 rpc {}", command.get_name())), "{help}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
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
    let TopCommand::Rpc(args) = Binary::try_parse_from(line).unwrap().command else { panic!("it is rpc") };
    assert!(!format!("{args:?}").contains("secret"));
}

#[tokio::test]
async fn list_is_one_call_on_one_connection_printed_with_an_indent_of_2() {
    let daemon = ScriptedDaemon::start(&[("list_agents", empty_list_reply())]).await;
    let finished = rpc(&daemon, &["list"]).await;
    assert_eq!((finished.code, finished.output.as_str()), (0, "{\n  \"agents\": [],\n  \"total\": 0\n}\n"));
    assert_eq!(finished.errors, "");
    assert_eq!((daemon.methods(), daemon.connections()), (vec!["list_agents".to_owned()], 1));
}

#[tokio::test]
async fn the_port_can_be_given_before_and_after_the_command() {
    let daemon = ScriptedDaemon::start(&[("list_agents", empty_list_reply())]).await;
    let port = daemon.port.to_string();
    let lines: [&[&str]; 2] = [&["-p", &port, "list"], &["list", "--port", &port]];
    for line in lines {
        let finished = CommandRun { port: 1, ..CommandRun::new(&daemon, line) }.finish().await;
        assert_eq!(finished.code, 0, "{}", finished.errors);
    }
}

#[tokio::test]
async fn detect_tells_the_port_and_the_result_and_shows_no_token() {
    let refused = Reply::HttpRefusal(401, "Authorization header required");
    let daemon = ScriptedDaemon::start(&[("list_agents", refused)]).await;
    // A token file that would be refused does not stop the probe: it is not looked at.
    let (home, _) = home_with_token_file(0o644);
    let finished =
        CommandRun { home: Some(home.path()), ..CommandRun::new(&daemon, &["detect"]) }.finish().await;
    assert_eq!(finished.code, 0);
    assert_eq!(finished.json(), json!({ "port": daemon.port, "result": "nexus_server", "running": true }));
}

#[tokio::test]
async fn nothing_there_is_exit_1_and_says_how_to_start_a_daemon() {
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = reserved.local_addr().unwrap().port();
    let run = |arguments| CommandRun { arguments, port, input: "", api_key: None, home: None }.finish();

    let finished = run(&["list"]).await;
    assert_eq!((finished.code, finished.output.as_str()), (1, ""));
    assert_eq!(
        finished.errors,
        format!("no nexus3 daemon at 127.0.0.1:{port}; start one with: nexus3 serve {port}\n")
    );

    let finished = run(&["detect"]).await;
    assert_eq!(finished.code, 1);
    assert_eq!(finished.json(), json!({ "port": port, "result": "no_server", "running": false }));
}

#[tokio::test]
async fn create_passes_its_arguments_on() {
    let created = json!({ "agent_id": "a", "url": "/agent/a", "token": "nxc_a" });
    let daemon = ScriptedDaemon::start(&[("create_agent", Reply::Result(created.clone()))]).await;
    let finished = rpc(&daemon, &["create", "a", "--system-prompt", "be brief"]).await;
    assert_eq!((finished.code, finished.json()), (0, created));
    assert_eq!(daemon.received()[0].params, json!({ "agent_id": "a", "system_prompt": "be brief" }));

    rpc(&daemon, &["create"]).await;
    assert_eq!(daemon.received()[1].params, Value::Null);
}

#[tokio::test]
async fn create_with_a_message_sends_it_on_the_same_connection_and_prints_both_answers() {
    let created = json!({ "agent_id": "1a2b3c4d", "url": "/agent/1a2b3c4d", "token": "nxc_a" });
    let daemon = ScriptedDaemon::start(&[
        ("create_agent", Reply::Result(created)),
        ("send", Reply::Result(send_output("hi"))),
    ])
    .await;
    let finished = rpc(&daemon, &["create", "-M", "hello"]).await;
    assert_eq!(finished.code, 0, "{}", finished.errors);
    assert_eq!(finished.json()["agent_id"], "1a2b3c4d");
    assert_eq!(finished.json()["response"]["content"], "hi");
    assert_eq!(daemon.received()[1].path, "/agent/1a2b3c4d");
    assert_eq!(daemon.connections(), 1);
}

#[tokio::test]
async fn create_tells_the_agents_name_also_when_its_message_failed() {
    let created = json!({ "agent_id": "1a2b3c4d", "url": "/agent/1a2b3c4d", "token": "nxc_a" });
    let failed = Reply::HttpRefusal(500, "Provider failed");
    let daemon =
        ScriptedDaemon::start(&[("create_agent", Reply::Result(created.clone())), ("send", failed)]).await;
    let finished = rpc(&daemon, &["create", "-M", "hello"]).await;
    assert_eq!((finished.code, finished.json()), (1, created));
    assert_eq!(finished.errors, "Provider failed (-32600)\n");
}

#[tokio::test]
async fn send_names_its_request_and_prints_the_answer() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Result(send_output("hi")))]).await;
    let finished = rpc(&daemon, &["send", "a", "hello"]).await;
    assert_eq!((finished.code, finished.json()), (0, send_output("hi")));
    let asked = &daemon.received()[0];
    assert_eq!(asked.path, "/agent/a");
    assert_eq!(asked.params, json!({ "content": "hello", "request_id": "0123456789abcdef" }));
}

#[tokio::test]
async fn a_dash_reads_the_message_from_standard_input() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Result(send_output("hi")))]).await;
    let finished =
        CommandRun { input: "two\nlines\n", ..CommandRun::new(&daemon, &["send", "a", "-"]) }.finish().await;
    assert_eq!(finished.code, 0, "{}", finished.errors);
    assert_eq!(daemon.received()[0].params["content"], "two\nlines\n");
}

#[tokio::test]
async fn a_send_without_an_answer_in_time_is_cancelled_and_prints_what_was_said() {
    let daemon = ScriptedDaemon::start(&[
        ("send", Reply::UntilCancel(cancelled_send_output("half"))),
        ("cancel", cancel_reply(true)),
    ])
    .await;
    let finished = rpc(&daemon, &["send", "a", "hello", "-t", "0.05"]).await;
    assert_eq!((finished.code, finished.json()), (1, cancelled_send_output("half")));
    assert!(finished.errors.starts_with("no answer within 50ms; cancelling 0123456789abcdef\n"));
    assert!(finished.errors.contains("the send was cancelled"), "{}", finished.errors);
    assert_eq!(daemon.methods(), ["send", "cancel"]);
    assert_eq!(daemon.received()[1].params, json!({ "request_id": "0123456789abcdef" }));
}

#[tokio::test]
async fn ctrl_c_cancels_the_turn_at_the_daemon() {
    let daemon = ScriptedDaemon::start(&[
        ("send", Reply::UntilCancel(cancelled_send_output("half"))),
        ("cancel", cancel_reply(true)),
    ])
    .await;
    let interrupt = daemon.send_arrived();
    let finished = CommandRun::new(&daemon, &["send", "a", "hello"]).finish_with_interrupt(interrupt).await;
    assert_eq!((finished.code, finished.json()), (1, cancelled_send_output("half")));
    assert!(finished.errors.starts_with("interrupted; cancelling 0123456789abcdef\n"), "{}", finished.errors);
}

#[tokio::test]
async fn a_cancel_that_overtook_its_send_is_repeated() {
    let daemon = ScriptedDaemon::start(&[
        ("send", Reply::UntilCancel(cancelled_send_output(""))),
        ("cancel", cancel_reply(false)),
        ("cancel", cancel_reply(true)),
    ])
    .await;
    let interrupt = daemon.send_arrived();
    let finished = CommandRun::new(&daemon, &["send", "a", "hello"]).finish_with_interrupt(interrupt).await;
    assert_eq!((finished.code, finished.json()), (1, cancelled_send_output("")));
    assert_eq!(daemon.methods(), ["send", "cancel", "cancel"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_does_not_end_a_cancelled_turn_is_given_up() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Hang), ("cancel", cancel_reply(true))]).await;
    let finished = rpc(&daemon, &["send", "a", "hello", "-t", "5"]).await;
    assert_eq!((finished.code, finished.output.as_str()), (1, ""));
    assert!(finished.errors.ends_with("try: nexus3 rpc cancel a 0123456789abcdef\n"), "{}", finished.errors);
}

#[tokio::test]
async fn cancel_tries_a_name_of_digits_as_a_number_too() {
    let not_found = json!({ "cancelled": false, "request_id": "5", "reason": "not_found_or_completed" });
    let found = json!({ "cancelled": true, "request_id": 5 });
    let daemon = ScriptedDaemon::start(&[
        ("cancel", Reply::Result(not_found.clone())),
        ("cancel", Reply::Result(found.clone())),
    ])
    .await;
    let finished = rpc(&daemon, &["cancel", "a", "5"]).await;
    assert_eq!((finished.code, finished.json()), (0, found));
    assert_eq!(daemon.received()[0].params, json!({ "request_id": "5" }));
    assert_eq!(daemon.received()[1].params, json!({ "request_id": 5 }));

    let daemon = ScriptedDaemon::start(&[("cancel", Reply::Result(not_found.clone()))]).await;
    assert_eq!(rpc(&daemon, &["cancel", "a", "5"]).await.json(), not_found);
    let daemon = ScriptedDaemon::start(&[("cancel", Reply::Result(not_found.clone()))]).await;
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
    ])
    .await;
    let finished = rpc(&daemon, &["status", "a"]).await;
    assert_eq!((finished.code, finished.json()), (0, json!({ "tokens": tokens, "context": context })));
    assert_eq!(daemon.connections(), 1);
}

#[tokio::test]
async fn messages_asks_for_the_page_it_was_told() {
    let page = json!({ "agent_id": "a", "total": 0, "offset": 3, "limit": 7, "messages": [] });
    let daemon = ScriptedDaemon::start(&[("get_messages", Reply::Result(page.clone()))]).await;
    let finished = rpc(&daemon, &["messages", "a", "--offset", "3", "--limit", "7"]).await;
    assert_eq!((finished.code, finished.json()), (0, page));
    assert_eq!(daemon.received()[0].params, json!({ "offset": 3, "limit": 7 }));
    rpc(&daemon, &["messages", "a"]).await;
    assert_eq!(daemon.received()[1].params, Value::Null);
}

#[tokio::test]
async fn destroy_exits_with_1_when_there_was_no_such_agent() {
    for (success, code, errors) in [(true, 0, ""), (false, 1, "no agent a\n")] {
        let answer = json!({ "success": success, "agent_id": "a" });
        let daemon = ScriptedDaemon::start(&[("destroy_agent", Reply::Result(answer.clone()))]).await;
        let finished = rpc(&daemon, &["destroy", "a"]).await;
        assert_eq!((finished.code, finished.json(), finished.errors.as_str()), (code, answer, errors));
    }
}

#[tokio::test]
async fn shutdown_stops_the_server() {
    let answer = json!({ "success": true, "message": "Server shutting down" });
    let daemon = ScriptedDaemon::start(&[("shutdown_server", Reply::Result(answer.clone()))]).await;
    let finished = rpc(&daemon, &["shutdown"]).await;
    assert_eq!((finished.code, finished.json()), (0, answer));
    assert_eq!(daemon.received()[0].path, "/");
}

#[tokio::test]
async fn a_refused_token_is_named_by_where_it_came_from_and_never_shown() {
    let refused = Reply::HttpRefusal(403, "Invalid API key");
    let daemon = ScriptedDaemon::start(&[("list_agents", refused)]).await;
    let (home, path) = home_with_token_file(0o600);
    let with = |line, api_key| {
        CommandRun { api_key, home: Some(home.path()), ..CommandRun::new(&daemon, line) }.finish()
    };
    let cases = [
        (with(&["list", "--api-key", "nxk_argued"], Some("nxk_env")).await, "nxk_argued", "--api-key"),
        (with(&["list"], Some("nxk_env")).await, "nxk_env", "NEXUS3_API_KEY"),
        (with(&["list"], None).await, "nxk_secret", path.as_str()),
    ];
    for (index, (finished, token, source)) in cases.iter().enumerate() {
        assert_eq!(finished.code, 1);
        assert_eq!(finished.errors, format!("Invalid API key (-32600); the token came from {source}\n"));
        assert!(daemon.received()[index].head.contains(&format!("Bearer {token}")), "{source}");
    }
}

#[tokio::test]
async fn a_missing_token_says_where_it_was_looked_for() {
    let refused = Reply::HttpRefusal(401, "Authorization header required");
    let daemon = ScriptedDaemon::start(&[("list_agents", refused)]).await;
    let finished = rpc(&daemon, &["list"]).await;
    assert_eq!(finished.code, 1);
    assert!(finished.errors.starts_with("Authorization header required (-32600); no token was found:"));
    assert!(
        finished.errors.contains(&format!("rpc-{}.token, rpc.token", daemon.port)),
        "{}",
        finished.errors
    );
}

#[tokio::test]
async fn a_token_file_that_others_can_read_stops_the_command_before_it_connects() {
    let daemon = ScriptedDaemon::start(&[]).await;
    let (home, path) = home_with_token_file(0o644);
    let finished =
        CommandRun { home: Some(home.path()), ..CommandRun::new(&daemon, &["list"]) }.finish().await;
    assert_eq!(finished.code, 1);
    assert_eq!(
        finished.errors,
        format!("token file {path} can be read by others (mode 0644); fix it with: chmod 600 {path}\n")
    );
    assert_eq!(daemon.connections(), 0);
}
