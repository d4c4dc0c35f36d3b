//! Authorization of callers: an admin may call everything, an agent only what its grant allows.

use nexus3_protocol::Method;

use super::matrix::MINIMAL_IMPORT;
use super::*;

#[tokio::test(start_paused = true)]
async fn agent_may_not_call_daemon_methods_or_other_agents() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b", "main"]).await;
    let caller = Caller::admin().acting_as("a");
    let cases = [
        (
            "/",
            "create_agent",
            r#"{"agent_id":"c"}"#,
            "Tool 'agent_create' is disabled by permission policy; it needs may_create",
        ),
        ("/", "shutdown_server", "{}", "Agent 'a' is not authorized to call shutdown_server"),
        ("/", "destroy_agent", r#"{"agent_id":"b"}"#, "Agent 'a' is not authorized to destroy 'b'"),
        (
            "/",
            "destroy_agent",
            r#"{"agent_id":"missing"}"#,
            "Agent 'a' is not authorized to destroy 'missing'",
        ),
        ("/", "send", r#"{"content":"hi"}"#, "Agent 'a' is not authorized to call send on 'main'"),
        ("b", "send", r#"{"content":"hi"}"#, "Agent 'a' is not authorized to call send on 'b'"),
        ("b", "get_messages", "{}", "Agent 'a' is not authorized to call get_messages on 'b'"),
        ("b", "cancel", r#"{"request_id":1}"#, "Agent 'a' is not authorized to call cancel on 'b'"),
        ("b", "shutdown", "{}", "Agent 'a' is not authorized to call shutdown on 'b'"),
    ];
    for (door, method, params, message) in cases {
        let response = fixture.call_as(&caller, door, &request(method, params)).await;
        assert_eq!(response, denied(message), "{method} at {door}");
    }
    assert_eq!(fixture.agent_names().await, ["a", "b", "main"]);
    assert!(
        fixture
            .pool
            .list()
            .await
            .unwrap()
            .iter()
            .all(|agent| agent.message_count == 0 && !agent.should_shutdown)
    );
    assert!(fixture.pool.stop_requested().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn agent_may_call_its_own_methods_and_destroy_itself() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b"]).await;
    let caller = Caller::admin().acting_as("a");
    for (method, params) in [
        ("send", r#"{"content":"hi"}"#),
        ("steer", r#"{"content":"hi"}"#),
        ("cancel", r#"{"request_id":1}"#),
        ("get_tokens", "{}"),
        ("get_context", "{}"),
        ("get_messages", "{}"),
        ("get_agent", "{}"),
        ("list_children", "{}"),
        ("get_permissions", "{}"),
        ("shutdown", "{}"),
    ] {
        let (_, response) = fixture.call_as(&caller, "a", &request(method, params)).await;
        assert!(response.contains(r#""result":"#), "{method}: {response}");
    }
    let (_, listed) = fixture.call_as(&caller, "/", &request("list_agents", "{}")).await;
    assert!(listed.contains(r#""agent_id":"a""#) && !listed.contains(r#""agent_id":"b""#), "{listed}");
    let (_, document) = fixture.call_as(&caller, "/", &request("rpc.discover", "{}")).await;
    assert!(document.contains(r#""result":"#));
    let destroyed = fixture.call_as(&caller, "/", &request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    assert_eq!(destroyed, result(r#"{"success":true,"agent_id":"a"}"#));
    assert_eq!(fixture.agent_names().await, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_x_nexus_agent_is_denied_everything() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let text = "X-Nexus-Agent names no agent that exists";
    for name in ["missing", "", "..", "a ", "A", "main", "a\u{0}"] {
        let caller = Caller::admin().acting_as(name);
        for method in Method::ALL {
            let params = match method {
                Method::Send | Method::Steer => r#"{"content":"hi"}"#,
                Method::Cancel => r#"{"request_id":1}"#,
                Method::DestroyAgent | Method::ForkAgent | Method::ExportAgent | Method::UndoTurn => {
                    r#"{"agent_id":"a"}"#
                }
                Method::RollbackAgent => r#"{"agent_id":"a","messages":0}"#,
                Method::RenameAgent => r#"{"agent_id":"a","new_agent_id":"b"}"#,
                Method::AnswerApproval => r#"{"approval_id":"none","answer":"deny"}"#,
                Method::ImportAgent => MINIMAL_IMPORT,
                _ => "{}",
            };
            let response = fixture.call_as(&caller, "/", &request(method.name(), params)).await;
            assert_eq!(response, denied(text), "{name:?} called {}", method.name());
        }
        let response = fixture.call_as(&caller, "a", &request("get_tokens", "{}")).await;
        assert_eq!(response, denied(text), "{name:?} at a");
    }
    assert_eq!(fixture.agent_names().await, ["a"], "an unknown caller does not create main");
}

#[tokio::test(start_paused = true)]
async fn creating_agent_becomes_the_parent() {
    let fixture = Fixture::new().await;
    let token = fixture.create_agent("lead", "trusted", None).await;
    let capability = fixture.dispatcher.capability_caller(token.as_bytes()).unwrap();
    for (name, parent, caller) in [
        ("a", "", capability.clone()),
        ("b", r#","parent_agent_id":"lead""#, capability.clone().acting_as("lead")),
        ("c", "", Caller::admin().acting_as("lead")),
    ] {
        let body = request("create_agent", &format!(r#"{{"agent_id":"{name}"{parent}}}"#));
        let (_, response) = fixture.call_as(&caller, "/", &body).await;
        assert!(response.contains(r#""token":"nxc_"#), "{response}");
        assert_eq!(fixture.call_ok(name, "get_agent", "{}").await["agent"]["parent_agent_id"], "lead");
    }
    assert_eq!(
        fixture.call_ok("lead", "get_agent", "{}").await["children"],
        serde_json::json!(["a", "b", "c"])
    );
}

#[tokio::test(start_paused = true)]
async fn agent_may_not_use_admin_only_parameters() {
    let fixture = Fixture::new().await;
    fixture.create_agent("lead", "trusted", None).await;
    let caller = Caller::admin().acting_as("lead");
    let widens = "Permission delta would exceed parent ceiling: only an admin may widen a grant";
    for (params, message) in [
        (r#"{"may_create":["sandboxed"]}"#, widens),
        (r#"{"may_create":[]}"#, widens),
        (r#"{"may_grant":{}}"#, widens),
        (r#"{"preset":"trusted"}"#, "Requested preset 'trusted' exceeds parent ceiling"),
        (r#"{"preset":"yolo"}"#, "Requested preset 'yolo' exceeds parent ceiling"),
        (r#"{"parent_agent_id":"other"}"#, "Cannot create agent: requester does not match the parent agent"),
    ] {
        let response = fixture.call_as(&caller, "/", &request("create_agent", params)).await;
        assert_eq!(response, denied(message), "{params}");
    }
    assert_eq!(fixture.agent_names().await, ["lead"]);
}

#[tokio::test(start_paused = true)]
async fn agent_without_create_tool_cannot_create_agents() {
    let fixture = Fixture::new().await;
    let params = r#"{"agent_id":"lead","preset":"trusted","disable_tools":["agent_create"]}"#;
    fixture.request_create(params).await;
    let caller = Caller::admin().acting_as("lead");
    let response = fixture.call_as(&caller, "/", &request("create_agent", "{}")).await;
    assert_eq!(
        response,
        denied(
            "Tool 'agent_create' is disabled by permission policy; remove it from disable_tools of the agent or its preset"
        )
    );
    assert!(fixture.request_create(r#"{"parent_agent_id":"lead"}"#).await.1.contains(r#""result":"#));
}

#[tokio::test(start_paused = true)]
async fn capability_token_must_match_and_is_revoked_on_destroy() {
    let fixture = Fixture::new().await;
    let token = fixture.create_agent("a", "sandboxed", None).await;
    for wrong in
        ["", "nxc_", &token[..token.len() - 1], &format!("{token} "), &token.to_lowercase(), &token[4..]]
    {
        assert!(fixture.dispatcher.capability_caller(wrong.as_bytes()).is_none(), "{wrong:?}");
    }
    let caller = fixture.dispatcher.capability_caller(token.as_bytes()).unwrap();
    let destroyed = fixture.call_as(&caller, "/", &request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    assert_eq!(destroyed, result(r#"{"success":true,"agent_id":"a"}"#));
    assert!(fixture.dispatcher.capability_caller(token.as_bytes()).is_none());
    let second = fixture.create_agent("a", "sandboxed", None).await;
    assert_ne!(second, token);
    assert!(
        fixture.dispatcher.capability_caller(token.as_bytes()).is_none(),
        "a new agent with the same id has another token"
    );
    let late = fixture.call_as(&caller, "a", &request("get_tokens", "{}")).await;
    assert_eq!(late, denied("Invalid API key"));
}

#[tokio::test(start_paused = true)]
async fn agent_call_does_not_create_main() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let caller = Caller::admin().acting_as("a");
    for method in Method::ALL.iter().filter(|method| method.door() == Door::Agent) {
        let params = match method {
            Method::Send | Method::Steer => r#"{"content":"hi"}"#,
            Method::Cancel => r#"{"request_id":1}"#,
            _ => "{}",
        };
        let response = fixture.call_as(&caller, "/", &request(method.name(), params)).await;
        let text = format!("Agent 'a' is not authorized to call {} on 'main'", method.name());
        assert_eq!(response, denied(&text));
    }
    assert_eq!(fixture.agent_names().await, ["a"]);
}
