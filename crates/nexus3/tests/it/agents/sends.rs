//! `send`: what it takes, what it answers, and what is kept of it.

use serde_json::{Value, json};

use crate::support::pending_calls::PendingCalls;
use crate::support::{ExpectError as _, Fixture, LARGE_WINDOW_CONFIG, agent_path, is_hex, member_names};

fn fixture_with_worker() -> Fixture {
    let stage = Fixture::start();
    stage.create("worker");
    stage
}

fn send(stage: &Fixture, params: Value) -> Value {
    stage.daemon.call_result(&agent_path("worker"), "send", params)
}

#[test]
fn an_answer_is_byte_for_byte_the_originals_with_the_usage_behind() {
    let stage = fixture_with_worker();
    let body =
        br#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"!reply ok","request_id":"r-1"}}"#;
    let answer = stage.daemon.post(&agent_path("worker"), &[("Content-Type", "application/json")], body);
    assert_eq!(answer.header("content-type"), Some("application/json; charset=utf-8"));
    let text = answer.text();
    let (start, usage) = text.split_once(r#","usage":"#).expect("the model reports what it used");
    let original = r#"{"jsonrpc":"2.0","id":1,"result":{"content":"ok","request_id":"r-1","halted_at_iteration_limit":false}}"#;
    assert_eq!(original.len(), 103);
    assert_eq!(format!("{start}}}}}"), original);
    let usage: Value = serde_json::from_str(usage.strip_suffix("}}").unwrap()).unwrap();
    assert_eq!(member_names(&usage), ["cached_tokens", "input_tokens", "output_tokens"]);
}

#[test]
fn a_request_id_comes_back_as_it_was_or_is_made_up() {
    let stage = fixture_with_worker();
    let longest = "x".repeat(256);
    let ids = [json!("r"), json!("5"), json!(5), json!(0), json!(-7), json!(i64::MAX), json!(i64::MIN)];
    for id in ids.into_iter().chain([json!(longest), json!("ü \n\"")]) {
        let result = send(&stage, json!({ "content": "hi", "request_id": id }));
        assert_eq!(result["request_id"], id);
    }
    let made_up: Vec<_> = [json!({ "content": "hi" }), json!({ "content": "hi", "request_id": null })]
        .into_iter()
        .map(|params| send(&stage, params)["request_id"].take())
        .collect();
    assert!(made_up.iter().all(|id| is_hex(id, 16)), "{made_up:?}");
    assert_ne!(made_up[0], made_up[1]);
}

#[test]
fn parameters_that_do_not_fit_are_named_and_change_nothing() {
    let stage = fixture_with_worker();
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
        let error = stage.daemon.error(&agent_path("worker"), "send", params);
        assert_eq!(error, json!({ "code": -32602, "message": message }));
    }
    assert_eq!(stage.context("worker")["message_count"], 0);
    assert_eq!(stage.model.requests().len(), 0);
}

#[test]
fn where_a_message_came_from_is_kept_with_it() {
    let stage = fixture_with_worker();
    for params in [
        json!({ "content": "a" }),
        json!({ "content": "b", "source": "script" }),
        json!({ "content": "c", "source": "nexus_send", "source_agent_id": "boss" }),
        json!({ "content": "d", "source_agent_id": 7 }),
        json!({ "content": "e", "source": null, "source_agent_id": null }),
    ] {
        send(&stage, params);
    }
    let page = stage.daemon.call_result(&agent_path("worker"), "get_messages", json!({}));
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
fn a_send_that_is_repeated_while_it_is_open_is_one_turn_with_one_answer() {
    let stage = fixture_with_worker();
    let mut running = stage.start_send("worker", "!hold gate", "5");
    stage.model.wait_stalled(1);
    let mut waiting = stage.enqueue_send("worker", "later", "later");
    let again = |content: &str, name: &str| json!({ "content": content, "request_id": name });
    for _ in 0..2 {
        running.start(&stage.daemon, &agent_path("worker"), "send", again("!hold gate", "5"));
        waiting.start(&stage.daemon, &agent_path("worker"), "send", again("later", "later"));
    }
    stage.model.release("gate");
    for _ in 0..3 {
        assert_eq!(running.next_result()["content"], " released gate");
        assert_eq!(waiting.next_result()["content"], "echo: later");
    }
    assert_eq!(stage.send("worker", "!history")["content"], "!hold gate | later | !history");
    assert_eq!(stage.model.requests().len(), 3);
}

#[test]
fn a_send_that_is_repeated_after_its_end_gets_the_same_answer_and_the_model_is_not_asked() {
    let stage = fixture_with_worker();
    let params = json!({ "content": "hi", "request_id": "r" });
    let first = send(&stage, params.clone());
    assert!(first["usage"].is_object(), "{first}");
    assert_eq!(send(&stage, params), first);
    let cancelled = stage.start_send("worker", "!stall", "c");
    stage.model.wait_stalled(1);
    stage.cancel("worker", "c");
    let cancelled = cancelled.next_result();
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(send(&stage, json!({ "content": "!stall", "request_id": "c" })), cancelled);
    let params = json!({ "content": "!status 500", "request_id": "f" });
    let failed = stage.daemon.error(&agent_path("worker"), "send", params.clone());
    assert_eq!(stage.daemon.error(&agent_path("worker"), "send", params), failed);
    assert_eq!(stage.send("worker", "!history")["content"], "hi | !stall | !status 500 | !history");
    assert_eq!(stage.model.requests().len(), 7, "a server's own fault is worth four tries");
}

#[test]
fn request_id_with_other_content_is_refused_open_or_ended() {
    let stage = fixture_with_worker();
    let conflict = |request_id: &str| {
        let params = json!({ "content": "again", "request_id": request_id });
        PendingCalls::single(&stage.daemon, &agent_path("worker"), "send", params)
    };
    let assert_refused = |calls: &PendingCalls, request_id: &str| {
        let message = format!("request_id was used before with other content: {request_id}");
        assert_eq!(calls.next_response()["error"], json!({ "code": -32602, "message": message }));
    };
    let running = stage.start_send("worker", "!hold gate", "5");
    stage.model.wait_stalled(1);
    assert_refused(&conflict("5"), "5");
    let waiting = stage.enqueue_send("worker", "later", "later");
    // The actor may learn of the commit after the event is out: then it refuses when the owner's turn begins.
    let conflicting = conflict("later");
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    assert_eq!(waiting.next_result()["content"], "echo: later");
    assert_refused(&conflicting, "later");
    ["5", "later"].iter().for_each(|request_id| assert_refused(&conflict(request_id), request_id));
    assert_eq!(stage.send("worker", "!history")["content"], "!hold gate | later | !history");
}

#[test]
fn a_number_and_its_digits_and_the_same_name_elsewhere_are_other_sends() {
    let stage = fixture_with_worker();
    let running = stage.start_send("worker", "!hold gate", "5");
    stage.model.wait_stalled(1);
    let params = json!({ "content": "number", "request_id": 5 });
    let number = PendingCalls::single(&stage.daemon, &agent_path("worker"), "send", params);
    stage.create("other");
    let other = json!({ "content": "elsewhere", "request_id": "5" });
    assert_eq!(stage.daemon.call_result(&agent_path("other"), "send", other)["content"], "echo: elsewhere");
    stage.model.release("gate");
    assert_eq!(running.next_result()["content"], " released gate");
    let number = number.next_result();
    assert_eq!((&number["content"], &number["request_id"]), (&json!("echo: number"), &json!(5)));
}

#[test]
fn an_empty_message_is_a_message() {
    let stage = fixture_with_worker();
    assert_eq!(send(&stage, json!({ "content": "" }))["content"], "echo: ");
    assert_eq!(
        stage.messages("worker"),
        [("user", ""), ("assistant", "echo: ")].map(|(role, text)| (role.to_owned(), text.to_owned()))
    );
}

#[test]
fn any_text_goes_there_and_back_unchanged() {
    let stage = fixture_with_worker();
    let texts = [
        "line\r\nline\ttab \"quotes\" \\ back\u{8}\u{0}\u{1f}\u{7f}",
        "\u{1F980}\u{200d}\u{202e}\u{2028}\u{feff}é\u{301}",
        "</script><!-- data: [DONE]\n\ndata: {}",
        " leading and trailing ",
        "## user · 2026-01-01",
    ];
    for text in texts {
        assert_eq!(send(&stage, json!({ "content": text }))["content"], format!("echo: {text}"));
    }
    let kept = stage.messages("worker");
    let said: Vec<_> = kept.iter().step_by(2).map(|(_, text)| text.as_str()).collect();
    assert_eq!(said, texts);
}

#[test]
fn a_message_as_long_as_a_body_may_be_is_answered() {
    let stage = Fixture::with_config(LARGE_WINDOW_CONFIG);
    stage.create_with(json!({ "agent_id": "worker", "model": "big" }));
    let long = "0123456789abcdef".repeat(65_000);
    let result = send(&stage, json!({ "content": long }));
    assert_eq!(result["content"].as_str().map(str::len), Some("echo: ".len() + long.len()));
    assert_eq!(send(&stage, json!({ "content": "short" }))["content"], "echo: short");
}
