//! Clients that go away, and how the server ends.

use http_body_util::BodyExt;

use super::client::read;
use super::*;
use crate::generation::FinishReason;

#[tokio::test]
async fn a_client_that_goes_away_ends_its_stream() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    let mut response = caller.post_unread("/v1/chat/completions", &stream_request("endless"), &[]).await;
    assert!(response.frame().await.unwrap().is_ok());
    drop((response, caller));
    assert_eq!(server.script.wait_ended("endless").await, FinishReason::Cancelled);
    assert_eq!(server.connect().await.chat(&chat_request("hello")).await.status, 200);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_answer_that_it_wanted_whole() {
    let server = TestServer::start();
    let asking = server.send("a", "endless").await;
    server.script.wait_started(1).await;
    asking.abort();
    assert_eq!(server.script.wait_ended("endless").await, FinishReason::Cancelled);
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_is_never_begun() {
    let server = TestServer::start();
    let held = server.send("a", "hold").await;
    server.script.wait_held().await;
    let leaving = server.send("b", "leaving").await;
    server.wait_queued(1).await;
    leaving.abort();
    server.wait_queued(0).await;
    let staying = server.send("c", "staying").await;
    server.wait_queued(1).await;
    server.script.release();
    for answered in [held, staying] {
        assert_eq!(answered.await.unwrap().status, 200);
    }
    assert_eq!(server.script.prompts(), ["hold", "staying"]);
}

#[tokio::test]
async fn a_stop_ends_what_runs_and_refuses_what_waits() {
    let server = TestServer::start();
    let mut caller = server.connect().await;
    let mut response = caller.post_unread("/v1/chat/completions", &stream_request("endless"), &[]).await;
    assert!(response.frame().await.unwrap().is_ok());
    let waiting = server.send("b", "waiting").await;
    server.wait_queued(1).await;
    server.stop.cancel();
    let rest = read(response).await.text;
    assert!(rest.contains("\"code\":\"stopping\"") && !rest.contains("[DONE]"), "{rest}");
    let refused = waiting.await.unwrap();
    assert_eq!((refused.status.as_u16(), refused.code()), (503, json!("stopping")));
    tokio::time::timeout(WAIT_MAX, server.task).await.expect("the server ends").unwrap().unwrap();
    assert!(!server.path.exists());
    assert_eq!(server.script.prompts(), ["endless"]);
}

#[tokio::test]
async fn a_server_that_nobody_uses_ends() {
    let server = TestServer::start_with(ServeOptions {
        idle_timeout: Some(Duration::from_millis(20)),
        ..ServeOptions::default()
    });
    tokio::time::timeout(WAIT_MAX, server.task).await.expect("the server ends").unwrap().unwrap();
    assert!(!server.path.exists());
}

#[tokio::test]
async fn work_under_way_keeps_the_server() {
    let idle = Duration::from_millis(20);
    let server = TestServer::start_with(ServeOptions {
        idle_timeout: Some(idle),
        lowers_priority: true,
        ..ServeOptions::default()
    });
    let held = server.send("a", "hold").await;
    server.script.wait_held().await;
    let mut running = server.task;
    assert!(tokio::time::timeout(idle * 5, &mut running).await.is_err(), "it ended during an answer");
    server.script.release();
    assert_eq!(held.await.unwrap().status, 200);
    tokio::time::timeout(WAIT_MAX, running).await.expect("the server ends").unwrap().unwrap();
}
