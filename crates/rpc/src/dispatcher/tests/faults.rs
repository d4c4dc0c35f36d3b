//! What goes wrong behind the desk, and the numbers and words a caller gets for it.

use super::*;

#[tokio::test(start_paused = true)]
async fn parameters_that_do_not_fit_are_named_and_leave_nothing_behind() {
    let house = Fixture::new().await;
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
        (
            "fork_agent",
            r#"{"agent_id":"a","new_agent_id":""}"#,
            "new_agent_id invalid: Agent ID cannot be empty",
        ),
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
        let answer = house.call_daemon(&request(method, params)).await;
        assert_eq!(answer, error(-32602, message), "{method} {params}");
        assert_eq!(house.agent_names().await, Vec::<String>::new(), "{method} {params} created an agent");
    }
    assert!(house.pool.stop_requested().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_page_beyond_every_message_is_empty() {
    let house = Fixture::new().await;
    let answer = house.call_daemon(&request("get_messages", r#"{"offset":18446744073709551615}"#)).await;
    let expected = r#"{"agent_id":"main","total":0,"offset":18446744073709551615,"limit":200,"messages":[]}"#;
    assert_eq!(answer, result(expected));
}

#[tokio::test(start_paused = true)]
async fn a_refused_create_leaves_nothing_behind() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let taken = house.call_daemon(&request("create_agent", r#"{"agent_id":"a","system_prompt":"x"}"#)).await;
    assert_eq!(taken, error(-32602, "Agent already exists: a"));
    let climbs = house.call_daemon(&request("create_agent", r#"{"agent_id":"a..b"}"#)).await;
    let text = "agent_id invalid: Invalid agent ID \"a..b\": contains forbidden pattern '..'";
    assert_eq!(climbs, error(-32602, text));
    assert_eq!(house.agent_names().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_costs_its_own_call_alone() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    house.entropy.panics.store(true, Ordering::Relaxed);
    let panicked = error(-32603, "Internal error: the call panicked");
    assert_eq!(house.request_create("{}").await, panicked);
    assert_eq!(house.request_create(r#"{"agent_id":"b"}"#).await, panicked);
    assert_eq!(house.call_agent("a", &request("send", r#"{"content":"hi"}"#)).await, panicked);
    assert_eq!(house.agent_names().await, ["a"]);
    let (_, named) = house.call_agent("a", &request("send", r#"{"content":"hi","request_id":1}"#)).await;
    assert!(named.contains(r#""content":"you said hi""#), "other calls go on meanwhile: {named}");
    house.entropy.panics.store(false, Ordering::Relaxed);
    let after = house.request_create("{}").await;
    let (agent, token) = ("00000001", capability_token(2));
    assert_eq!(
        after,
        result(&format!(r#"{{"agent_id":"{agent}","url":"/agent/{agent}","token":"{token}"}}"#))
    );
    assert_eq!(house.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_busy_and_says_when_to_come_back() {
    let house =
        Fixture::with_limits(Limits { agents_max: 1, agent_turns_open_max: 1, ..Limits::default() }).await;
    house.create_agents(&["a"]).await;
    let sending =
        house.spawn_call("a", r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#);
    run_until_idle().await;
    let later = r#","data":{"retry_after_ms":250}"#;
    let full = house.call_agent("a", &request("send", r#"{"content":"hi"}"#)).await;
    assert_eq!(full, error_with(-32001, "busy: 1 turns are open at this agent", later));
    let crowded = house.call_daemon(&request("create_agent", "{}")).await;
    assert_eq!(crowded, error_with(-32001, "busy: 1 agents exist", later));
    house.pool.request_stop();
    let stopping = house.call_daemon(&request("create_agent", "{}")).await;
    assert_eq!(stopping, error_with(-32001, "Server shutting down", later));
    house.released.add_permits(1);
    assert!(sending.await.unwrap().1.contains(r#""content":"hello""#));
}

#[tokio::test(start_paused = true)]
async fn a_failed_model_is_told_without_what_only_the_log_should_know() {
    let house = Fixture::new().await;
    let failed = house.call_daemon(&request("send", r#"{"content":"fail"}"#)).await;
    assert_eq!(failed, error(-32603, "the model failed"));
}

#[tokio::test(start_paused = true)]
async fn a_name_of_a_send_is_refused_to_other_content() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let sending = house.spawn_call(
        "a",
        r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait","request_id":"r"},"id":1}"#,
    );
    run_until_idle().await;
    let second = house.call_agent("a", &request("send", r#"{"content":"hi","request_id":"r"}"#)).await;
    assert_eq!(second, error(-32602, "request_id was used before with other content: r"));
    house.released.add_permits(1);
    assert!(sending.await.unwrap().1.contains(r#""content":"hello""#));
    let late = house.call_agent("a", &request("send", r#"{"content":"hi","request_id":"r"}"#)).await;
    assert_eq!(late, error(-32602, "request_id was used before with other content: r"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_destroyed_behind_an_open_door_is_not_found() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let entrance = house.dispatcher.agent_target("a").unwrap();
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    let body = request("send", r#"{"content":"hi"}"#);
    let answer = house.dispatcher.respond(entrance, &Caller::admin(), body.as_bytes()).await;
    let text = String::from_utf8(answer.body).unwrap();
    assert_eq!((answer.kind, text), error(-32602, "Agent not found: a"));
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_agent_answers_the_calls_that_were_open() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let open = |id: i64| {
        (id, house.spawn_call("a", r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#))
    };
    let calls = [open(1), open(2)];
    run_until_idle().await;
    house.call_daemon(&request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    for (place, call) in calls {
        let (kind, answer) = call.await.unwrap();
        assert_eq!(kind, ResponseKind::Completed);
        assert!(answer.contains(r#""cancelled":true"#), "call {place}: {answer}");
    }
}
