//! Idempotency of `send`: a duplicate request id is executed and charged once, also after a restart.

use std::time::Duration;

use serde_json::json;

use super::*;

const SEND: &str = r#"{"content":"hi","request_id":"r"}"#;

#[tokio::test(start_paused = true)]
async fn duplicate_send_returns_the_stored_response() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b"]).await;
    let first = fixture.call_agent("a", &request("send", SEND)).await;
    for _ in 0..3 {
        assert_eq!(fixture.call_agent("a", &request("send", SEND)).await, first);
    }
    assert_eq!(fixture.call_ok("a", "get_context", "{}").await["message_count"], 2);
    let number = fixture.call_ok("a", "send", r#"{"content":"hi","request_id":5}"#).await;
    let text = fixture.call_ok("a", "send", r#"{"content":"ho","request_id":"5"}"#).await;
    assert_eq!((&number["content"], &text["content"]), (&json!("you said hi"), &json!("you said ho")));
    let other = fixture.call_ok("b", "send", r#"{"content":"ho","request_id":"r"}"#).await;
    assert_eq!(other["content"], "you said ho", "request ids are scoped to an agent");
}

#[tokio::test(start_paused = true)]
async fn duplicate_of_a_failed_send_returns_the_failure() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let params = r#"{"content":"fail","request_id":"r"}"#;
    for _ in 0..2 {
        let failed = fixture.call_agent("a", &request("send", params)).await;
        assert_eq!(failed, error(-32603, "the model failed"));
    }
    assert_eq!(fixture.call_ok("a", "get_context", "{}").await["message_count"], 2);
}

#[tokio::test(start_paused = true)]
async fn duplicate_or_refused_send_consumes_no_turn() {
    let fixture = Fixture::new().await;
    fixture.request_create(r#"{"agent_id":"a","budget":{"turns":9}}"#).await;
    fixture.call_ok("a", "send", SEND).await;
    fixture.call_ok("a", "send", SEND).await;
    fixture.call_agent("a", &request("send", r#"{"content":"ho","request_id":"r"}"#)).await;
    let turns = fixture.call_ok("a", "get_agent", "{}").await["budget"][0].take();
    assert_eq!(turns, json!({ "resource": "turns", "limit": 9, "used": 1, "reserved": 0, "left": 8 }));
}

#[tokio::test(start_paused = true)]
async fn duplicate_send_is_recognized_after_a_restart() {
    let store = store::memory();
    let fixture = Fixture::with_store(Arc::clone(&store), Limits::default()).await;
    fixture.create_agents(&["a"]).await;
    let before = fixture.call_agent("a", &request("send", SEND)).await;
    fixture.pool.stop(Duration::ZERO).await;
    let fixture = Fixture::with_store(store, Limits::default()).await;
    assert_eq!(fixture.call_agent("a", &request("send", SEND)).await, before);
    let other = fixture.call_agent("a", &request("send", r#"{"content":"ho","request_id":"r"}"#)).await;
    assert_eq!(other, error(-32602, "request_id was used before with other content: r"));
    assert_eq!(fixture.call_ok("a", "get_context", "{}").await["message_count"], 2);
}
