//! `ask`: interrupts before the question is sent, and failures.

use std::future::ready;

use super::*;

async fn must_not_start(_: u16) -> Result<(), String> {
    panic!("a daemon is already running")
}

fn temporary_agent_reply() -> Reply {
    Reply::Result(json!({ "agent_id": ".1", "url": "/agent/.1", "token": "nxc_a" }))
}

#[tokio::test]
async fn ctrl_c_stops_waiting_for_a_starting_daemon() {
    let free_port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let run = CommandRun { arguments: &["hello"], port: free_port, input: "", api_key: None, home: None };
    let started = tokio::sync::Notify::new();
    let start = async |_| {
        started.notify_one();
        pending().await
    };
    let outcome = run.ask_with_interrupt(start, started.notified()).await;
    assert_eq!((outcome.code, outcome.output.as_str()), (130, ""), "{}", outcome.errors);
}

#[tokio::test]
async fn ctrl_c_stops_waiting_for_agent_creation() {
    let daemon = ScriptedDaemon::start(&[("list_agents", empty_list_reply()), ("create_agent", Reply::Hang)]);
    let arrived = daemon.request_arrived("create_agent");
    let outcome = CommandRun::new(&daemon, &["hello"]).ask_with_interrupt(must_not_start, arrived).await;
    assert_eq!((outcome.code, outcome.output.as_str()), (130, ""), "{}", outcome.errors);
}

#[tokio::test]
async fn ctrl_c_before_the_start_sends_nothing() {
    let daemon = ScriptedDaemon::start(&[("list_agents", empty_list_reply())]);
    let outcome = CommandRun::new(&daemon, &["hello"]).ask_with_interrupt(must_not_start, ready(())).await;
    assert_eq!((outcome.code, daemon.connections()), (130, 0));
}

#[tokio::test]
async fn lost_connection_advises_to_ask_again() {
    let destroyed = Reply::Result(json!({ "success": true, "agent_id": ".1" }));
    let daemon = ScriptedDaemon::start(&[
        ("list_agents", empty_list_reply()),
        ("create_agent", temporary_agent_reply()),
        ("send", Reply::Stream("")),
        ("destroy_agent", destroyed),
    ]);
    let outcome = CommandRun::new(&daemon, &["hello"]).ask_with_interrupt(must_not_start, pending()).await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.errors.ends_with("; ask again\n"), "{}", outcome.errors);
}

#[tokio::test]
async fn unknown_model_at_a_running_daemon_explains_the_restart() {
    let unknown =
        || Reply::HttpRefusal(200, "Unknown model 'openai/m': start the daemon with OPENAI_API_KEY");
    let daemon = ScriptedDaemon::start(&[("list_agents", empty_list_reply()), ("create_agent", unknown())]);
    let outcome = CommandRun::new(&daemon, &["--model", "openai/m", "hello"])
        .ask_with_interrupt(must_not_start, pending())
        .await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.errors.contains("\nThe running daemon has the environment"), "{}", outcome.errors);
    assert!(outcome.errors.contains("nexus3 rpc shutdown"), "{}", outcome.errors);
}

#[tokio::test]
async fn image_that_is_not_a_regular_file_is_rejected() {
    let args = Binary::try_parse_from(["nexus3", "ask", "look", "--image", "/dev/zero"]).unwrap().command;
    let TopCommand::Ask(args) = args else { panic!("not ask") };
    let error_text = AskRequest::read(args, &mut std::io::empty()).err().unwrap();
    assert_eq!(error_text, "cannot read image /dev/zero: it is not a regular file");
}
