//! Tests of connections: reused after a complete response, closed at once when the stream is dropped.

use agent::outside::ModelEvent;
use futures_util::StreamExt;
use testkit::{HttpPeer, PeerAction, yield_many};

use crate::harness::{
    CHUNKED, RESPONSE, call, chunk, client, head, request, response_with_status, whole_response,
};

#[tokio::test]
async fn connection_is_reused_after_a_complete_response() {
    let server = HttpPeer::with_actions(whole_response());
    let client = client(&server.base_url());
    for _ in 0..5 {
        assert!(call(&client).await.is_done());
    }
    // A clone shares the connection.
    assert!(call(&client.clone()).await.is_done());
    let log = server.log();
    assert_eq!((log.connections, log.requests.len()), (1, 6));
}

#[tokio::test(start_paused = true)]
async fn connection_is_reused_after_a_refusal() {
    let server = HttpPeer::with_actions(response_with_status("429 Too Many Requests", b"slow down"));
    let client = client(&server.base_url());
    for _ in 0..3 {
        assert!(!call(&client).await.is_done());
    }
    assert_eq!(server.log().connections, 1);
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let server = HttpPeer::with_actions(vec![
        PeerAction::Write(head(CHUNKED)),
        PeerAction::Write(chunk(RESPONSE)),
        PeerAction::Hold,
    ]);
    let client = client(&server.base_url());
    let mut stream = client.call(request());
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("Hello".to_owned()))));
    drop(stream);
    server.wait(|log| log.closed == 1).await;
    let mut second = client.call(request());
    assert!(second.next().await.is_some(), "the next request gets a new connection");
    assert_eq!(server.log().connections, 2);
}

#[tokio::test]
async fn dropping_the_stream_before_the_response_closes_it_too() {
    let server = HttpPeer::with_actions(vec![PeerAction::Hold]);
    let client = client(&server.base_url());
    let mut stream = client.call(request());
    tokio::select! {
        biased;
        _ = stream.next() => panic!("the server does not respond"),
        () = server.wait(|log| !log.requests.is_empty()) => {}
    }
    drop(stream);
    server.wait(|log| log.closed == 1).await;
}

#[tokio::test]
async fn nothing_is_sent_before_the_stream_is_polled() {
    let server = HttpPeer::with_actions(whole_response());
    let client = client(&server.base_url());
    drop(client.call(request()));
    let waiting = client.call(request());
    assert!(call(&client).await.is_done());
    assert_eq!(server.log().requests.len(), 1);
    drop(waiting);
}

#[tokio::test]
async fn closed_idle_connection_is_replaced() {
    let server = HttpPeer::by_number(|number| {
        let mut actions = whole_response();
        if number == 0 {
            actions.push(PeerAction::Close);
        }
        actions
    });
    let client = client(&server.base_url());
    assert!(call(&client).await.is_done());
    server.wait(|log| log.closed == 1).await;
    yield_many().await;
    assert!(call(&client).await.is_done(), "sent on a new connection");
    assert_eq!(server.log().connections, 2);
}

#[tokio::test]
async fn concurrent_responses_do_not_mix() {
    let server = HttpPeer::with_actions(whole_response());
    let client = client(&server.base_url());
    let responses = futures_util::future::join_all((0..50).map(|_| call(&client))).await;
    for response in responses {
        assert!(response.is_done());
        assert_eq!(response.text(), "Hello");
    }
}
