//! `ask`: interrupted on its way, and cut off.

use std::future::ready;

use super::*;

async fn must_not_start(_: u16) -> Result<(), String> {
    panic!("a daemon is there")
}

fn temporary_agent_reply() -> Reply {
    Reply::Result(json!({ "agent_id": ".1", "url": "/agent/.1", "token": "nxc_a" }))
}

#[tokio::test]
async fn a_daemon_that_is_being_started_is_not_waited_for_after_ctrl_c() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let run = CommandRun { arguments: &["hello"], port: nobody, input: "", api_key: None, home: None };
    let started = tokio::sync::Notify::new();
    let start = async |_| {
        started.notify_one();
        pending().await
    };
    let finished = run.ask_with_interrupt(start, started.notified()).await;
    assert_eq!((finished.code, finished.output.as_str()), (130, ""), "{}", finished.errors);
}

#[tokio::test]
async fn an_agent_that_is_being_made_is_not_waited_for_after_ctrl_c() {
    let daemon =
        ScriptedDaemon::start(&[("list_agents", empty_list_reply()), ("create_agent", Reply::Hang)]).await;
    let arrived = daemon.request_arrived("create_agent");
    let finished = CommandRun::new(&daemon, &["hello"]).ask_with_interrupt(must_not_start, arrived).await;
    assert_eq!((finished.code, finished.output.as_str()), (130, ""), "{}", finished.errors);
}

#[tokio::test]
async fn a_question_is_not_begun_after_ctrl_c() {
    let daemon = ScriptedDaemon::start(&[("list_agents", empty_list_reply())]).await;
    let finished = CommandRun::new(&daemon, &["hello"]).ask_with_interrupt(must_not_start, ready(())).await;
    assert_eq!((finished.code, daemon.connections()), (130, 0));
}

#[tokio::test]
async fn a_question_whose_connection_broke_is_asked_again_without_a_name() {
    let gone = Reply::Result(json!({ "success": true, "agent_id": ".1" }));
    let daemon = ScriptedDaemon::start(&[
        ("list_agents", empty_list_reply()),
        ("create_agent", temporary_agent_reply()),
        ("send", Reply::Stream("")),
        ("destroy_agent", gone),
    ])
    .await;
    let finished = CommandRun::new(&daemon, &["hello"]).ask_with_interrupt(must_not_start, pending()).await;
    assert_eq!(finished.code, 1);
    assert!(finished.errors.ends_with("; ask again\n"), "{}", finished.errors);
}

#[tokio::test]
async fn a_daemon_that_was_there_and_does_not_know_the_model_is_told_how_to_be_replaced() {
    let unknown =
        || Reply::HttpRefusal(200, "Unknown model 'openai/m': start the daemon with OPENAI_API_KEY");
    let daemon =
        ScriptedDaemon::start(&[("list_agents", empty_list_reply()), ("create_agent", unknown())]).await;
    let finished = CommandRun::new(&daemon, &["--model", "openai/m", "hello"])
        .ask_with_interrupt(must_not_start, pending())
        .await;
    assert_eq!(finished.code, 1);
    assert!(finished.errors.contains("\nA daemon was running already"), "{}", finished.errors);
    assert!(finished.errors.contains("nexus3 rpc shutdown"), "{}", finished.errors);
}

#[tokio::test]
async fn an_image_that_is_no_file_is_not_waited_for() {
    let args = Binary::try_parse_from(["nexus3", "ask", "look", "--image", "/dev/zero"]).unwrap().command;
    let TopCommand::Ask(args) = args else { panic!("it asks") };
    let said = AskRequest::read(args, &mut std::io::empty()).err().unwrap();
    assert_eq!(said, "the image /dev/zero cannot be read: it is not a regular file");
}
