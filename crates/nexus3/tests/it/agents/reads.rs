//! `get_tokens`, `get_context`, `get_messages`: fields, paging, errors, and that they never wait for a turn.

use serde_json::{Value, json};

use crate::support::{ExpectError as _, Fixture, agent_path, member_names};

fn fixture_with_worker() -> Fixture {
    let fixture = Fixture::start();
    fixture.create("worker");
    fixture
}

fn read(fixture: &Fixture, method: &str, params: Value) -> Value {
    fixture.daemon.call_result(&agent_path("worker"), method, params)
}

#[test]
fn token_counts_add_up_and_usage_accumulates() {
    let fixture = fixture_with_worker();
    let fresh = read(&fixture, "get_tokens", json!({}));
    let fields =
        ["available", "budget", "dynamic", "messages", "remaining", "system", "tools", "total", "used"];
    assert_eq!(member_names(&fresh), fields);
    assert_eq!(member_names(&fresh["used"]), ["cached_tokens", "input_tokens", "output_tokens", "requests"]);
    assert_eq!((&fresh["messages"], &fresh["used"]["requests"]), (&json!(0), &json!(0)));
    let used: Vec<_> = (0..8).map(|_| fixture.send("worker", "twelve chars")["usage"].take()).collect();
    let input_tokens: u64 = used[7]["input_tokens"].as_u64().unwrap();
    let tokens = read(&fixture, "get_tokens", json!({}));
    let count = |value: &Value, name: &str| value[name].as_u64().unwrap();
    let parts: u64 = ["system", "dynamic", "tools", "messages"].map(|name| count(&tokens, name)).iter().sum();
    assert_eq!(count(&tokens, "total"), parts, "{tokens}");
    assert_eq!(count(&tokens, "available"), count(&tokens, "budget") - 2000, "{tokens}");
    assert_eq!(count(&tokens, "remaining"), count(&tokens, "available") - parts, "{tokens}");
    // The estimate is four tokens for each message, and one for four characters of `twelve chars` and of
    // `echo: twelve chars`. The model reports fewer tokens, but calibration keeps at least four fifths of the estimate.
    let estimated = 8 * (4 + 3 + 4 + 4);
    assert!((estimated * 4 / 5..=estimated).contains(&count(&tokens, "messages")), "{tokens}");
    // The scripted model reports the tokens of prompt and messages, but not of the tools.
    let reported = input_tokens * 4 / 5..input_tokens * 2;
    assert!(reported.contains(&(parts - count(&tokens, "tools"))), "{input_tokens}: {tokens}");
    assert_eq!(count(&tokens["used"], "requests"), 8);
    for name in ["input_tokens", "output_tokens", "cached_tokens"] {
        let sum: u64 = used.iter().map(|usage| count(usage, name)).sum();
        assert_eq!(count(&tokens["used"], name), sum, "{name}");
    }
}

#[test]
fn context_reports_messages_prompt_and_rounds() {
    let fixture = fixture_with_worker();
    let context = |count: u64, rounds: u64| {
        json!({
            "message_count": count,
            "system_prompt": true,
            "halted_at_iteration_limit": false,
            "last_iteration_count": rounds,
            "max_tool_iterations": 10,
        })
    };
    assert_eq!(read(&fixture, "get_context", json!({})), context(0, 0));
    fixture.send("worker", "hi");
    assert_eq!(read(&fixture, "get_context", json!({})), context(2, 1));
    fixture.send("worker", "!tool hammer {}");
    assert_eq!(read(&fixture, "get_context", json!({})), context(6, 2));
}

#[test]
fn messages_have_index_tool_calls_and_source() {
    let fixture = fixture_with_worker();
    fixture.send("worker", "!tool hammer {\"nail\": 1}");
    let page = read(&fixture, "get_messages", json!({}));
    let call_id = page["messages"][1]["tool_calls"][0]["id"].clone();
    assert!(call_id.is_string(), "{page}");
    let user = "!tool hammer {\"nail\": 1}";
    let call = json!({ "id": call_id, "name": "hammer", "arguments": "{\"nail\": 1}" });
    let response = "tool said: Unknown tool: hammer";
    let messages = json!([
        { "index": 0, "role": "user", "content": user, "tool_call_id": null, "meta": { "source": "rpc" } },
        { "index": 1, "role": "assistant", "content": "", "tool_calls": [call], "tool_call_id": null },
        { "index": 2, "role": "tool", "content": "Unknown tool: hammer", "tool_call_id": call_id, "meta": { "failed": true } },
        { "index": 3, "role": "assistant", "content": response, "tool_call_id": null },
    ]);
    let expected =
        json!({ "agent_id": "worker", "total": 4, "offset": 0, "limit": 200, "messages": messages });
    assert_eq!(page, expected);
}

#[test]
fn page_selects_messages_by_offset_and_limit() {
    let fixture = fixture_with_worker();
    for number in 0..5 {
        fixture.send("worker", &number.to_string());
    }
    let page = |params: Value| {
        let page = read(&fixture, "get_messages", params);
        let indexes = page["messages"].as_array().unwrap().iter().map(|message| message["index"].clone());
        (indexes.collect::<Vec<_>>(), page["total"].clone(), page["offset"].clone(), page["limit"].clone())
    };
    let of = |indexes: &[u64], offset: u64, limit: u64| {
        let indexes: Vec<_> = indexes.iter().map(|index| json!(index)).collect();
        (indexes, json!(10), json!(offset), json!(limit))
    };
    assert_eq!(page(json!({ "offset": 3, "limit": 2 })), of(&[3, 4], 3, 2));
    assert_eq!(page(json!({ "offset": 8, "limit": 2000 })), of(&[8, 9], 8, 2000));
    assert_eq!(page(json!({ "limit": 1 })), of(&[0], 0, 1));
    assert_eq!(page(json!({ "offset": 9 })), of(&[9], 9, 200));
    assert_eq!(page(json!({ "offset": 10 })), of(&[], 10, 200));
    assert_eq!(page(json!({ "offset": u64::MAX, "limit": 2000 })), of(&[], u64::MAX, 2000));
    assert_eq!(page(json!({ "offset": null, "limit": null })).0.len(), 10);
}

#[test]
fn default_page_has_200_messages() {
    let fixture = fixture_with_worker();
    for _ in 0..101 {
        fixture.send("worker", "hi");
    }
    let page = read(&fixture, "get_messages", json!({}));
    assert_eq!((page["messages"].as_array().map(Vec::len), &page["total"]), (Some(200), &json!(202)));
    let rest = read(&fixture, "get_messages", json!({ "offset": 200 }));
    assert_eq!(rest["messages"].as_array().map(Vec::len), Some(2));
}

#[test]
fn invalid_page_is_rejected_with_the_originals_texts() {
    let fixture = fixture_with_worker();
    for value in [json!(-1), json!(1.0), json!("1"), json!(true), json!([])] {
        let error = fixture.daemon.error(&agent_path("worker"), "get_messages", json!({ "offset": value }));
        assert_eq!(error["message"], "offset must be a non-negative integer");
    }
    for value in [json!(0), json!(2001), json!(-1), json!(5.0), json!("5"), json!(false)] {
        let error = fixture.daemon.error(&agent_path("worker"), "get_messages", json!({ "limit": value }));
        assert_eq!(error["message"], "limit must be an integer between 1 and 2000");
    }
    for method in ["get_messages", "get_tokens", "get_context", "shutdown"] {
        let error = fixture.daemon.error(&agent_path("worker"), method, json!({ "x": 1 }));
        assert_eq!(error, json!({ "code": -32602, "message": "Extra inputs are not permitted: x" }));
    }
}

#[test]
fn reads_do_not_wait_for_a_turn() {
    let fixture = fixture_with_worker();
    let pending = fixture.start_send("worker", "!stall so far", "r");
    fixture.model.wait_stalled(1);
    let queued = fixture.enqueue_send("worker", "later", "later");
    assert_eq!(
        read(&fixture, "get_context", json!({}))["message_count"],
        1,
        "a queued message is not in the context yet"
    );
    let messages = fixture.messages("worker");
    assert_eq!(messages, [("user".to_owned(), "!stall so far".to_owned())]);
    assert!(read(&fixture, "get_tokens", json!({}))["messages"].as_u64() > Some(0));
    fixture.cancel("worker", "later");
    fixture.cancel("worker", "r");
    assert_eq!(pending.next_result()["cancelled"], true);
    assert_eq!(queued.next_result()["cancelled"], true);
}
