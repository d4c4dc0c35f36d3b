//! Faults and the error codes and messages the caller gets for them.

use super::*;

#[tokio::test(start_paused = true)]
async fn invalid_parameters_are_named_and_change_nothing() {
    let fixture = Fixture::new().await;
    let cases = [
        ("create_agent", r#"{"agent_id":5}"#, "agent_id must be string, got: int"),
        ("create_agent", r#"{"agent_id":""}"#, "agent_id invalid: Agent ID cannot be empty"),
        ("create_agent", r#"{"agent_id":"a","prompt":"x"}"#, "Extra inputs are not permitted: prompt"),
        ("destroy_agent", "{}", "Missing required parameter: agent_id"),
        ("destroy_agent", r#"{"agent_id":"a","orphan":1}"#, "orphan must be boolean, got: int"),
        ("list_agents", r#"{"limit":0}"#, "limit must be an integer between 1 and 2000"),
        ("list_agents", r#"{"offset":-1}"#, "offset must be a non-negative integer"),
        ("list_agents", r#"{"all":true}"#, "Extra inputs are not permitted: all"),
        ("list_sessions", r#"{"limit":2001}"#, "limit must be an integer between 1 and 2000"),
        ("fork_agent", "{}", "Missing required parameter: agent_id"),
        ("fork_agent", r#"{"agent_id":""}"#, "agent_id invalid: Agent ID cannot be empty"),
        ("fork_agent", r#"{"agent_id":"a","new_agent_id":""}"#, "Agent not found: a"),
        ("fork_agent", r#"{"agent_id":"a"}"#, "Agent not found: a"),
        ("rollback_agent", r#"{"agent_id":"a"}"#, "Missing required parameter: messages"),
        ("rollback_agent", r#"{"agent_id":"a","messages":0}"#, "Agent not found: a"),
        ("rename_agent", r#"{"agent_id":"a"}"#, "Missing required parameter: new_agent_id"),
        ("rename_agent", r#"{"agent_id":"a","new_agent_id":"b"}"#, "Agent not found: a"),
        ("export_agent", r#"{"agent_id":"a","to":"b"}"#, "Extra inputs are not permitted: to"),
        ("export_agent", r#"{"agent_id":"a"}"#, "Agent not found: a"),
        ("import_agent", "{}", "Missing required parameter: session"),
        ("shutdown_server", r#"{"now":true}"#, "Extra inputs are not permitted: now"),
        ("rpc.discover", r#"{"a":1}"#, "Extra inputs are not permitted: a"),
        ("send", "{}", "Missing required parameter: content"),
        ("send", r#"{"content":null}"#, "Missing required parameter: content"),
        ("send", r#"{"content":["hi"]}"#, "content must be string, got: list"),
        ("send", r#"{"content":"hi","request_id":""}"#, "request_id cannot be empty"),
        ("send", r#"{"content":"hi","request_id":1.5}"#, "request_id must be string or integer, got: float"),
        ("cancel", "{}", "Missing required parameter: request_id"),
        ("steer", "{}", "Missing required parameter: content"),
        ("steer", r#"{"content":7}"#, "content must be string, got: int"),
        ("shutdown", r#"{"a":1}"#, "Extra inputs are not permitted: a"),
        ("get_tokens", r#"{"a":1}"#, "Extra inputs are not permitted: a"),
        ("get_context", r#"{"a":1}"#, "Extra inputs are not permitted: a"),
        ("get_agent", r#"{"a":1}"#, "Extra inputs are not permitted: a"),
        ("list_children", r#"{"a":1}"#, "Extra inputs are not permitted: a"),
        ("get_permissions", r#"{"a":1}"#, "Extra inputs are not permitted: a"),
        ("set_permissions", r#"{"a":1}"#, "Extra inputs are not permitted: a"),
        ("get_messages", r#"{"limit":0}"#, "limit must be an integer between 1 and 2000"),
        ("get_messages", r#"{"limit":2001}"#, "limit must be an integer between 1 and 2000"),
        ("get_messages", r#"{"offset":-1}"#, "offset must be a non-negative integer"),
    ];
    for (method, params, message) in cases {
        let response = fixture.call_daemon(&request(method, params)).await;
        assert_eq!(response, error(-32602, message), "{method} {params}");
        assert_eq!(fixture.agent_names().await, Vec::<String>::new(), "{method} {params} created an agent");
    }
    assert!(fixture.pool.stop_requested().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn page_beyond_the_last_message_is_empty() {
    let fixture = Fixture::new().await;
    let response = fixture.call_daemon(&request("get_messages", r#"{"offset":18446744073709551615}"#)).await;
    let expected = r#"{"agent_id":"main","total":0,"offset":18446744073709551615,"limit":200,"messages":[]}"#;
    assert_eq!(response, result(expected));
}

#[tokio::test(start_paused = true)]
async fn refused_create_changes_nothing() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let duplicate =
        fixture.call_daemon(&request("create_agent", r#"{"agent_id":"a","system_prompt":"x"}"#)).await;
    assert_eq!(duplicate, error(-32602, "Agent already exists: a"));
    let invalid = fixture.call_daemon(&request("create_agent", r#"{"agent_id":"a..b"}"#)).await;
    let text = "agent_id invalid: Invalid agent ID \"a..b\": contains forbidden pattern '..'";
    assert_eq!(invalid, error(-32602, text));
    assert_eq!(fixture.agent_names().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn panicking_handler_fails_only_its_own_call() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    fixture.entropy.set_panics(true);
    let panicked = error(-32603, "Internal error: the call panicked");
    assert_eq!(fixture.request_create("{}").await, panicked);
    assert_eq!(fixture.request_create(r#"{"agent_id":"b"}"#).await, panicked);
    assert_eq!(fixture.call_agent("a", &request("send", r#"{"content":"hi"}"#)).await, panicked);
    assert_eq!(fixture.agent_names().await, ["a"]);
    let (_, with_request_id) =
        fixture.call_agent("a", &request("send", r#"{"content":"hi","request_id":1}"#)).await;
    assert!(
        with_request_id.contains(r#""content":"you said hi""#),
        "other calls still work: {with_request_id}"
    );
    fixture.entropy.set_panics(false);
    let after = fixture.request_create("{}").await;
    let (agent, token) = ("00000001", capability_token(2));
    assert_eq!(
        after,
        result(&format!(r#"{{"agent_id":"{agent}","url":"/agent/{agent}","token":"{token}"}}"#))
    );
    assert_eq!(fixture.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn full_queue_returns_busy_with_retry_after() {
    let fixture =
        Fixture::with_limits(Limits { agents_max: 1, agent_turns_open_max: 1, ..Limits::default() }).await;
    fixture.create_agents(&["a"]).await;
    let pending_send =
        fixture.spawn_call("a", r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#);
    run_until_idle().await;
    let later = r#","data":{"retry_after_ms":250}"#;
    let full = fixture.call_agent("a", &request("send", r#"{"content":"hi"}"#)).await;
    assert_eq!(full, error_with(-32001, "busy: 1 turns are open at this agent", later));
    let crowded = fixture.call_daemon(&request("create_agent", "{}")).await;
    assert_eq!(crowded, error_with(-32001, "busy: 1 agents exist", later));
    fixture.released.add_permits(1);
    assert!(pending_send.await.unwrap().1.contains(r#""content":"hello""#));
}

#[tokio::test(start_paused = true)]
async fn every_call_is_unavailable_while_the_daemon_stops() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let pending_send =
        fixture.spawn_call("a", r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#);
    run_until_idle().await;
    fixture.pool.request_stop();
    let later = r#","data":{"retry_after_ms":250}"#;
    let (_, text) = error_with(-32001, "Server shutting down", later);
    for (door, method, params) in [
        ("/", "create_agent", "{}"),
        ("/", "list_agents", "{}"),
        ("/", "list_sessions", "{}"),
        ("/", "shutdown_server", "{}"),
        ("a", "send", r#"{"content":"hi"}"#),
        ("a", "get_messages", "{}"),
    ] {
        let response = fixture.call_as(&Caller::admin(), door, &request(method, params)).await;
        assert_eq!(response, (ResponseKind::Unavailable, text.clone()), "{method}");
    }
    fixture.released.add_permits(1);
    assert!(pending_send.await.unwrap().1.contains(r#""content":"hello""#), "a call in flight is answered");
}

#[test]
fn closed_store_is_no_internal_error() {
    let fault = agent::Fault::from(agent::outside::StoreFault::Closed);
    let error = crate::fault::rpc_error(&fault);
    assert_eq!((error.code, error.message.as_str()), (-32001, "Server shutting down"));
}

#[tokio::test(start_paused = true)]
async fn model_failure_hides_its_internal_cause() {
    let fixture = Fixture::new().await;
    let failed = fixture.call_daemon(&request("send", r#"{"content":"fail"}"#)).await;
    assert_eq!(failed, error(-32603, "the model failed"));
}

#[tokio::test(start_paused = true)]
async fn reused_request_id_with_other_content_is_refused() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let pending_send = fixture.spawn_call(
        "a",
        r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait","request_id":"r"},"id":1}"#,
    );
    run_until_idle().await;
    let second = fixture.call_agent("a", &request("send", r#"{"content":"hi","request_id":"r"}"#)).await;
    assert_eq!(second, error(-32602, "request_id was used before with other content: r"));
    fixture.released.add_permits(1);
    assert!(pending_send.await.unwrap().1.contains(r#""content":"hello""#));
    let late = fixture.call_agent("a", &request("send", r#"{"content":"hi","request_id":"r"}"#)).await;
    assert_eq!(late, error(-32602, "request_id was used before with other content: r"));
}

#[tokio::test(start_paused = true)]
async fn call_to_a_destroyed_target_is_not_found() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let target = fixture.dispatcher.agent_target("a", &Caller::admin()).unwrap();
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    let body = request("send", r#"{"content":"hi"}"#);
    let response =
        fixture.dispatcher.respond(&target, &Caller::admin(), body.as_bytes(), EnvelopeRules::HTTP).await;
    let text = String::from_utf8(response.body).unwrap();
    assert_eq!((response.kind, text), error(-32602, "Agent not found: a"));
}

#[tokio::test(start_paused = true)]
async fn destroying_an_agent_cancels_its_open_sends() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let send =
        || fixture.spawn_call("a", r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#);
    let calls = [send(), send()];
    run_until_idle().await;
    fixture.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    for (index, call) in calls.into_iter().enumerate() {
        let (kind, response) = call.await.unwrap();
        assert_eq!(kind, ResponseKind::Completed);
        assert!(response.contains(r#""cancelled":true"#), "call {index}: {response}");
    }
}
