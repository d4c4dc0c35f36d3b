//! Request envelopes: valid and invalid requests, methods per door, and ids echoed unchanged.

use nexus3_protocol::Method;

use super::*;

#[tokio::test(start_paused = true)]
async fn response_id_equals_request_id_byte_for_byte() {
    let fixture = Fixture::new().await;
    let ids = [
        "1",
        "0",
        "-0",
        "-7",
        "123456789012345678901234567890",
        r#""""#,
        r#""a""#,
        r#""null""#,
        r#""\u0041\/\n\"\ud83d\ude00""#,
        "\"\u{e9}\u{1f600}\"",
    ];
    for id in ids {
        for (method, outcome) in [("list_agents", r#""result":{"#), ("no_such", r#""error":{"code":-32601"#)]
        {
            let body = format!(r#" {{ "id" : {id} , "method":"{method}","jsonrpc":"2.0"}} "#);
            let (kind, response) = fixture.call_daemon(&body).await;
            assert_eq!(kind, ResponseKind::Completed, "{id}");
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}"#);
            assert!(response.starts_with(&expected), "{expected} does not start {response}");
        }
        let (kind, response) =
            fixture.call_daemon(&format!(r#"{{"jsonrpc":"1.0","method":"x","id":{id}}}"#)).await;
        assert_eq!(kind, ResponseKind::Refused);
        assert!(response.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#)), "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_request_is_refused_and_changes_nothing() {
    let fixture = Fixture::new().await;
    let cases = [
        ("", -32700),
        ("{", -32700),
        ("\u{0}", -32700),
        (r#"{"jsonrpc":"2.0","method":"create_agent","id":1"#, -32700),
        (r#"{"jsonrpc":"2.0","method":"create_agent","id":1}}"#, -32700),
        (r#"{"jsonrpc":"2.0","method":"create_agent","id":1,}"#, -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","method":"create_agent","id":1}]"#, -32600),
        (r#""create_agent""#, -32600),
        ("1", -32600),
        ("null", -32600),
        ("{}", -32600),
        (r#"{"method":"create_agent","id":1}"#, -32600),
        (r#"{"jsonrpc":2.0,"method":"create_agent","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":5,"id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"create_agent","params":[],"id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"create_agent","params":"x","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"create_agent","id":1.5}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"create_agent","id":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"create_agent","id":1,"more":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"create_agent","method":"send","id":1}"#, -32600),
        (
            r#"{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"a","agent_id":"b"},"id":1}"#,
            -32600,
        ),
        (r#"{"jsonrpc":"2.0","method":"send","params":{"content":"a","content":"b"},"id":1}"#, -32600),
    ];
    for (body, code) in cases {
        let (kind, response) = fixture.call_daemon(body).await;
        assert_eq!(kind, ResponseKind::Refused, "{body}");
        assert!(response.contains(&format!(r#""error":{{"code":{code},"message":""#)), "{body}: {response}");
        assert_eq!(fixture.agent_names().await, Vec::<String>::new(), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_utf8_is_refused() {
    let fixture = Fixture::new().await;
    let body =
        b"{\"jsonrpc\":\"2.0\",\"method\":\"create_agent\",\"params\":{\"agent_id\":\"\xff\"},\"id\":1}";
    let response = fixture
        .dispatcher
        .respond(&fixture.dispatcher.daemon_target(), &Caller::admin(), body, EnvelopeRules::HTTP)
        .await;
    assert_eq!(response.kind, ResponseKind::Refused);
    assert_eq!(fixture.agent_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn truncated_request_does_nothing() {
    let fixture = Fixture::new().await;
    let body = request("create_agent", r#"{"agent_id":"cut","system_prompt":"Be bri\u00e9f."}"#);
    for end in 0..body.len() {
        let target = fixture.dispatcher.daemon_target();
        let response = fixture
            .dispatcher
            .respond(&target, &Caller::admin(), &body.as_bytes()[..end], EnvelopeRules::HTTP)
            .await;
        assert_eq!(response.kind, ResponseKind::Refused, "cut at {end}");
        assert_eq!(fixture.agent_names().await, Vec::<String>::new(), "cut at {end}");
    }
    fixture.call_daemon(&body).await;
    assert_eq!(fixture.agent_names().await, ["cut"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_method_is_named_and_shortened() {
    let fixture = Fixture::new().await;
    for name in ["nope", "Send", "send ", "rpc.", "__proto__"] {
        let response = fixture.call_daemon(&request(name, "{}")).await;
        assert_eq!(response, error(-32601, &format!("Method not found: {name}")));
    }
    let (_, response) = fixture.call_daemon(&request(&"n".repeat(100_000), "{}")).await;
    assert!(response.len() < 400, "{} bytes", response.len());
    assert_eq!(fixture.agent_names().await, Vec::<String>::new(), "no agent was created");
}

#[tokio::test(start_paused = true)]
async fn agent_door_rejects_daemon_methods() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    for method in Method::ALL.iter().filter(|method| method.door() == Door::Daemon) {
        let response = fixture.call_agent("a", &request(method.name(), r#"{"agent_id":"a"}"#)).await;
        assert_eq!(response, error(-32601, &format!("Method not found: {}", method.name())));
    }
    assert_eq!(fixture.agent_names().await, ["a"]);
    assert!(fixture.pool.stop_requested().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn daemon_door_routes_agent_methods_to_main() {
    let fixture = Fixture::new().await;
    fixture.call_daemon(&request("list_agents", "{}")).await;
    assert_eq!(fixture.agent_names().await, Vec::<String>::new(), "main is not created by daemon methods");
    let (_, response) = fixture.call_daemon(&request("get_messages", "{}")).await;
    assert!(response.contains(r#""agent_id":"main","total":0"#), "{response}");
    fixture.call_daemon(&request("send", r#"{"content":"hi"}"#)).await;
    assert_eq!(fixture.agent_names().await, ["main"]);
    let (_, response) = fixture.call_agent("main", &request("get_context", "{}")).await;
    assert!(response.contains(r#""message_count":2"#), "both doors reach the same agent: {response}");
}

#[tokio::test]
async fn target_needs_a_valid_and_existing_agent() {
    let fixture = Fixture::new().await;
    let target_error = |name: &str| fixture.dispatcher.agent_target(name, &Caller::admin()).err();
    for name in ["", "..", "a/b", "a b", "%61", "\u{e4}", "-a", "a\n"] {
        assert_eq!(target_error(name), Some(TargetError::InvalidName), "{name:?}");
    }
    assert_eq!(target_error("missing"), Some(TargetError::AgentNotFound));
    assert_eq!(target_error("main"), Some(TargetError::AgentNotFound), "resolving a target creates no agent");
}
