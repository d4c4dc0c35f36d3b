//! Who may call what: the holder of the token everything, an agent only its own.

use nexus3_protocol::Method;

use super::matrix::MINIMAL_IMPORT;
use super::*;

#[tokio::test(start_paused = true)]
async fn an_agent_may_not_call_for_the_daemon_or_for_others() {
    let house = Fixture::new().await;
    house.create_agents(&["a", "b", "main"]).await;
    let caller = Caller::admin().acting_as("a");
    let cases = [
        ("/", "create_agent", r#"{"agent_id":"c"}"#, "Tool 'agent_create' is disabled by permission policy"),
        ("/", "shutdown_server", "{}", "Agent 'a' is not authorized to call shutdown_server"),
        ("/", "destroy_agent", r#"{"agent_id":"b"}"#, "Agent 'a' is not authorized to destroy 'b'"),
        ("/", "destroy_agent", r#"{"agent_id":"nobody"}"#, "Agent 'a' is not authorized to destroy 'nobody'"),
        ("/", "send", r#"{"content":"hi"}"#, "Agent 'a' is not authorized to call send on 'main'"),
        ("b", "send", r#"{"content":"hi"}"#, "Agent 'a' is not authorized to call send on 'b'"),
        ("b", "get_messages", "{}", "Agent 'a' is not authorized to call get_messages on 'b'"),
        ("b", "cancel", r#"{"request_id":1}"#, "Agent 'a' is not authorized to call cancel on 'b'"),
        ("b", "shutdown", "{}", "Agent 'a' is not authorized to call shutdown on 'b'"),
    ];
    for (door, method, params, message) in cases {
        let answer = house.call_as(&caller, door, &request(method, params)).await;
        assert_eq!(answer, denied(message), "{method} at {door}");
    }
    assert_eq!(house.agent_names().await, ["a", "b", "main"]);
    assert!(
        house
            .pool
            .list()
            .await
            .unwrap()
            .iter()
            .all(|agent| agent.message_count == 0 && !agent.should_shutdown)
    );
    assert!(house.pool.stop_requested().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_call_its_own_methods_and_end_itself() {
    let house = Fixture::new().await;
    house.create_agents(&["a", "b"]).await;
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
        let (_, answer) = house.call_as(&caller, "a", &request(method, params)).await;
        assert!(answer.contains(r#""result":"#), "{method}: {answer}");
    }
    let (_, listed) = house.call_as(&caller, "/", &request("list_agents", "{}")).await;
    assert!(listed.contains(r#""agent_id":"a""#) && !listed.contains(r#""agent_id":"b""#), "{listed}");
    let (_, document) = house.call_as(&caller, "/", &request("rpc.discover", "{}")).await;
    assert!(document.contains(r#""result":"#));
    let destroyed = house.call_as(&caller, "/", &request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    assert_eq!(destroyed, result(r#"{"success":true,"agent_id":"a"}"#));
    assert_eq!(house.agent_names().await, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_no_agent_gives_no_right_at_all() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let text = "X-Nexus-Agent names no agent that exists";
    for name in ["nobody", "", "..", "a ", "A", "main", "a\u{0}"] {
        let caller = Caller::admin().acting_as(name);
        for method in Method::ALL {
            let params = match method {
                Method::Send | Method::Steer => r#"{"content":"hi"}"#,
                Method::Cancel => r#"{"request_id":1}"#,
                Method::DestroyAgent | Method::ForkAgent | Method::ExportAgent => r#"{"agent_id":"a"}"#,
                Method::RollbackAgent => r#"{"agent_id":"a","messages":0}"#,
                Method::RenameAgent => r#"{"agent_id":"a","new_agent_id":"b"}"#,
                Method::ImportAgent => MINIMAL_IMPORT,
                _ => "{}",
            };
            let answer = house.call_as(&caller, "/", &request(method.name(), params)).await;
            assert_eq!(answer, denied(text), "{name:?} called {}", method.name());
        }
        let answer = house.call_as(&caller, "a", &request("get_tokens", "{}")).await;
        assert_eq!(answer, denied(text), "{name:?} at a");
    }
    assert_eq!(house.agent_names().await, ["a"], "main was not created for a stranger");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_creates_becomes_the_parent() {
    let house = Fixture::new().await;
    let token = house.create_agent("lead", "trusted", None).await;
    let capability = house.dispatcher.capability_caller(token.as_bytes()).unwrap();
    for (name, parent, caller) in [
        ("a", "", capability.clone()),
        ("b", r#","parent_agent_id":"lead""#, capability.clone().acting_as("lead")),
        ("c", "", Caller::admin().acting_as("lead")),
    ] {
        let body = request("create_agent", &format!(r#"{{"agent_id":"{name}"{parent}}}"#));
        let (_, answer) = house.call_as(&caller, "/", &body).await;
        assert!(answer.contains(r#""token":"nxc_"#), "{answer}");
        assert_eq!(house.call_ok(name, "get_agent", "{}").await["agent"]["parent_agent_id"], "lead");
    }
    assert_eq!(
        house.call_ok("lead", "get_agent", "{}").await["children"],
        serde_json::json!(["a", "b", "c"])
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_not_ask_for_what_only_admins_may() {
    let house = Fixture::new().await;
    house.create_agent("lead", "trusted", None).await;
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
        let answer = house.call_as(&caller, "/", &request("create_agent", params)).await;
        assert_eq!(answer, denied(message), "{params}");
    }
    assert_eq!(house.agent_names().await, ["lead"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_the_tool_creates_nobody_also_when_an_admin_could_for_it() {
    let house = Fixture::new().await;
    let params = r#"{"agent_id":"lead","preset":"trusted","disable_tools":["agent_create"]}"#;
    house.request_create(params).await;
    let caller = Caller::admin().acting_as("lead");
    let answer = house.call_as(&caller, "/", &request("create_agent", "{}")).await;
    assert_eq!(answer, denied("Tool 'agent_create' is disabled by permission policy"));
    assert!(house.request_create(r#"{"parent_agent_id":"lead"}"#).await.1.contains(r#""result":"#));
}

#[tokio::test(start_paused = true)]
async fn a_capability_is_found_by_its_whole_text_and_dies_with_its_agent() {
    let house = Fixture::new().await;
    let token = house.create_agent("a", "sandboxed", None).await;
    for wrong in
        ["", "nxc_", &token[..token.len() - 1], &format!("{token} "), &token.to_lowercase(), &token[4..]]
    {
        assert!(house.dispatcher.capability_caller(wrong.as_bytes()).is_none(), "{wrong:?}");
    }
    let caller = house.dispatcher.capability_caller(token.as_bytes()).unwrap();
    let gone = house.call_as(&caller, "/", &request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    assert_eq!(gone, result(r#"{"success":true,"agent_id":"a"}"#));
    assert!(house.dispatcher.capability_caller(token.as_bytes()).is_none());
    let second = house.create_agent("a", "sandboxed", None).await;
    assert_ne!(second, token);
    assert!(
        house.dispatcher.capability_caller(token.as_bytes()).is_none(),
        "the next of that name is another"
    );
    let late = house.call_as(&caller, "a", &request("get_tokens", "{}")).await;
    assert_eq!(late, denied("Invalid API key"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_does_not_bring_main_into_being() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    let caller = Caller::admin().acting_as("a");
    for method in Method::ALL.iter().filter(|method| method.door() == Door::Agent) {
        let params = match method {
            Method::Send | Method::Steer => r#"{"content":"hi"}"#,
            Method::Cancel => r#"{"request_id":1}"#,
            _ => "{}",
        };
        let answer = house.call_as(&caller, "/", &request(method.name(), params)).await;
        let text = format!("Agent 'a' is not authorized to call {} on 'main'", method.name());
        assert_eq!(answer, denied(&text));
    }
    assert_eq!(house.agent_names().await, ["a"]);
}
