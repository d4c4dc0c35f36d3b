//! Turns seen from the door: words added on the way, budgets that end, and going on after more was granted.

use super::*;

const WAIT: &str = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait","request_id":"r"},"id":1}"#;

async fn steer(house: &Fixture, params: &str) -> (ResponseKind, String) {
    house.call_agent("a", &request("steer", params)).await
}

#[tokio::test(start_paused = true)]
async fn a_word_is_read_before_the_model_is_asked_again() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let sending = house.spawn_call("a", WAIT);
    run_until_idle().await;
    let params = r#"{"content":"left","source":"repl","source_agent_id":"boss"}"#;
    assert_eq!(steer(&house, params).await, result(r#"{"steered":true,"request_id":"r"}"#));
    let before = house.call_ok("a", "get_messages", "{}").await;
    assert_eq!(before["total"], 1, "it waits for the round's end: {before}");
    house.released.add_permits(1);
    let expected = concat!(
        r#"{"content":"helloyou said left","request_id":"r","halted_at_iteration_limit":false,"#,
        r#""usage":{"input_tokens":5,"output_tokens":2,"cached_tokens":4}}"#
    );
    assert_eq!(sending.await.unwrap(), result(expected));
    let messages = house.call_ok("a", "get_messages", r#"{"offset":1}"#).await["messages"].take();
    let texts: Vec<_> = messages.as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["hello", "left", "you said left"]);
    let meta = serde_json::json!({ "source": "repl", "source_agent_id": "boss" });
    assert_eq!(messages[1]["meta"], meta, "where it came from is kept with it");
}

#[tokio::test(start_paused = true)]
async fn a_word_finds_nobody_when_no_turn_is_running() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let idle = result(r#"{"steered":false,"reason":"no_running_turn_or_full"}"#);
    assert_eq!(steer(&house, r#"{"content":"left"}"#).await, idle);
    house.call_ok("a", "send", r#"{"content":"hi"}"#).await;
    assert_eq!(steer(&house, r#"{"content":"left"}"#).await, idle, "the turn is over");
    assert_eq!(
        house.call_ok("a", "get_messages", "{}").await["total"],
        2,
        "a word that was not taken is not kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_takes_sixteen_words_and_keeps_them_when_it_is_cancelled() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let sending = house.spawn_call("a", WAIT);
    run_until_idle().await;
    for _ in 0..16 {
        let taken = steer(&house, r#"{"content":"more"}"#).await;
        assert_eq!(taken, result(r#"{"steered":true,"request_id":"r"}"#));
    }
    let full = steer(&house, r#"{"content":"more"}"#).await;
    assert_eq!(full, result(r#"{"steered":false,"reason":"no_running_turn_or_full"}"#));
    house.call_ok("a", "cancel", r#"{"request_id":"r"}"#).await;
    assert!(sending.await.unwrap().1.contains(r#""cancelled":true,"content":"hel""#));
    assert_eq!(house.call_ok("a", "get_context", "{}").await["message_count"], 18);
}

#[tokio::test(start_paused = true)]
async fn a_turn_without_a_budget_says_so_and_the_next_goes_on_when_more_is_granted() {
    let house = Fixture::new().await;
    house.request_create(r#"{"agent_id":"a","budget":{"turns":1}}"#).await;
    let (_, first) = house.call_agent("a", &request("send", r#"{"content":"hi","request_id":1}"#)).await;
    assert!(!first.contains("halted\":\""), "{first}");
    let second = house.call_agent("a", &request("send", r#"{"content":"hi","request_id":2}"#)).await;
    let halted = concat!(
        r#"{"content":"[Stopping: the budget of turns is used up]","request_id":2,"#,
        r#""halted_at_iteration_limit":false,"halted":"budget"}"#
    );
    assert_eq!(second, result(halted));
    assert_eq!(house.call_ok("a", "get_agent", "{}").await["halted"], "budget");
    let more = house.call_ok("a", "set_permissions", r#"{"budget":{"turns":2}}"#).await;
    let turns = serde_json::json!({ "resource": "turns", "limit": 2, "used": 1, "reserved": 0, "left": 1 });
    assert_eq!(more["budget"][0], turns, "the turn that never began was not paid for");
    let third = house.call_ok("a", "send", r#"{"content":"go on"}"#).await;
    assert_eq!((&third["content"], third.get("halted")), (&Value::from("you said go on"), None));
    let agent = house.call_ok("a", "get_agent", "{}").await;
    assert_eq!((&agent["halted"], &agent["agent"]["message_count"]), (&Value::Null, &Value::from(6)));
}

#[tokio::test(start_paused = true)]
async fn a_tool_call_without_a_budget_is_answered_and_ends_the_turn() {
    let house = Fixture::new().await;
    house.request_create(r#"{"agent_id":"a","budget":{"tool_calls":0}}"#).await;
    let sent = house.call_ok("a", "send", r#"{"content":"read notes.txt"}"#).await;
    assert_eq!(sent["halted"], "budget");
    assert_eq!(sent["content"], "[Stopping: the budget of tool_calls is used up]");
    let messages = house.call_ok("a", "get_messages", "{}").await["messages"].take();
    assert_eq!(messages[2]["content"], "Did not execute: the budget of tool_calls is used up");
    house.call_ok("a", "set_permissions", r#"{"unlimited":["tool_calls"]}"#).await;
    let sent = house.call_ok("a", "send", r#"{"content":"read notes.txt"}"#).await;
    assert_eq!(sent["content"], "you said text of notes.txt");
}

#[tokio::test(start_paused = true)]
async fn the_answer_that_uses_up_the_tokens_is_whole_and_the_next_turn_halts() {
    let house = Fixture::new().await;
    house.request_create(r#"{"agent_id":"a","budget":{"tokens":3}}"#).await;
    let sent = house.call_ok("a", "send", r#"{"content":"hi"}"#).await;
    assert_eq!((&sent["content"], sent.get("halted")), (&Value::from("you said hi"), None));
    let tokens = serde_json::json!({ "resource": "tokens", "limit": 3, "used": 7, "reserved": 0, "left": 0 });
    assert_eq!(house.call_ok("a", "get_agent", "{}").await["budget"][2], tokens);
    let sent = house.call_ok("a", "send", r#"{"content":"hi"}"#).await;
    assert_eq!(sent["content"], "[Stopping: the budget of tokens is used up]");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_allowed_is_marked_among_the_messages_and_the_model_goes_on() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let sent = house.call_ok("a", "send", r#"{"content":"read /srv/other/x"}"#).await;
    let text = "Permission denied: cannot read '/srv/other/x': Path outside allowed directories. \
                Allowed: /home/user/agents";
    assert_eq!(sent["content"], format!("you said {text}"));
    let result = house.call_ok("a", "get_messages", r#"{"offset":2,"limit":1}"#).await["messages"][0].take();
    assert_eq!((&result["role"], &result["content"]), (&Value::from("tool"), &Value::from(text)));
    assert_eq!(result["meta"], serde_json::json!({ "denied": true }));
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_saves_nothing_changes_nothing_and_is_paid_for() {
    let house = Fixture::new().await;
    for turn in 0..8 {
        let params = format!(r#"{{"content":"message {turn} {}"}}"#, "x".repeat(400));
        house.call_daemon(&request("send", &params)).await;
    }
    let read = |text: String| serde_json::from_str::<Value>(&text).unwrap()["result"].clone();
    let before = read(house.call_daemon(&request("get_tokens", "{}")).await.1);
    // This model repeats what it is asked, which is no summary; the context is not full, so it stays as it is.
    let (_, answer) = house.call_daemon(&request("compact", "{}")).await;
    let compacted = read(answer);
    let after = read(house.call_daemon(&request("get_tokens", "{}")).await.1);
    assert_eq!(compacted["reason"], "nothing_to_compact", "nothing is lost without need");
    assert_eq!(before["messages"], after["messages"]);
    assert_eq!(after["used"]["requests"], 9, "the attempt is paid for");
}

#[tokio::test(start_paused = true)]
async fn compact_takes_nothing_but_force() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    for params in [r#"{"force":1}"#, r#"{"force":"yes"}"#, r#"{"pin":"x"}"#] {
        let (_, answer) = house.call_agent("a", &request("compact", params)).await;
        assert!(answer.contains(r#""code":-32602"#), "{params}: {answer}");
    }
}
