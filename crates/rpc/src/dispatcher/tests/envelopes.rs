//! What is a request and what is not, which door knows which method, and ids that come back as they were sent.

use nexus3_protocol::Method;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_id_comes_back_byte_for_byte() {
    let house = Fixture::new().await;
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
            let (kind, answer) = house.call_daemon(&body).await;
            assert_eq!(kind, ResponseKind::Completed, "{id}");
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}"#);
            assert!(answer.starts_with(&expected), "{expected} does not start {answer}");
        }
        let (kind, answer) =
            house.call_daemon(&format!(r#"{{"jsonrpc":"1.0","method":"x","id":{id}}}"#)).await;
        assert_eq!(kind, ResponseKind::Refused);
        assert!(answer.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#)), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_request_is_refused_and_leaves_nothing_behind() {
    let house = Fixture::new().await;
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
        let (kind, answer) = house.call_daemon(body).await;
        assert_eq!(kind, ResponseKind::Refused, "{body}");
        assert!(answer.contains(&format!(r#""error":{{"code":{code},"message":""#)), "{body}: {answer}");
        assert_eq!(house.agent_names().await, Vec::<String>::new(), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_text_are_refused() {
    let house = Fixture::new().await;
    let body =
        b"{\"jsonrpc\":\"2.0\",\"method\":\"create_agent\",\"params\":{\"agent_id\":\"\xff\"},\"id\":1}";
    let answer = house.dispatcher.respond(house.dispatcher.daemon_target(), &Caller::admin(), body).await;
    assert_eq!(answer.kind, ResponseKind::Refused);
    assert_eq!(house.agent_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_request_cut_anywhere_does_nothing() {
    let house = Fixture::new().await;
    let body = request("create_agent", r#"{"agent_id":"cut","system_prompt":"Be bri\u00e9f."}"#);
    for end in 0..body.len() {
        let entrance = house.dispatcher.daemon_target();
        let answer = house.dispatcher.respond(entrance, &Caller::admin(), &body.as_bytes()[..end]).await;
        assert_eq!(answer.kind, ResponseKind::Refused, "cut at {end}");
        assert_eq!(house.agent_names().await, Vec::<String>::new(), "cut at {end}");
    }
    house.call_daemon(&body).await;
    assert_eq!(house.agent_names().await, ["cut"]);
}

#[tokio::test(start_paused = true)]
async fn a_method_that_is_not_there_is_named_in_short() {
    let house = Fixture::new().await;
    for name in ["nope", "Send", "send ", "rpc.", "__proto__"] {
        let answer = house.call_daemon(&request(name, "{}")).await;
        assert_eq!(answer, error(-32601, &format!("Method not found: {name}")));
    }
    let (_, answer) = house.call_daemon(&request(&"n".repeat(100_000), "{}")).await;
    assert!(answer.len() < 400, "{} bytes", answer.len());
    assert_eq!(house.agent_names().await, Vec::<String>::new(), "nobody was created to find that out");
}

#[tokio::test(start_paused = true)]
async fn an_agents_door_knows_no_method_of_the_daemon() {
    let house = Fixture::new().await;
    house.create_agents(&["a"]).await;
    for method in Method::ALL.iter().filter(|method| method.door() == Door::Daemon) {
        let answer = house.call_agent("a", &request(method.name(), r#"{"agent_id":"a"}"#)).await;
        assert_eq!(answer, error(-32601, &format!("Method not found: {}", method.name())));
    }
    assert_eq!(house.agent_names().await, ["a"]);
    assert!(house.pool.stop_requested().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_daemons_door_hands_agent_methods_to_main_created_on_first_use() {
    let house = Fixture::new().await;
    house.call_daemon(&request("list_agents", "{}")).await;
    assert_eq!(house.agent_names().await, Vec::<String>::new(), "nobody has used it yet");
    let (_, answer) = house.call_daemon(&request("get_messages", "{}")).await;
    assert!(answer.contains(r#""agent_id":"main","total":0"#), "{answer}");
    house.call_daemon(&request("send", r#"{"content":"hi"}"#)).await;
    assert_eq!(house.agent_names().await, ["main"]);
    let (_, answer) = house.call_agent("main", &request("get_context", "{}")).await;
    assert!(answer.contains(r#""message_count":2"#), "both doors lead to the same agent: {answer}");
}

#[tokio::test]
async fn there_is_no_door_without_an_agent() {
    let house = Fixture::new().await;
    let closed = |name: &str| house.dispatcher.agent_target(name).err();
    for name in ["", "..", "a/b", "a b", "%61", "\u{e4}", "-a", "a\n"] {
        assert_eq!(closed(name), Some(TargetError::InvalidName), "{name:?}");
    }
    assert_eq!(closed("nobody"), Some(TargetError::AgentNotFound));
    assert_eq!(closed("main"), Some(TargetError::AgentNotFound), "a door does not create its agent");
}
