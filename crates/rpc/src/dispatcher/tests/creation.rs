//! `create_agent`: every invalid parameter has its own message, denials say why, and a refused call changes nothing.

use super::*;

/// Agents that serve as parents in these tests.
const FAMILY: [&str; 5] = [
    r#"{"agent_id":"lead","preset":"trusted","budget":{"turns":5,"tool_calls":4,"tokens":3,"wall_ms":2}}"#,
    r#"{"agent_id":"box"}"#,
    r#"{"agent_id":"pen","cwd":"sub","may_create":["sandboxed"]}"#,
    r#"{"agent_id":"full","preset":"trusted","budget":{"children":1}}"#,
    r#"{"agent_id":"only","parent_agent_id":"full"}"#,
];

async fn family() -> Fixture {
    let fixture = Fixture::new().await;
    for params in FAMILY {
        let (_, response) = fixture.request_create(params).await;
        assert!(response.contains(r#""result":"#), "{params}: {response}");
    }
    fixture
}

/// The state that a refused create must not change: agents, their permissions and budgets, and open turns.
async fn observable_state(fixture: &Fixture) -> (Value, Vec<Value>, usize) {
    let mut permissions = Vec::new();
    for name in fixture.agent_names().await {
        permissions.push(fixture.call_ok(&name, "get_permissions", "{}").await);
    }
    (fixture.call_ok("/", "list_agents", "{}").await, permissions, fixture.pool.open_turns())
}

/// Parameters that are invalid for any caller.
const INVALID: &[(&str, &str)] = &[
    (r#"{"agent_id":5}"#, "agent_id must be string, got: int"),
    (r#"{"temporary":"yes"}"#, "temporary must be boolean, got: str"),
    (r#"{"system_prompt":{}}"#, "system_prompt must be string, got: dict"),
    (r#"{"preset":["trusted"]}"#, "preset must be string, got: list"),
    (r#"{"disable_tools":"fs.read_file"}"#, "disable_tools must be list, got: str"),
    (r#"{"disable_tools":["a",1]}"#, "disable_tools[1] must be string, got: int"),
    (r#"{"parent_agent_id":1.5}"#, "parent_agent_id must be string, got: float"),
    (r#"{"cwd":true}"#, "cwd must be string, got: bool"),
    (r#"{"allowed_write_paths":"/x"}"#, "allowed_write_paths must be list, got: str"),
    (r#"{"allowed_write_paths":[{}]}"#, "allowed_write_paths[0] must be string, got: dict"),
    (r#"{"model":7}"#, "model must be string, got: int"),
    (r#"{"initial_message":["hi"]}"#, "initial_message must be string, got: list"),
    (r#"{"wait_for_initial_response":1}"#, "wait_for_initial_response must be boolean, got: int"),
    (r#"{"may_create":"trusted"}"#, "may_create must be list, got: str"),
    (r#"{"may_grant":["trusted"]}"#, "may_grant must be object, got: list"),
    (r#"{"may_grant":{"preset":1}}"#, "may_grant.preset must be string, got: int"),
    (r#"{"may_grant":{"grant":{}}}"#, "Extra inputs are not permitted: may_grant.grant"),
    (r#"{"budget":[1,2]}"#, "budget must be object, got: list"),
    (r#"{"budget":{"turns":-1}}"#, "budget.turns must be a non-negative integer"),
    (r#"{"budget":{"money":1}}"#, "Extra inputs are not permitted: budget.money"),
    (r#"{"name":"x"}"#, "Extra inputs are not permitted: name"),
    (r#"{"initial_message":""}"#, "initial_message cannot be empty"),
    (r#"{"initial_message":" \n\t"}"#, "initial_message cannot be empty"),
    (r#"{"agent_id":""}"#, "agent_id invalid: Agent ID cannot be empty"),
    (r#"{"parent_agent_id":""}"#, "parent_agent_id invalid: Agent ID cannot be empty"),
    (
        r#"{"parent_agent_id":"a..b"}"#,
        "parent_agent_id invalid: Invalid agent ID \"a..b\": contains forbidden pattern '..'",
    ),
    (
        r#"{"agent_id":"-x"}"#,
        "agent_id invalid: Invalid agent ID \"-x\": must be 1-63 chars, alphanumeric/dot/underscore/hyphen, \
         start with alphanumeric or dot",
    ),
    (r#"{"agent_id":"x","temporary":true}"#, "temporary cannot be combined with agent_id"),
    (r#"{"agent_id":"box"}"#, "Agent already exists: box"),
    (r#"{"parent_agent_id":"missing"}"#, "Parent agent not found: missing"),
    (r#"{"preset":"root"}"#, "preset must be one of sandboxed, trusted, worker, got: 'root'"),
    (r#"{"preset":""}"#, "preset must be one of sandboxed, trusted, worker, got: ''"),
    (r#"{"preset":"Trusted"}"#, "preset must be one of sandboxed, trusted, worker, got: 'Trusted'"),
    (r#"{"preset":"yolo"}"#, "preset must be one of sandboxed, trusted, worker, got: 'yolo'"),
    (
        r#"{"preset":"root","parent_agent_id":"lead"}"#,
        "preset must be one of sandboxed, trusted, worker, got: 'root'",
    ),
    (r#"{"cwd":""}"#, "cwd invalid: the path is empty"),
    (r#"{"cwd":"nowhere"}"#, "cwd does not exist: nowhere"),
    (r#"{"cwd":"notes.txt"}"#, "cwd is not a directory: notes.txt"),
    (
        r#"{"allowed_write_paths":["out","/srv/other"]}"#,
        "allowed_write_path '/srv/other' is outside sandbox root '/home/user/agents'",
    ),
    (
        r#"{"allowed_write_paths":["../agents2"]}"#,
        "allowed_write_path '/home/user/agents2' is outside sandbox root '/home/user/agents'",
    ),
    (r#"{"allowed_write_paths":[""]}"#, "allowed_write_path '' invalid: the path is empty"),
    (
        r#"{"preset":"worker","allowed_write_paths":["out"]}"#,
        "preset 'worker' cannot write: leave allowed_write_paths out, or choose another preset",
    ),
    (
        r#"{"preset":"worker","allowed_commands":["cargo"]}"#,
        "preset 'worker' runs no commands: leave allowed_commands out, or choose another preset",
    ),
    (
        r#"{"allowed_commands":["cargo",""]}"#,
        "allowed_command '' invalid: it must be a program's name or path, of at most 4096 bytes and without control \
         characters, or '*'",
    ),
    (
        r#"{"allowed_commands":["a\nb"]}"#,
        "allowed_command 'a\\nb' invalid: it must be a program's name or path, of at most 4096 bytes and without control \
         characters, or '*'",
    ),
    (
        r#"{"preset":"worker","allowed_hosts":["docs.rs"]}"#,
        "preset 'worker' connects to no hosts: leave allowed_hosts out, or choose another preset",
    ),
    (
        r#"{"allowed_hosts":["docs.rs","http://docs.rs"]}"#,
        "allowed_host 'http://docs.rs' invalid: it must be a host like 'example.com', '*.example.com', '*' or \
         '10.1.2.3', optionally with ':port'",
    ),
    (
        r#"{"denied_hosts":["a\nb"]}"#,
        "denied_host 'a\\nb' invalid: it must be a host like 'example.com', '*.example.com', '*' or \
         '10.1.2.3', optionally with ':port'",
    ),
    (
        r#"{"tools":["fs.read_file","a b"]}"#,
        "tools[1] must be a tool's name: 1 to 128 letters, digits, '.', '_' and '-'",
    ),
    (r#"{"model":"openai/x"}"#, "model must be one of echo/one, got: 'openai/x'"),
    (
        r#"{"disable_tools":["fs.read_file","a b"]}"#,
        "disable_tools[1] must be a tool's name: 1 to 128 letters, digits, '.', '_' and '-'",
    ),
    (
        r#"{"disable_tools":[""]}"#,
        "disable_tools[0] must be a tool's name: 1 to 128 letters, digits, '.', '_' and '-'",
    ),
    (
        r#"{"may_grant":{"disable_tools":["*"]}}"#,
        "may_grant.disable_tools[0] must be a tool's name: 1 to 128 letters, digits, '.', '_' and '-'",
    ),
];

/// Valid parameters that exceed the parent's grant.
const DENIED_CREATES: &[(&str, &str)] = &[
    (r#"{"preset":"yolo","parent_agent_id":"lead"}"#, "Requested preset 'yolo' exceeds parent ceiling"),
    (r#"{"preset":"trusted","parent_agent_id":"lead"}"#, "Requested preset 'trusted' exceeds parent ceiling"),
    (r#"{"parent_agent_id":"box"}"#, "Requested preset 'sandboxed' exceeds parent ceiling"),
    (r#"{"preset":"worker","parent_agent_id":"box"}"#, "Requested preset 'worker' exceeds parent ceiling"),
    (r#"{"preset":"trusted","parent_agent_id":"box"}"#, "Requested preset 'trusted' exceeds parent ceiling"),
    (r#"{"preset":"yolo","parent_agent_id":"box"}"#, "Requested preset 'yolo' exceeds parent ceiling"),
    (r#"{"preset":"worker","parent_agent_id":"pen"}"#, "Requested preset 'worker' exceeds parent ceiling"),
    (r#"{"parent_agent_id":"pen","cwd":"/srv/other"}"#, "cwd '/srv/other' is outside parent's allowed paths"),
    (r#"{"parent_agent_id":"pen","cwd":".."}"#, "cwd '/home/user/agents' is outside parent's allowed paths"),
    (
        r#"{"parent_agent_id":"pen","allowed_write_paths":["deep"]}"#,
        "allowed_write_path '/home/user/agents/sub/deep' is outside parent's allowed paths",
    ),
    (
        r#"{"parent_agent_id":"lead","cwd":"/","allowed_write_paths":["srv/other"]}"#,
        "allowed_write_path '/srv/other' is outside parent's allowed paths",
    ),
    (
        r#"{"parent_agent_id":"pen","allowed_commands":["cargo"]}"#,
        "allowed_command 'cargo' is not among the commands the parent may grant",
    ),
    (
        r#"{"parent_agent_id":"pen","allowed_hosts":["docs.rs"]}"#,
        "allowed_host 'docs.rs' is not among the hosts the parent may grant",
    ),
    (
        r#"{"parent_agent_id":"pen","allowed_commands":["*"]}"#,
        "allowed_command '*' is not among the commands the parent may grant",
    ),
    (r#"{"parent_agent_id":"lead","may_create":["trusted"]}"#, "may_create 'trusted' exceeds parent ceiling"),
    (
        r#"{"parent_agent_id":"lead","may_grant":{"preset":"trusted"}}"#,
        "Requested preset 'trusted' exceeds parent ceiling",
    ),
    (
        r#"{"parent_agent_id":"lead","budget":{"turns":6}}"#,
        "budget of turns exceeds what the parent has left: 5",
    ),
    (
        r#"{"parent_agent_id":"lead","budget":{"turns":5,"tool_calls":4,"tokens":4}}"#,
        "budget of tokens exceeds what the parent has left: 3",
    ),
    (
        r#"{"parent_agent_id":"lead","budget":{"wall_ms":3}}"#,
        "budget of wall_ms exceeds what the parent has left: 2",
    ),
];

#[tokio::test(start_paused = true)]
async fn invalid_create_parameters_are_named_and_change_nothing() {
    let fixture = family().await;
    let before = observable_state(&fixture).await;
    for (params, message) in INVALID {
        assert_eq!(fixture.request_create(params).await, error(-32602, message), "{params}");
    }
    assert_eq!(observable_state(&fixture).await, before);
}

#[tokio::test(start_paused = true)]
async fn create_beyond_parent_grant_is_denied_and_changes_nothing() {
    let fixture = family().await;
    let before = observable_state(&fixture).await;
    for (params, message) in DENIED_CREATES {
        assert_eq!(fixture.request_create(params).await, denied(message), "{params}");
    }
    // The message names the new agent instead of its parent, because any ancestor's budget may be used up.
    let full = fixture.request_create(r#"{"agent_id":"second","parent_agent_id":"full"}"#).await;
    assert_eq!(
        full,
        denied("Cannot create agent 'second': the budget of children of an ancestor is used up")
    );
    assert_eq!(observable_state(&fixture).await, before, "partly reserved budgets are returned");
    let all = r#"{"parent_agent_id":"lead","budget":{"turns":5,"tool_calls":4,"tokens":3,"wall_ms":2}}"#;
    assert!(
        fixture.request_create(all).await.1.contains(r#""result":"#),
        "the whole budget is still available"
    );
}

#[tokio::test(start_paused = true)]
async fn parameter_lists_hold_at_most_256_items() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let full = vec![r#""out""#; 256].join(",");
    let long = format!(r#"{full},"out""#);
    let text = |name: &str| error(-32602, &format!("{name} must hold at most 256 items, got: 257"));
    for name in ["disable_tools", "allowed_write_paths", "may_create"] {
        let response = fixture.request_create(&format!(r#"{{"{name}":[{long}]}}"#)).await;
        assert_eq!(response, text(name));
        let response = fixture.request_create(&format!(r#"{{"may_grant":{{"{name}":[{long}]}}}}"#)).await;
        assert_eq!(response, text(&format!("may_grant.{name}")));
    }
    for name in ["disable_tools", "allowed_write_paths"] {
        let body = request("set_permissions", &format!(r#"{{"{name}":[{long}]}}"#));
        assert_eq!(fixture.call_agent("a", &body).await, text(name));
    }
    assert_eq!(fixture.agent_names().await, ["a"]);
    let (_, response) = fixture
        .request_create(&format!(r#"{{"disable_tools":[{full}],"allowed_write_paths":[{full}]}}"#))
        .await;
    assert!(response.contains(r#""result":"#), "{response}");
}

#[tokio::test(start_paused = true)]
async fn refused_create_does_not_reserve_the_id() {
    let fixture = family().await;
    for wrong in [
        r#"{"agent_id":"new","model":"x"}"#,
        r#"{"agent_id":"new","cwd":"nowhere"}"#,
        r#"{"agent_id":"new","parent_agent_id":"lead","budget":{"turns":6}}"#,
        r#"{"agent_id":"new","parent_agent_id":"full"}"#,
    ] {
        assert!(fixture.request_create(wrong).await.1.contains(r#""error":"#), "{wrong}");
        assert_eq!(
            fixture.dispatcher.agent_target("new", &Caller::admin()).err(),
            Some(TargetError::AgentNotFound),
            "{wrong}"
        );
    }
    assert!(fixture.request_create(r#"{"agent_id":"new"}"#).await.1.contains(r#""agent_id":"new""#));
}

#[tokio::test(start_paused = true)]
async fn tree_depth_is_limited_to_five() {
    let fixture = Fixture::new().await;
    let mut parent = String::new();
    for depth in 0..=5 {
        let parent_param =
            if depth == 0 { String::new() } else { format!(r#","parent_agent_id":"{parent}""#) };
        let params =
            format!(r#"{{"agent_id":"a{depth}","preset":"trusted","may_create":["trusted"]{parent_param}}}"#);
        assert!(fixture.request_create(&params).await.1.contains(r#""result":"#), "{params}");
        parent = format!("a{depth}");
        let agent = fixture.call_ok(&parent, "get_agent", "{}").await;
        assert_eq!(agent["depth"], depth);
    }
    let too_deep =
        fixture.request_create(r#"{"agent_id":"a6","preset":"trusted","parent_agent_id":"a5"}"#).await;
    assert_eq!(too_deep, denied("Cannot create agent: max nesting depth (5) exceeded"));
    assert_eq!(fixture.agent_names().await, ["a0", "a1", "a2", "a3", "a4", "a5"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_preset_in_a_list_names_the_choices() {
    let fixture = family().await;
    for wrong in [
        r#"{"may_create":["root"]}"#,
        r#"{"may_create":["sandboxed","root"]}"#,
        r#"{"may_grant":{"preset":"root"}}"#,
        r#"{"may_grant":{"may_create":["root"]}}"#,
    ] {
        let (_, response) = fixture.request_create(wrong).await;
        assert!(
            response.contains("must be one of sandboxed, trusted, worker, got: 'root'"),
            "{wrong}: {response}"
        );
        assert!(response.contains(r#""code":-32602"#) && !response.contains("data"), "{wrong}: {response}");
    }
    let (_, response) = fixture.request_create(r#"{"may_create":["yolo"]}"#).await;
    assert!(response.contains("must be one of sandboxed, trusted, worker, got: 'yolo'"), "{response}");
    assert_eq!(fixture.agent_names().await, ["lead", "box", "pen", "full", "only"]);
}

#[tokio::test(start_paused = true)]
async fn created_agent_has_the_requested_properties() {
    let fixture = Fixture::new().await;
    let params = concat!(
        r#"{"temporary":true,"preset":"trusted","cwd":"sub","allowed_write_paths":["deep","../out"],"#,
        r#""disable_tools":["read_file","fs_write_file","no.such_tool"],"model":"echo/one","system_prompt":""}"#
    );
    let created = format!(r#"{{"agent_id":".1","url":"/agent/.1","token":"{}"}}"#, capability_token(1));
    assert_eq!(fixture.request_create(params).await, result(&created));
    let agent = fixture.call_ok(".1", "get_agent", "{}").await;
    assert_eq!(agent["agent"]["is_temp"], true);
    assert_eq!(agent["agent"]["preset"], "trusted");
    assert_eq!(agent["agent"]["permission_level"], "TRUSTED");
    assert_eq!(agent["agent"]["cwd"], "/home/user/agents/sub");
    let writes = serde_json::json!(["/home/user/agents/out", "/home/user/agents/sub/deep"]);
    assert_eq!(agent["agent"]["write_paths"], writes);
    let tools = ["agent_create", "agent_send", "agent_status", "agent_cancel", "agent_destroy", "agent_list"];
    assert_eq!(agent["tools"], serde_json::json!(tools), "a tool can be disabled by any of its names");
    assert_eq!(fixture.call_ok(".1", "get_context", "{}").await["system_prompt"], false);
    let (_, second) = fixture.request_create(r#"{"temporary":true}"#).await;
    assert!(second.contains(r#""agent_id":".2""#), "{second}");
    let (_, child) =
        fixture.request_create(r#"{"agent_id":"c","parent_agent_id":".1","temporary":false}"#).await;
    assert!(child.contains(r#""result":"#), "{child}");
    let cwd = fixture.call_ok("c", "get_agent", "{}").await["agent"]["cwd"].take();
    assert_eq!(cwd, "/home/user/agents/sub", "a child inherits its parent's cwd");
}

#[tokio::test(start_paused = true)]
async fn initial_message_response_is_returned_when_awaited() {
    let fixture = Fixture::new().await;
    let params = r#"{"agent_id":"a","initial_message":"hi","wait_for_initial_response":true}"#;
    let id = "00000000-0000-4000-8000-000000000001";
    let expected = format!(
        r#"{{"agent_id":"a","url":"/agent/a","token":"{}","initial_request_id":"{id}","response":{{"content":"you said hi","request_id":"{id}","halted_at_iteration_limit":false,"usage":{{"input_tokens":5,"output_tokens":2,"cached_tokens":4}}}}}}"#,
        capability_token(1)
    );
    assert_eq!(fixture.request_create(params).await, result(&expected));
    let messages = fixture.call_ok("a", "get_messages", "{}").await["messages"].take();
    assert_eq!(messages[0]["meta"], serde_json::json!({ "source": "rpc" }));
    let (_, without) = fixture.request_create(r#"{"agent_id":"b","wait_for_initial_response":true}"#).await;
    assert!(!without.contains("response") && !without.contains("initial"), "{without}");
}

#[tokio::test(start_paused = true)]
async fn queued_initial_message_can_be_cancelled_by_request_id() {
    let fixture = Fixture::new().await;
    let id = "00000000-0000-4000-8000-000000000001";
    let expected = format!(
        r#"{{"agent_id":"a","url":"/agent/a","token":"{}","initial_request_id":"{id}","initial_status":"queued"}}"#,
        capability_token(1)
    );
    let response = fixture.request_create(r#"{"agent_id":"a","initial_message":"wait"}"#).await;
    assert_eq!(response, result(&expected));
    run_until_idle().await;
    assert_eq!(fixture.call_ok("a", "get_agent", "{}").await["working"], true);
    let cancelled = fixture.call_ok("a", "cancel", &format!(r#"{{"request_id":"{id}"}}"#)).await;
    assert_eq!(cancelled["cancelled"], true);
}

#[tokio::test(start_paused = true)]
async fn initial_message_comes_before_later_sends() {
    let fixture = Fixture::new().await;
    fixture.request_create(r#"{"agent_id":"a","initial_message":"first"}"#).await;
    fixture.call_ok("a", "send", r#"{"content":"second"}"#).await;
    let messages = fixture.call_ok("a", "get_messages", "{}").await["messages"].take();
    let texts: Vec<_> = messages.as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["first", "you said first", "second", "you said second"]);
}

#[tokio::test(start_paused = true)]
async fn agent_exists_even_if_its_initial_message_failed() {
    let fixture = Fixture::new().await;
    let params = r#"{"agent_id":"a","initial_message":"fail","wait_for_initial_response":true}"#;
    let expected = format!(
        r#"{{"agent_id":"a","url":"/agent/a","token":"{}","initial_request_id":"00000000-0000-4000-8000-000000000001","response":{{"error":{{"code":-32603,"message":"the model failed"}}}}}}"#,
        capability_token(1)
    );
    assert_eq!(fixture.request_create(params).await, result(&expected));
    assert_eq!(fixture.agent_names().await, ["a"]);
    assert_eq!(fixture.call_ok("a", "send", r#"{"content":"hi"}"#).await["content"], "you said hi");
}

#[tokio::test(start_paused = true)]
async fn create_is_refused_if_its_initial_message_is_busy() {
    let fixture = Fixture::with_limits(Limits { turns_open_max: 1, ..Limits::default() }).await;
    fixture.create_agents(&["a"]).await;
    let pending_send =
        fixture.spawn_call("a", r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait"},"id":1}"#);
    run_until_idle().await;
    let full = fixture.request_create(r#"{"agent_id":"b","initial_message":"hi"}"#).await;
    assert_eq!(full, error_with(-32001, "busy: 1 turns are open", r#","data":{"retry_after_ms":250}"#));
    assert_eq!(fixture.agent_names().await, ["a"]);
    fixture.released.add_permits(1);
    assert!(pending_send.await.unwrap().1.contains("hello"));
    assert_eq!(fixture.pool.open_turns(), 0);
}
