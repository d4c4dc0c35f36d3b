//! Tests: disconnecting clients, shutdown and idle timeout.

use http_body_util::BodyExt;

use super::client::read;
use super::*;
use crate::generation::FinishReason;

#[tokio::test]
async fn disconnect_cancels_a_streaming_job() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    let mut response = client.post_unread("/v1/chat/completions", &stream_request("endless"), &[]).await;
    assert!(response.frame().await.unwrap().is_ok());
    drop((response, client));
    assert_eq!(server.script.wait_ended("endless").await, FinishReason::Cancelled);
    assert_eq!(server.connect().await.chat(&chat_request("hello")).await.status, 200);
}

#[tokio::test]
async fn disconnect_cancels_a_non_streaming_job() {
    let server = TestServer::start();
    let request = server.send("a", "endless").await;
    server.script.wait_started(1).await;
    request.abort();
    assert_eq!(server.script.wait_ended("endless").await, FinishReason::Cancelled);
}

#[tokio::test]
async fn disconnect_removes_a_queued_job() {
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
    for request in [held, staying] {
        assert_eq!(request.await.unwrap().status, 200);
    }
    assert_eq!(server.script.prompts(), ["hold", "staying"]);
}

#[tokio::test]
async fn shutdown_cancels_running_and_rejects_queued_jobs() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    let mut response = client.post_unread("/v1/chat/completions", &stream_request("endless"), &[]).await;
    assert!(response.frame().await.unwrap().is_ok());
    let waiting = server.send("b", "waiting").await;
    server.wait_queued(1).await;
    server.stop.cancel();
    let rest = read(response).await.text;
    assert!(rest.contains("\"code\":\"stopping\"") && !rest.contains("[DONE]"), "{rest}");
    let refused = waiting.await.unwrap();
    assert_eq!((refused.status.as_u16(), refused.code()), (503, json!("stopping")));
    tokio::time::timeout(WAIT_MAX, server.task).await.expect("the server stops").unwrap().unwrap();
    assert!(!server.path.exists());
    assert_eq!(server.script.prompts(), ["endless"]);
}

#[tokio::test]
async fn idle_server_stops() {
    let server = TestServer::start_with(ServeOptions {
        idle_timeout: Some(Duration::from_millis(20)),
        ..ServeOptions::default()
    });
    tokio::time::timeout(WAIT_MAX, server.task).await.expect("the server stops").unwrap().unwrap();
    assert!(!server.path.exists());
}

#[tokio::test]
async fn request_in_flight_defers_the_idle_timeout() {
    let idle = Duration::from_millis(20);
    let server = TestServer::start_with(ServeOptions {
        idle_timeout: Some(idle),
        lowers_priority: true,
        ..ServeOptions::default()
    });
    let held = server.send("a", "hold").await;
    server.script.wait_held().await;
    let mut task = server.task;
    assert!(tokio::time::timeout(idle * 5, &mut task).await.is_err(), "stopped during a request");
    server.script.release();
    assert_eq!(held.await.unwrap().status, 200);
    tokio::time::timeout(WAIT_MAX, task).await.expect("the server stops").unwrap().unwrap();
}
