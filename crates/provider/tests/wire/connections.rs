//! Connections: used again when an answer is complete, closed at once when nobody wants the rest.

use agent::outside::ModelEvent;
use futures_util::StreamExt;

use crate::server::{Act, Server, give_way};
use crate::stream::{CHUNKED, CHUNKED_END, ask, chunk, client, head, question, refusal};

const ANSWER: &[u8] =
    b"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn whole_answer() -> Vec<Act> {
    vec![Act::Write(head(CHUNKED)), Act::Write(chunk(ANSWER)), Act::Pause, Act::Write(CHUNKED_END.to_vec())]
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_complete_answer() {
    let server = Server::start(whole_answer()).await;
    let client = client(&server.base_url());
    for _ in 0..5 {
        assert!(ask(&client).await.is_done());
    }
    // A clone is the same client.
    assert!(ask(&client.clone()).await.is_done());
    let seen = server.seen();
    assert_eq!((seen.connections, seen.requests.len()), (1, 6));
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_used_again_after_a_refusal() {
    let server = Server::start(refusal("429 Too Many Requests", b"slow down")).await;
    let client = client(&server.base_url());
    for _ in 0..3 {
        assert!(!ask(&client).await.is_done());
    }
    assert_eq!(server.seen().connections, 1);
}

#[tokio::test]
async fn a_dropped_stream_ends_its_request_at_once() {
    let mut server =
        Server::start(vec![Act::Write(head(CHUNKED)), Act::Write(chunk(ANSWER)), Act::Hold]).await;
    let client = client(&server.base_url());
    let mut stream = client.call(question());
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("Hello".to_owned()))));
    drop(stream);
    server.closed(1).await;
    let mut second = client.call(question());
    assert!(second.next().await.is_some(), "the next question gets a connection of its own");
    assert_eq!(server.seen().connections, 2);
}

#[tokio::test]
async fn a_stream_dropped_before_the_answer_ends_its_request_too() {
    let mut server = Server::start(vec![Act::Hold]).await;
    let client = client(&server.base_url());
    let mut stream = client.call(question());
    tokio::select! {
        biased;
        _ = stream.next() => panic!("nobody answered"),
        () = arrived(&server) => {}
    }
    drop(stream);
    server.closed(1).await;
}

/// Returns when a request has arrived.
async fn arrived(server: &Server) {
    while server.seen().requests.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_is_sent_before_the_stream_is_polled() {
    let server = Server::start(whole_answer()).await;
    let client = client(&server.base_url());
    drop(client.call(question()));
    let waiting = client.call(question());
    assert!(ask(&client).await.is_done());
    assert_eq!(server.seen().requests.len(), 1);
    drop(waiting);
}

#[tokio::test]
async fn a_connection_that_died_in_the_meantime_costs_no_question() {
    let mut server = Server::start_each(|number| {
        let mut acts = whole_answer();
        if number == 0 {
            acts.push(Act::Close);
        }
        acts
    })
    .await;
    let client = client(&server.base_url());
    assert!(ask(&client).await.is_done());
    server.closed(1).await;
    give_way().await;
    assert!(ask(&client).await.is_done(), "asked again on a new connection");
    assert_eq!(server.seen().connections, 2);
}

#[tokio::test]
async fn many_questions_at_once_do_not_mix() {
    let server = Server::start(whole_answer()).await;
    let client = client(&server.base_url());
    let answers = futures_util::future::join_all((0..50).map(|_| ask(&client))).await;
    for answer in answers {
        assert!(answer.is_done());
        assert_eq!(answer.text(), "Hello");
    }
}
