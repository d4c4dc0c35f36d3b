//! `send`: its parameters, its response, its stored messages, and idempotency by `request_id`.

use serde_json::{Value, json};

use crate::support::pending_calls::PendingCalls;
use crate::support::{ExpectError as _, Fixture, LARGE_WINDOW_CONFIG, agent_path, is_hex, member_names};

fn fixture_with_worker() -> Fixture {
    let fixture = Fixture::start();
    fixture.create("worker");
    fixture
}

fn send(fixture: &Fixture, params: Value) -> Value {
    fixture.daemon.call_result(&agent_path("worker"), "send", params)
}

#[test]
fn response_equals_the_originals_bytes_plus_usage() {
    let fixture = fixture_with_worker();
    let body =
        br#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"!reply ok","request_id":"r-1"}}"#;
    let response = fixture.daemon.post(&agent_path("worker"), &[("Content-Type", "application/json")], body);
    assert_eq!(response.header("content-type"), Some("application/json; charset=utf-8"));
    let text = response.text();
    let (start, usage) = text.split_once(r#","usage":"#).expect("the model reports its usage");
    let original = r#"{"jsonrpc":"2.0","id":1,"result":{"content":"ok","request_id":"r-1","halted_at_iteration_limit":false}}"#;
    assert_eq!(original.len(), 103);
    assert_eq!(format!("{start}}}}}"), original);
    let usage: Value = serde_json::from_str(usage.strip_suffix("}}").unwrap()).unwrap();
    assert_eq!(member_names(&usage), ["cached_tokens", "input_tokens", "output_tokens"]);
}

#[test]
fn request_id_is_returned_unchanged_or_generated() {
    let fixture = fixture_with_worker();
    let longest = "x".repeat(256);
    let ids = [json!("r"), json!("5"), json!(5), json!(0), json!(-7), json!(i64::MAX), json!(i64::MIN)];
    for id in ids.into_iter().chain([json!(longest), json!("ü \n\"")]) {
        let result = send(&fixture, json!({ "content": "hi", "request_id": id }));
        assert_eq!(result["request_id"], id);
    }
    let generated: Vec<_> = [json!({ "content": "hi" }), json!({ "content": "hi", "request_id": null })]
        .into_iter()
        .map(|params| send(&fixture, params)["request_id"].take())
        .collect();
    assert!(generated.iter().all(|id| is_hex(id, 16)), "{generated:?}");
    assert_ne!(generated[0], generated[1]);
}

#[test]
fn invalid_parameters_are_named_and_change_nothing() {
    let fixture = fixture_with_worker();
    let cases = [
        (json!({}), "Missing required parameter: content"),
        (json!({ "content": null }), "Missing required parameter: content"),
        (json!({ "content": 5 }), "content must be string, got: int"),
        (json!({ "content": ["hi"] }), "content must be string, got: list"),
        (json!({ "content": "hi", "request_id": "" }), "request_id cannot be empty"),
        (json!({ "content": "hi", "request_id": true }), "request_id must be string or integer, got: bool"),
        (json!({ "content": "hi", "request_id": 1.5 }), "request_id must be string or integer, got: float"),
        (json!({ "content": "hi", "source": 5 }), "source must be string, got: int"),
        (
            json!({ "content": "hi", "source_agent_id": false }),
            "source_agent_id must be string or integer, got: bool",
        ),
        (json!({ "content": "hi", "stream": true }), "Extra inputs are not permitted: stream"),
    ];
    for (params, message) in cases {
        let error = fixture.daemon.error(&agent_path("worker"), "send", params);
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
    assert_eq!(fixture.context("worker")["message_count"], 0);
    assert_eq!(fixture.model.requests().len(), 0);
}

#[test]
fn message_source_is_stored_with_the_message() {
    let fixture = fixture_with_worker();
    for params in [
        json!({ "content": "a" }),
        json!({ "content": "b", "source": "script" }),
        json!({ "content": "c", "source": "nexus_send", "source_agent_id": "boss" }),
        json!({ "content": "d", "source_agent_id": 7 }),
        json!({ "content": "e", "source": null, "source_agent_id": null }),
    ] {
        send(&fixture, params);
    }
    let page = fixture.daemon.call_result(&agent_path("worker"), "get_messages", json!({}));
    let messages = page["messages"].as_array().unwrap();
    let metas: Vec<_> = messages.iter().step_by(2).map(|message| message["meta"].clone()).collect();
    let expected = [
        json!({ "source": "rpc" }),
        json!({ "source": "script" }),
        json!({ "source": "nexus_send", "source_agent_id": "boss" }),
        json!({ "source": "rpc", "source_agent_id": 7 }),
        json!({ "source": "rpc" }),
    ];
    assert_eq!(metas, expected);
    assert!(messages.iter().skip(1).step_by(2).all(|message| message.get("meta").is_none()), "{page}");
}

#[test]
fn repeated_send_joins_the_pending_turn() {
    let fixture = fixture_with_worker();
    let mut running = fixture.start_send("worker", "!hold gate", "5");
    fixture.model.wait_stalled(1);
    let mut queued = fixture.enqueue_send("worker", "later", "later");
    let params = |content: &str, request_id: &str| json!({ "content": content, "request_id": request_id });
    for _ in 0..2 {
        running.start(&fixture.daemon, &agent_path("worker"), "send", params("!hold gate", "5"));
        queued.start(&fixture.daemon, &agent_path("worker"), "send", params("later", "later"));
    }
    fixture.model.release("gate");
    for _ in 0..3 {
        assert_eq!(running.next_result()["content"], " released gate");
        assert_eq!(queued.next_result()["content"], "echo: later");
    }
    assert_eq!(fixture.send("worker", "!history")["content"], "!hold gate | later | !history");
    assert_eq!(fixture.model.requests().len(), 3);
}

#[test]
fn repeat_after_the_end_returns_the_same_response() {
    let fixture = fixture_with_worker();
    let params = json!({ "content": "hi", "request_id": "r" });
    let first = send(&fixture, params.clone());
    assert!(first["usage"].is_object(), "{first}");
    assert_eq!(send(&fixture, params), first);
    let cancelled = fixture.start_send("worker", "!stall", "c");
    fixture.model.wait_stalled(1);
    fixture.cancel("worker", "c");
    let cancelled = cancelled.next_result();
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(send(&fixture, json!({ "content": "!stall", "request_id": "c" })), cancelled);
    let params = json!({ "content": "!status 500", "request_id": "f" });
    let failed = fixture.daemon.error(&agent_path("worker"), "send", params.clone());
    assert_eq!(fixture.daemon.error(&agent_path("worker"), "send", params), failed);
    assert_eq!(fixture.send("worker", "!history")["content"], "hi | !stall | !status 500 | !history");
    assert_eq!(fixture.model.requests().len(), 7, "a server error is retried three times");
}

#[test]
fn request_id_with_other_content_is_rejected() {
    let fixture = fixture_with_worker();
    let conflict = |request_id: &str| {
        let params = json!({ "content": "again", "request_id": request_id });
        PendingCalls::single(&fixture.daemon, &agent_path("worker"), "send", params)
    };
    let assert_rejected = |calls: &PendingCalls, request_id: &str| {
        let message = format!("request_id was used before with other content: {request_id}");
        assert_eq!(calls.next_response()["error"], json!({ "code": -32602, "message": message }));
    };
    let running = fixture.start_send("worker", "!hold gate", "5");
    fixture.model.wait_stalled(1);
    assert_rejected(&conflict("5"), "5");
    let queued = fixture.enqueue_send("worker", "later", "later");
    // The actor may see the commit after the event is published. Then it rejects the send when the first send's turn
    // begins.
    let conflicting = conflict("later");
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(queued.next_result()["content"], "echo: later");
    assert_rejected(&conflicting, "later");
    ["5", "later"].iter().for_each(|request_id| assert_rejected(&conflict(request_id), request_id));
    assert_eq!(fixture.send("worker", "!history")["content"], "!hold gate | later | !history");
}

#[test]
fn request_ids_differ_by_type_and_by_agent() {
    let fixture = fixture_with_worker();
    let running = fixture.start_send("worker", "!hold gate", "5");
    fixture.model.wait_stalled(1);
    let params = json!({ "content": "number", "request_id": 5 });
    let number = PendingCalls::single(&fixture.daemon, &agent_path("worker"), "send", params);
    fixture.create("other");
    let other = json!({ "content": "elsewhere", "request_id": "5" });
    assert_eq!(fixture.daemon.call_result(&agent_path("other"), "send", other)["content"], "echo: elsewhere");
    fixture.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    let number = number.next_result();
    assert_eq!((&number["content"], &number["request_id"]), (&json!("echo: number"), &json!(5)));
}

#[test]
fn empty_message_is_valid() {
    let fixture = fixture_with_worker();
    assert_eq!(send(&fixture, json!({ "content": "" }))["content"], "echo: ");
    assert_eq!(
        fixture.messages("worker"),
        [("user", ""), ("assistant", "echo: ")].map(|(role, text)| (role.to_owned(), text.to_owned()))
    );
}

#[test]
fn any_text_round_trips_unchanged() {
    let fixture = fixture_with_worker();
    let texts = [
        "line\r\nline\ttab \"quotes\" \\ back\u{8}\u{0}\u{1f}\u{7f}",
        "\u{1F980}\u{200d}\u{202e}\u{2028}\u{feff}é\u{301}",
        "</script><!-- data: [DONE]\n\ndata: {}",
        " leading and trailing ",
        "## user · 2026-01-01",
    ];
    for text in texts {
        assert_eq!(send(&fixture, json!({ "content": text }))["content"], format!("echo: {text}"));
    }
    let messages = fixture.messages("worker");
    let sent: Vec<_> = messages.iter().step_by(2).map(|(_, text)| text.as_str()).collect();
    assert_eq!(sent, texts);
}

#[test]
fn message_of_nearly_the_body_limit_is_accepted() {
    let fixture = Fixture::with_config(LARGE_WINDOW_CONFIG);
    fixture.create_with(json!({ "agent_id": "worker", "model": "big" }));
    let long = "0123456789abcdef".repeat(65_000);
    let result = send(&fixture, json!({ "content": long }));
    assert_eq!(result["content"].as_str().map(str::len), Some("echo: ".len() + long.len()));
    assert_eq!(send(&fixture, json!({ "content": "short" }))["content"], "echo: short");
}
