//! The response of each method, byte for byte.

use std::collections::BTreeSet;

use nexus3_protocol::Method;

use super::permissions::SANDBOXED as PERMISSIONS;
use super::*;

const AGENTS: &str = concat!(
    r#"{"agents":[{"agent_id":"worker","is_temp":false,"created_at":"2024-01-15T10:30:00.000000","#,
    r#""message_count":2,"should_shutdown":false,"parent_agent_id":null,"child_count":0,"#,
    r#""halted_at_iteration_limit":false,"model":"echo/one","last_action_at":"2024-01-15T10:30:00.000000","#,
    r#""permission_level":"SANDBOXED","cwd":"/home/user/agents","write_paths":[],"preset":"sandboxed","#,
    r#""state":"live"}],"total":1}"#
);

const AGENT: &str = concat!(
    r#"{"agent":{"agent_id":"worker","is_temp":false,"created_at":"2024-01-15T10:30:00.000000","#,
    r#""message_count":2,"should_shutdown":false,"parent_agent_id":null,"child_count":0,"#,
    r#""halted_at_iteration_limit":false,"model":"echo/one","last_action_at":"2024-01-15T10:30:00.000000","#,
    r#""permission_level":"SANDBOXED","cwd":"/home/user/agents","write_paths":[],"preset":"sandboxed","#,
    r#""state":"live"},"depth":0,"ancestors":[],"children":[],"tools":["fs.read_file","agent_send"],"#,
    r#""working":false,"queued":0,"halted":null,"budget":["#,
    r#"{"resource":"turns","limit":null,"used":1,"reserved":0,"left":null},"#,
    r#"{"resource":"tool_calls","limit":null,"used":0,"reserved":0,"left":null},"#,
    r#"{"resource":"tokens","limit":null,"used":7,"reserved":0,"left":null},"#,
    r#"{"resource":"wall_ms","limit":null,"used":0,"reserved":0,"left":null},"#,
    r#"{"resource":"children","limit":null,"used":0,"reserved":0,"left":null}]}"#
);

const CREATED: &str = concat!(
    r#"{"agent_id":"worker","url":"/agent/worker","#,
    r#""token":"nxc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE"}"#
);

const CREATED_UNNAMED: &str = concat!(
    r#"{"agent_id":"00000001","url":"/agent/00000001","#,
    r#""token":"nxc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQ"}"#
);

const MESSAGES: &str = concat!(
    r#"{"agent_id":"worker","total":2,"offset":0,"limit":200,"messages":["#,
    r#"{"index":0,"role":"user","content":"hi","tool_call_id":null,"meta":{"source":"rpc"}},"#,
    r#"{"index":1,"role":"assistant","content":"you said hi","tool_call_id":null}]}"#
);

const SESSIONS: &str = concat!(
    r#"{"sessions":[{"agent_id":"worker","state":"live","created_at":"2024-01-15T10:30:00.000000","#,
    r#""modified_at":"2024-01-15T10:30:00.000000","message_count":2,"parent_agent_id":null,"model":"echo/one","#,
    r#""preset":"sandboxed","on_restart":"resume","origin":null}],"total":1}"#
);

const EXPORTED: &str = concat!(
    r#"{"session":{"schema_version":1,"agent_id":"worker","created_at":"2024-01-15T10:30:00.000000","#,
    r#""modified_at":"2024-01-15T10:30:00.000000","messages":[{"role":"user","content":"hi","meta":{"source":"rpc"}},"#,
    r#"{"role":"assistant","content":"you said hi"}],"system_prompt":"Be brief.","system_prompt_path":null,"#,
    r#""working_directory":"/home/user/agents","permission_level":"sandboxed","permission_preset":"sandboxed","#,
    r#""disabled_tools":[],"session_allowances":{},"model_alias":null,"clipboard_agent_entries":[],"#,
    r#""token_usage":{"cached_tokens":4,"input_tokens":5,"output_tokens":2,"requests":1},"provenance":"user","#,
    r#""nexus3":{"tools":null,"allowed_write_paths":null,"allowed_commands":null,"allowed_hosts":null,"#,
    r#""denied_hosts":null,"may_create":null,"may_grant":null,"ask":null,"deny":null,"#,
    r#""budget":{},"on_restart":"resume","#,
    r#""origin":null}}}"#
);

const FORKED: &str = concat!(
    r#"{"agent_id":"copy","url":"/agent/copy","token":"nxc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAI","#,
    r#""message_count":2}"#
);

const ROLLED_BACK: &str = r#"{"agent_id":"copy","message_count":0,"removed":2}"#;

const RENAMED: &str = r#"{"agent_id":"twin","url":"/agent/twin"}"#;

const IMPORT: &str = concat!(
    r#"{"session":{"agent_id":"old","created_at":"2024-01-15T10:30:00","modified_at":"2024-01-15T10:30:00","#,
    r#""messages":[{"role":"user","content":"hi"}],"system_prompt":"","working_directory":"/srv/other","#,
    r#""permission_level":"yolo"}}"#
);

const IMPORTED: &str = concat!(
    r#"{"agent_id":"old","url":"/agent/old","token":"nxc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAM","#,
    r#""message_count":1,"notes":["preset 'yolo' was replaced by 'trusted': an import never widens permissions"]}"#
);

/// Calls in order: door, method, params, result.
const CALLS: &[(&str, &str, &str, &str)] = &[
    ("/", "create_agent", r#"{"agent_id":"worker"}"#, CREATED),
    (
        "worker",
        "send",
        r#"{"content":"hi","request_id":"r1"}"#,
        concat!(
            r#"{"content":"you said hi","request_id":"r1","halted_at_iteration_limit":false,"#,
            r#""usage":{"input_tokens":5,"output_tokens":2,"cached_tokens":4}}"#
        ),
    ),
    ("/", "list_agents", "{}", AGENTS),
    ("worker", "get_messages", "{}", MESSAGES),
    (
        "worker",
        "get_messages",
        r#"{"offset":1,"limit":1}"#,
        concat!(
            r#"{"agent_id":"worker","total":2,"offset":1,"limit":1,"messages":["#,
            r#"{"index":1,"role":"assistant","content":"you said hi","tool_call_id":null}]}"#
        ),
    ),
    (
        "worker",
        "get_tokens",
        "{}",
        concat!(
            r#"{"system":2,"dynamic":0,"tools":6,"messages":11,"total":19,"budget":10000,"available":8000,"#,
            r#""remaining":7981,"used":{"requests":1,"input_tokens":5,"output_tokens":2,"cached_tokens":4}}"#
        ),
    ),
    (
        "worker",
        "get_context",
        "{}",
        concat!(
            r#"{"message_count":2,"system_prompt":true,"halted_at_iteration_limit":false,"#,
            r#""last_iteration_count":1,"max_tool_iterations":10}"#
        ),
    ),
    (
        "worker",
        "cancel",
        r#"{"request_id":"r1"}"#,
        r#"{"cancelled":false,"request_id":"r1","reason":"not_found_or_completed"}"#,
    ),
    ("worker", "steer", r#"{"content":"left"}"#, r#"{"steered":false,"reason":"no_running_turn_or_full"}"#),
    ("worker", "compact", "{}", r#"{"compacted":false,"reason":"nothing_to_compact"}"#),
    ("worker", "compact", r#"{"force":false}"#, r#"{"compacted":false,"reason":"nothing_to_compact"}"#),
    ("worker", "get_agent", "{}", AGENT),
    ("worker", "list_children", "{}", r#"{"agent_id":"worker","children":[]}"#),
    ("worker", "get_permissions", "{}", PERMISSIONS),
    ("worker", "set_permissions", "{}", PERMISSIONS),
    ("/", "list_sessions", "{}", SESSIONS),
    ("/", "export_agent", r#"{"agent_id":"worker"}"#, EXPORTED),
    ("/", "fork_agent", r#"{"agent_id":"worker","new_agent_id":"copy"}"#, FORKED),
    ("/", "rollback_agent", r#"{"agent_id":"copy","messages":0}"#, ROLLED_BACK),
    ("/", "rename_agent", r#"{"agent_id":"copy","new_agent_id":"twin"}"#, RENAMED),
    ("/", "destroy_agent", r#"{"agent_id":"twin"}"#, r#"{"success":true,"agent_id":"twin"}"#),
    ("/", "list_approvals", "{}", r#"{"approvals":[]}"#),
    ("/", "import_agent", IMPORT, IMPORTED),
    ("/", "destroy_agent", r#"{"agent_id":"old"}"#, r#"{"success":true,"agent_id":"old"}"#),
    ("/", "destroy_agent", r#"{"agent_id":"missing"}"#, r#"{"success":false,"agent_id":"missing"}"#),
    ("/", "create_agent", "{}", CREATED_UNNAMED),
    // Not the last agent: the daemon does not stop.
    ("worker", "shutdown", "{}", r#"{"success":true}"#),
    ("/", "shutdown_server", "{}", r#"{"success":true,"message":"Server shutting down"}"#),
];

#[tokio::test(start_paused = true)]
async fn every_method_returns_the_documented_json() {
    let fixture = Fixture::new().await;
    let (kind, document) = fixture.call_daemon(&request("rpc.discover", "{}")).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let published: Value = serde_json::from_str(nexus3_protocol::OPENRPC).unwrap();
    assert_eq!((kind, &document["result"]), (ResponseKind::Completed, &published));
    // An answer needs an open request: `approvals.rs`; an undo needs changed files: `undo.rs` of the process tests.
    let mut called = BTreeSet::from(["rpc.discover", "answer_approval", "undo_turn"]);
    for (door, method, params, expected) in CALLS {
        let response = fixture.call_as(&Caller::admin(), door, &request(method, params)).await;
        assert_eq!(response, result(expected), "{method} {params} at {door}");
        called.insert(*method);
    }
    let all: BTreeSet<_> = Method::ALL.iter().map(|method| method.name()).collect();
    assert_eq!(called, all, "a method is missing in this test");
}

#[tokio::test(start_paused = true)]
async fn send_without_request_id_returns_a_generated_one() {
    let fixture = Fixture::new().await;
    let (_, response) = fixture.call_daemon(&request("send", r#"{"content":"hi"}"#)).await;
    assert!(response.contains(r#""request_id":"0000000000000001""#), "{response}");
    let (_, response) = fixture.call_daemon(&request("send", r#"{"content":"hi","request_id":7}"#)).await;
    assert!(response.contains(r#""request_id":7,"#), "a number stays a number: {response}");
}

#[tokio::test(start_paused = true)]
async fn message_source_is_stored_in_meta() {
    let fixture = Fixture::new().await;
    for params in [
        r#"{"content":"a","source":"repl","source_agent_id":"boss"}"#,
        r#"{"content":"b","source_agent_id":9}"#,
        r#"{"content":"fail"}"#,
    ] {
        fixture.call_daemon(&request("send", params)).await;
    }
    let (_, response) = fixture.call_daemon(&request("get_messages", "{}")).await;
    for meta in [
        r#""meta":{"source":"repl","source_agent_id":"boss"}"#,
        r#""meta":{"source":"rpc","source_agent_id":9}"#,
        r#""meta":{"failed":true}"#,
    ] {
        assert!(response.contains(meta), "{meta} is not in {response}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_send_returns_the_partial_text() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let pending_send = fixture.spawn_call(
        "a",
        r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait","request_id":4},"id":1}"#,
    );
    run_until_idle().await;
    let context = fixture.call_agent("a", &request("get_context", "{}")).await.1;
    assert!(context.contains(r#""message_count":1"#), "a running turn does not block reads: {context}");
    let cancelled = fixture.call_agent("a", &request("cancel", r#"{"request_id":4}"#)).await;
    assert_eq!(cancelled, result(r#"{"cancelled":true,"request_id":4}"#));
    let expected = concat!(
        r#"{"cancelled":true,"content":"hel","request_id":4,"halted_at_iteration_limit":false,"#,
        r#""usage":{"input_tokens":13,"output_tokens":1,"cached_tokens":0,"estimated_tokens":14}}"#
    );
    assert_eq!(pending_send.await.unwrap(), result(expected));
    let (_, messages) = fixture.call_agent("a", &request("get_messages", "{}")).await;
    assert!(messages.contains(r#""meta":{"cancelled":true}"#), "{messages}");
}

#[tokio::test(start_paused = true)]
async fn disconnected_caller_does_not_cancel_its_turn() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let pending_send =
        fixture.spawn_call("a", r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#);
    run_until_idle().await;
    pending_send.abort();
    assert!(pending_send.await.unwrap_err().is_cancelled());
    fixture.released.add_permits(1);
    run_until_idle().await;
    let (_, messages) = fixture.call_agent("a", &request("get_messages", "{}")).await;
    assert!(messages.contains(r#""content":"hello""#), "{messages}");
}

#[tokio::test(start_paused = true)]
async fn tool_calls_and_results_are_in_messages() {
    let fixture = Fixture::with_limits(Limits { tool_iterations_max: 1, ..Limits::default() }).await;
    let (_, response) = fixture.call_daemon(&request("send", r#"{"content":"tool"}"#)).await;
    assert!(response.contains(r#""halted_at_iteration_limit":true"#), "{response}");
    let (_, messages) = fixture.call_daemon(&request("get_messages", r#"{"offset":1,"limit":2}"#)).await;
    let expected = concat!(
        r#"{"index":1,"role":"assistant","content":"","tool_calls":[{"id":"c1","name":"clock","arguments":"{}"}],"#,
        r#""tool_call_id":null},{"index":2,"role":"tool","content":"Unknown tool: clock","tool_call_id":"c1","#,
        r#""meta":{"failed":true}}"#
    );
    assert!(messages.contains(expected), "{messages}");
}

#[tokio::test(start_paused = true)]
async fn agents_are_listed_in_creation_order() {
    let fixture = Fixture::new().await;
    for name in ["zeta", ".tmp", "alpha"] {
        let (kind, _) =
            fixture.call_daemon(&request("create_agent", &format!(r#"{{"agent_id":"{name}"}}"#))).await;
        assert_eq!(kind, ResponseKind::Completed);
    }
    let (_, response) = fixture.call_daemon(&request("list_agents", "{}")).await;
    let response: Value = serde_json::from_str(&response).unwrap();
    let agents = response["result"]["agents"].as_array().unwrap();
    let listed: Vec<_> = agents.iter().map(|agent| (&agent["agent_id"], &agent["is_temp"])).collect();
    assert_eq!(
        serde_json::json!(listed),
        serde_json::json!([["zeta", false], [".tmp", true], ["alpha", false]])
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_of_the_last_agent_requests_a_stop() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b"]).await;
    fixture.call_agent("a", &request("shutdown", "{}")).await;
    assert!(fixture.pool.stop_requested().now_or_never().is_none());
    assert_eq!(fixture.call_agent("b", &request("shutdown", "{}")).await, result(r#"{"success":true}"#));
    assert!(fixture.pool.stop_requested().now_or_never().is_some());
}
