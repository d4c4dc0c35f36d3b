//! `ask`: interrupted on its way, and cut off.

use std::future::ready;

use super::*;

async fn never(_: u16) -> Result<(), String> {
    panic!("a daemon is there")
}

fn made() -> Reply {
    Reply::Result(json!({ "agent_id": ".1", "url": "/agent/.1", "token": "nxc_a" }))
}

#[tokio::test]
async fn a_daemon_that_is_being_started_is_not_waited_for_after_ctrl_c() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let run = Run { line: &["hello"], port: nobody, input: "", api_key: None, home: None };
    let started = tokio::sync::Notify::new();
    let start = async |_| {
        started.notify_one();
        pending().await
    };
    let finished = run.asked_or(start, started.notified()).await;
    assert_eq!((finished.code, finished.output.as_str()), (130, ""), "{}", finished.errors);
}

#[tokio::test]
async fn an_agent_that_is_being_made_is_not_waited_for_after_ctrl_c() {
    let daemon = Daemon::start(&[("list_agents", no_agents()), ("create_agent", Reply::Silence)]).await;
    let arrived = daemon.arrived("create_agent");
    let finished = Run::new(&daemon, &["hello"]).asked_or(never, arrived).await;
    assert_eq!((finished.code, finished.output.as_str()), (130, ""), "{}", finished.errors);
}

#[tokio::test]
async fn a_question_is_not_begun_after_ctrl_c() {
    let daemon = Daemon::start(&[("list_agents", no_agents())]).await;
    let finished = Run::new(&daemon, &["hello"]).asked_or(never, ready(())).await;
    assert_eq!((finished.code, daemon.connections()), (130, 0));
}

#[tokio::test]
async fn a_question_whose_connection_broke_is_asked_again_without_a_name() {
    let gone = Reply::Result(json!({ "success": true, "agent_id": ".1" }));
    let daemon = Daemon::start(&[
        ("list_agents", no_agents()),
        ("create_agent", made()),
        ("send", Reply::Stream("")),
        ("destroy_agent", gone),
    ])
    .await;
    let finished = Run::new(&daemon, &["hello"]).asked_or(never, pending()).await;
    assert_eq!(finished.code, 1);
    assert!(finished.errors.ends_with("; ask again\n"), "{}", finished.errors);
}

#[tokio::test]
async fn a_daemon_that_was_there_and_does_not_know_the_model_is_told_how_to_be_replaced() {
    let unknown = || Reply::Refused(200, "Unknown model 'openai/m': start the daemon with OPENAI_API_KEY");
    let daemon = Daemon::start(&[("list_agents", no_agents()), ("create_agent", unknown())]).await;
    let finished = Run::new(&daemon, &["--model", "openai/m", "hello"]).asked_or(never, pending()).await;
    assert_eq!(finished.code, 1);
    assert!(finished.errors.contains("\nA daemon was running already"), "{}", finished.errors);
    assert!(finished.errors.contains("nexus3 rpc shutdown"), "{}", finished.errors);
}

#[tokio::test]
async fn an_image_that_is_no_file_is_not_waited_for() {
    let args = Binary::try_parse_from(["nexus3", "ask", "look", "--image", "/dev/zero"]).unwrap().command;
    let Top::Ask(args) = args else { panic!("it asks") };
    let said = AskRequest::read(args, &mut std::io::empty()).err().unwrap();
    assert_eq!(said, "the image /dev/zero cannot be read: it is not a regular file");
}
