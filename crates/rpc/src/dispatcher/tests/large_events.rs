//! Events larger than a piece: streams hand them out in small pieces and hold none of their bytes meanwhile.

use nexus3_protocol::sse::SseEvent;

use super::doubles::long_text;
use super::streams::{EventReader, tree};
use super::*;

/// More bytes than a stream may hand out at once.
const CHUNK_BYTES_MAX: usize = 16 * 1024;

/// Reads a stream to its end or until all tasks wait; checks the size of what it hands out.
async fn read_pieces(reader: &mut EventReader) {
    while let Ok(Some(bytes)) =
        tokio::time::timeout(std::time::Duration::from_nanos(1), reader.next_bytes()).await
    {
        assert!(bytes.len() <= CHUNK_BYTES_MAX, "{} bytes at once", bytes.len());
        reader.feed(&bytes);
    }
}

fn texts(events: &[SseEvent], kind: &str) -> Vec<String> {
    let of_kind = events.iter().filter(|event| event.event == kind);
    let data = of_kind.map(|event| serde_json::from_str::<Value>(&event.data).unwrap());
    data.map(|data| data["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn large_events_arrive_intact_in_small_pieces() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let mut live = fixture.watch_as_admin("a", "").await;
    fixture.send("a", "print 300000").await;
    let response = long_text(300_000);
    for reader in [&mut live, &mut fixture.watch_as_admin("/", "after=0").await] {
        read_pieces(reader).await;
        let (events, _) = reader.drain().await;
        assert!(texts(&events, "message") == [response.as_str()], "the message is intact");
        assert!(texts(&events, "turn_ended") == [response.as_str()], "the end of the turn is intact");
    }
}

#[tokio::test(start_paused = true)]
async fn streamed_response_arrives_intact_in_small_pieces() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    for expected in ["turn_accepted", "response"] {
        // The second one repeats the request id: its response comes from the store.
        let params = r#"{"content":"print 300000","request_id":7}"#;
        let mut reader = fixture.stream_send("a", params).await;
        read_pieces(&mut reader).await;
        let (events, ended) = reader.drain().await;
        assert!(ended);
        assert_eq!(events[0].event, expected);
        let response: Value = serde_json::from_str(&events.last().unwrap().data).unwrap();
        assert!(response["result"]["content"] == long_text(300_000).as_str(), "{expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_reader_resumes_within_an_evicted_event() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b"]).await;
    fixture.send("a", "print 100000").await;
    let mut stalled = fixture.watch_as_admin("/", "after=0&kind=message").await;
    let bytes = stalled.next_bytes().await.unwrap();
    stalled.feed(&bytes);
    // More bytes than the caches hold, read by another stream: the events of `a` are evicted.
    let mut other = fixture.watch_as_admin("b", "").await;
    for _ in 0..5 {
        fixture.send("b", "print 4000000").await;
        let wait = std::time::Duration::from_nanos(1);
        while tokio::time::timeout(wait, other.next_bytes()).await.is_ok() {}
    }
    read_pieces(&mut stalled).await;
    let messages = texts(&stalled.drain().await.0, "message");
    assert_eq!(messages.len(), 6, "every event once");
    assert!(messages[0] == long_text(100_000), "the interrupted event is intact");
    assert!(messages[1..].iter().all(|message| *message == long_text(4_000_000)));
}

#[tokio::test(start_paused = true)]
async fn stream_ends_within_an_event_that_became_hidden() {
    let (fixture, helper) = tree().await;
    let mut reader = fixture.watch(&helper, "/", "kind=message").await.unwrap();
    fixture.send("scout", "print 100000").await;
    let bytes = reader.next_bytes().await.unwrap();
    reader.feed(&bytes);
    fixture.call_ok("helper", "set_permissions", r#"{"disable_tools":["agent_status"]}"#).await;
    let (events, ended) = reader.drain().await;
    assert_eq!((events.len(), ended), (0, true), "the rest of the event is not sent");
}
