//! Who may call what: the holder of the token everything, an agent only its own.

use nexus3_protocol::Method;

use super::*;

const DENIED: &str = r#","data":{"kind":"permission_denied"}"#;

#[tokio::test(start_paused = true)]
async fn an_agent_may_not_call_for_the_daemon_or_for_others() {
    let house = House::new();
    house.agents(&["a", "b", "main"]);
    let caller = Caller::narrowed_to("a");
    let cases = [
        ("/", "create_agent", r#"{"agent_id":"c"}"#, "Agent 'a' is not authorized to call create_agent"),
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
        let answer = house.asked_by(&caller, door, &request(method, params)).await;
        assert_eq!(answer, error_with(-32602, message, DENIED), "{method} at {door}");
    }
    assert_eq!(house.names(), ["a", "b", "main"]);
    assert!(house.pool.list().iter().all(|agent| agent.message_count == 0 && !agent.should_shutdown));
    assert!(house.pool.stop_requested().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_call_its_own_methods_and_end_itself() {
    let house = House::new();
    house.agents(&["a", "b"]);
    let caller = Caller::narrowed_to("a");
    for (method, params) in [
        ("send", r#"{"content":"hi"}"#),
        ("cancel", r#"{"request_id":1}"#),
        ("get_tokens", "{}"),
        ("get_context", "{}"),
        ("get_messages", "{}"),
        ("shutdown", "{}"),
    ] {
        let (_, answer) = house.asked_by(&caller, "a", &request(method, params)).await;
        assert!(answer.contains(r#""result":"#), "{method}: {answer}");
    }
    let (_, listed) = house.asked_by(&caller, "/", &request("list_agents", "{}")).await;
    assert!(listed.contains(r#""agent_id":"a""#) && !listed.contains(r#""agent_id":"b""#), "{listed}");
    let (_, document) = house.asked_by(&caller, "/", &request("rpc.discover", "{}")).await;
    assert!(document.contains(r#""result":"#));
    let destroyed = house.asked_by(&caller, "/", &request("destroy_agent", r#"{"agent_id":"a"}"#)).await;
    assert_eq!(destroyed, result(r#"{"success":true,"agent_id":"a"}"#));
    assert_eq!(house.names(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_no_agent_gives_no_right_at_all() {
    let house = House::new();
    house.agents(&["a"]);
    let text = "X-Nexus-Agent names no agent that exists";
    for name in ["nobody", "", "..", "a ", "A", "main", "a\u{0}"] {
        let caller = Caller::narrowed_to(name);
        for method in Method::ALL {
            let params = match method {
                Method::Send => r#"{"content":"hi"}"#,
                Method::Cancel => r#"{"request_id":1}"#,
                Method::DestroyAgent => r#"{"agent_id":"a"}"#,
                _ => "{}",
            };
            let answer = house.asked_by(&caller, "/", &request(method.name(), params)).await;
            assert_eq!(answer, error_with(-32602, text, DENIED), "{name:?} called {}", method.name());
        }
        let answer = house.asked_by(&caller, "a", &request("get_tokens", "{}")).await;
        assert_eq!(answer, error_with(-32602, text, DENIED), "{name:?} at a");
    }
    assert_eq!(house.names(), ["a"], "main was not created for a stranger");
}
