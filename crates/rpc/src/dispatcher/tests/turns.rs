//! Turns through the dispatcher: steering, exhausted budgets, denied tool calls, and compaction.

use super::*;

const WAIT: &str = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait","request_id":"r"},"id":1}"#;

async fn steer(fixture: &Fixture, params: &str) -> (ResponseKind, String) {
    fixture.call_agent("a", &request("steer", params)).await
}

#[tokio::test(start_paused = true)]
async fn steered_instruction_precedes_the_next_model_call() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let pending_send = fixture.spawn_call("a", WAIT);
    run_until_idle().await;
    let params = r#"{"content":"left","source":"repl","source_agent_id":"boss"}"#;
    assert_eq!(steer(&fixture, params).await, result(r#"{"steered":true,"request_id":"r"}"#));
    let before = fixture.call_ok("a", "get_messages", "{}").await;
    assert_eq!(before["total"], 1, "added at the end of the round: {before}");
    fixture.released.add_permits(1);
    let expected = concat!(
        r#"{"content":"helloyou said left","request_id":"r","halted_at_iteration_limit":false,"#,
        // The first response reports no usage.
        r#""usage":{"input_tokens":18,"output_tokens":4,"cached_tokens":4,"estimated_tokens":15}}"#
    );
    assert_eq!(pending_send.await.unwrap(), result(expected));
    let messages = fixture.call_ok("a", "get_messages", r#"{"offset":1}"#).await["messages"].take();
    let texts: Vec<_> = messages.as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["hello", "left", "you said left"]);
    let meta = serde_json::json!({ "source": "repl", "source_agent_id": "boss" });
    assert_eq!(messages[1]["meta"], meta, "its source is stored");
}

#[tokio::test(start_paused = true)]
async fn steer_without_a_running_turn_is_refused() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let idle = result(r#"{"steered":false,"reason":"no_running_turn_or_full"}"#);
    assert_eq!(steer(&fixture, r#"{"content":"left"}"#).await, idle);
    fixture.call_ok("a", "send", r#"{"content":"hi"}"#).await;
    assert_eq!(steer(&fixture, r#"{"content":"left"}"#).await, idle, "the turn is over");
    assert_eq!(
        fixture.call_ok("a", "get_messages", "{}").await["total"],
        2,
        "a refused instruction is not stored"
    );
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_stores_up_to_sixteen_steered_instructions() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let pending_send = fixture.spawn_call("a", WAIT);
    run_until_idle().await;
    for _ in 0..16 {
        let steered = steer(&fixture, r#"{"content":"more"}"#).await;
        assert_eq!(steered, result(r#"{"steered":true,"request_id":"r"}"#));
    }
    let full = steer(&fixture, r#"{"content":"more"}"#).await;
    assert_eq!(full, result(r#"{"steered":false,"reason":"no_running_turn_or_full"}"#));
    fixture.call_ok("a", "cancel", r#"{"request_id":"r"}"#).await;
    assert!(pending_send.await.unwrap().1.contains(r#""cancelled":true,"content":"hel""#));
    assert_eq!(fixture.call_ok("a", "get_context", "{}").await["message_count"], 18);
}

#[tokio::test(start_paused = true)]
async fn exhausted_turn_budget_halts_until_more_is_granted() {
    let fixture = Fixture::new().await;
    fixture.request_create(r#"{"agent_id":"a","budget":{"turns":1}}"#).await;
    let (_, first) = fixture.call_agent("a", &request("send", r#"{"content":"hi","request_id":1}"#)).await;
    assert!(!first.contains("halted\":\""), "{first}");
    let second = fixture.call_agent("a", &request("send", r#"{"content":"hi","request_id":2}"#)).await;
    let halted = concat!(
        r#"{"content":"[Stopping: the budget of turns is used up]","request_id":2,"#,
        r#""halted_at_iteration_limit":false,"halted":"budget"}"#
    );
    assert_eq!(second, result(halted));
    assert_eq!(fixture.call_ok("a", "get_agent", "{}").await["halted"], "budget");
    let more = fixture.call_ok("a", "set_permissions", r#"{"budget":{"turns":2}}"#).await;
    let turns = serde_json::json!({ "resource": "turns", "limit": 2, "used": 1, "reserved": 0, "left": 1 });
    assert_eq!(more["budget"][0], turns, "a turn that never began is not charged");
    let third = fixture.call_ok("a", "send", r#"{"content":"go on"}"#).await;
    assert_eq!((&third["content"], third.get("halted")), (&Value::from("you said go on"), None));
    let agent = fixture.call_ok("a", "get_agent", "{}").await;
    assert_eq!((&agent["halted"], &agent["agent"]["message_count"]), (&Value::Null, &Value::from(6)));
}

#[tokio::test(start_paused = true)]
async fn tool_call_without_budget_ends_the_turn() {
    let fixture = Fixture::new().await;
    fixture.request_create(r#"{"agent_id":"a","budget":{"tool_calls":0}}"#).await;
    let sent = fixture.call_ok("a", "send", r#"{"content":"read notes.txt"}"#).await;
    assert_eq!(sent["halted"], "budget");
    assert_eq!(sent["content"], "[Stopping: the budget of tool_calls is used up]");
    let messages = fixture.call_ok("a", "get_messages", "{}").await["messages"].take();
    assert_eq!(messages[2]["content"], "Did not execute: the budget of tool_calls is used up");
    fixture.call_ok("a", "set_permissions", r#"{"unlimited":["tool_calls"]}"#).await;
    let sent = fixture.call_ok("a", "send", r#"{"content":"read notes.txt"}"#).await;
    assert_eq!(sent["content"], "you said text of notes.txt");
}

#[tokio::test(start_paused = true)]
async fn token_budget_halts_the_next_turn_not_the_current_one() {
    let fixture = Fixture::new().await;
    fixture.request_create(r#"{"agent_id":"a","budget":{"tokens":3}}"#).await;
    let sent = fixture.call_ok("a", "send", r#"{"content":"hi"}"#).await;
    assert_eq!((&sent["content"], sent.get("halted")), (&Value::from("you said hi"), None));
    let tokens = serde_json::json!({ "resource": "tokens", "limit": 3, "used": 7, "reserved": 0, "left": 0 });
    assert_eq!(fixture.call_ok("a", "get_agent", "{}").await["budget"][2], tokens);
    let sent = fixture.call_ok("a", "send", r#"{"content":"hi"}"#).await;
    assert_eq!(sent["content"], "[Stopping: the budget of tokens is used up]");
}

#[tokio::test(start_paused = true)]
async fn denied_tool_call_is_marked_and_the_turn_continues() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let sent = fixture.call_ok("a", "send", r#"{"content":"read /srv/other/x"}"#).await;
    let text = "Permission denied: cannot read '/srv/other/x': Path outside allowed directories. \
                Allowed: /home/user/agents";
    assert_eq!(sent["content"], format!("you said {text}"));
    let result =
        fixture.call_ok("a", "get_messages", r#"{"offset":2,"limit":1}"#).await["messages"][0].take();
    assert_eq!((&result["role"], &result["content"]), (&Value::from("tool"), &Value::from(text)));
    assert_eq!(result["meta"], serde_json::json!({ "denied": true }));
}

#[tokio::test(start_paused = true)]
async fn useless_summary_changes_nothing_but_is_charged() {
    let fixture = Fixture::new().await;
    for turn in 0..8 {
        let params = format!(r#"{{"content":"message {turn} {}"}}"#, "x".repeat(400));
        fixture.call_daemon(&request("send", &params)).await;
    }
    let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap()["result"].clone();
    let before = parse(fixture.call_daemon(&request("get_tokens", "{}")).await.1);
    // The echo model's summary is no shorter than the history, and the context is not full: nothing is compacted.
    let (_, response) = fixture.call_daemon(&request("compact", "{}")).await;
    let compacted = parse(response);
    let after = parse(fixture.call_daemon(&request("get_tokens", "{}")).await.1);
    assert_eq!(compacted["reason"], "nothing_to_compact", "the history is not dropped without need");
    assert_eq!(before["messages"], after["messages"]);
    assert_eq!(after["used"]["requests"], 9, "the attempt is charged");
}

#[tokio::test(start_paused = true)]
async fn compact_accepts_only_force() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    for params in [r#"{"force":1}"#, r#"{"force":"yes"}"#, r#"{"pin":"x"}"#] {
        let (_, response) = fixture.call_agent("a", &request("compact", params)).await;
        assert!(response.contains(r#""code":-32602"#), "{params}: {response}");
    }
}
