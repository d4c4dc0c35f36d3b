//! The same send again: answered once, done once, paid once, also after a restart.

use std::time::Duration;

use serde_json::json;

use super::*;

const SEND: &str = r#"{"content":"hi","request_id":"r"}"#;

#[tokio::test(start_paused = true)]
async fn the_same_send_again_gets_the_same_answer_and_leaves_no_trace() {
    let house = Fixture::new().await;
    house.create_agents(&["a", "b"]).await;
    let first = house.call_agent("a", &request("send", SEND)).await;
    for _ in 0..3 {
        assert_eq!(house.call_agent("a", &request("send", SEND)).await, first);
    }
    assert_eq!(house.call_ok("a", "get_context", "{}").await["message_count"], 2);
    let number = house.call_ok("a", "send", r#"{"content":"hi","request_id":5}"#).await;
    let text = house.call_ok("a", "send", r#"{"content":"ho","request_id":"5"}"#).await;
    assert_eq!((&number["content"], &text["content"]), (&json!("you said hi"), &json!("you said ho")));
    let other = house.call_ok("b", "send", r#"{"content":"ho","request_id":"r"}"#).await;
    assert_eq!(other["content"], "you said ho", "another agent's names are its own");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_an_answer_too() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let params = r#"{"content":"fail","request_id":"r"}"#;
    for _ in 0..2 {
        let failed = house.call_agent("a", &request("send", params)).await;
        assert_eq!(failed, error(-32603, "the model failed"));
    }
    assert_eq!(house.call_ok("a", "get_context", "{}").await["message_count"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_repeated_or_refused_costs_no_turn() {
    let house = Fixture::new().await;
    house.request_create(r#"{"agent_id":"a","budget":{"turns":9}}"#).await;
    house.call_ok("a", "send", SEND).await;
    house.call_ok("a", "send", SEND).await;
    house.call_agent("a", &request("send", r#"{"content":"ho","request_id":"r"}"#)).await;
    let turns = house.call_ok("a", "get_agent", "{}").await["budget"][0].take();
    assert_eq!(turns, json!({ "resource": "turns", "limit": 9, "used": 1, "reserved": 0, "left": 8 }));
}

#[tokio::test(start_paused = true)]
async fn a_send_is_known_after_a_restart() {
    let store = store::memory();
    let house = Fixture::with_store(Arc::clone(&store), Limits::default()).await;
    house.create_agents(&["a"]).await;
    let before = house.call_agent("a", &request("send", SEND)).await;
    house.pool.stop(Duration::ZERO).await;
    let house = Fixture::with_store(store, Limits::default()).await;
    assert_eq!(house.call_agent("a", &request("send", SEND)).await, before);
    let other = house.call_agent("a", &request("send", r#"{"content":"ho","request_id":"r"}"#)).await;
    assert_eq!(other, error(-32602, "request_id was used before with other content: r"));
    assert_eq!(house.call_ok("a", "get_context", "{}").await["message_count"], 2);
}
