//! Agent tools: their calls to the peers, and the results they return.

use agent::ToolOutcome;
use agent::outside::NewPeer;
use agent::permission::{Grant, NameSet, Targets};
use agent::{AgentId, RequestId};
use serde_json::{Value, json};

use crate::fixture::{Fixture, done, failed};

async fn check(tool: &str, arguments: Value, expected: ToolOutcome, calls: &[&str]) {
    let fixture = Fixture::confined_to("/nowhere");
    assert_eq!(fixture.call(tool, &arguments).await, expected, "{tool} {arguments}");
    assert_eq!(*fixture.peers.calls.lock().unwrap(), calls, "{tool} {arguments}");
}

#[tokio::test]
async fn send_waits_by_default() {
    let reply = done(r#"{"content":"hello","request_id":"r1"}"#);
    let arguments = json!({"agent_id": "child", "content": "x"});
    check("agent_send", arguments, reply.clone(), &["send child x true"]).await;
    let arguments = json!({"agent_id": "boss", "content": "x", "wait": true});
    check("nexus_send", arguments, reply, &["send boss x true"]).await;
    let queued = done(r#"{"request_id":"r1","status":"queued"}"#);
    let arguments = json!({"agent_id": "child", "content": "x", "wait": false});
    check("agent_send", arguments, queued, &["send child x false"]).await;
    let halted = done(r#"{"cancelled":true,"content":"hello","halted":"iteration_limit","request_id":"r1"}"#);
    check("agent_send", json!({"agent_id": "child", "content": "halt"}), halted, &["send child halt true"])
        .await;
}

#[tokio::test]
async fn send_rejects_the_calling_agent_as_target() {
    let rejection = failed("agent_send cannot target the current agent");
    check("agent_send", json!({"agent_id": "me", "content": "x"}), rejection, &[]).await;
}

#[tokio::test]
async fn status_and_list_return_the_same_fields() {
    let child = concat!(
        r#"{"agent_id":"child","halted":null,"message_count":3,"parent_agent_id":"me","#,
        r#""preset":"sandboxed","queued":2,"working":true}"#
    );
    let me = child
        .replace(r#""agent_id":"child""#, r#""agent_id":"me""#)
        .replace(r#""me","preset"#, r#"null,"preset"#);
    check("agent_status", json!({"agent_id": "child"}), done(child), &["status child"]).await;
    check("nexus_status", json!({"agent_id": "child"}), done(child), &["status child"]).await;
    check("agent_list", json!({}), done(format!(r#"{{"agents":[{me},{child}]}}"#)), &[]).await;
}

#[tokio::test]
async fn cancel_accepts_text_and_number_request_ids() {
    let cancelled = |id: &str| done(format!(r#"{{"cancelled":true,"request_id":{id}}}"#));
    let arguments = json!({"agent_id": "child", "request_id": "5"});
    check("agent_cancel", arguments, cancelled("\"5\""), &[r#"cancel child Text("5")"#]).await;
    let arguments = json!({"agent_id": "child", "request_id": 5});
    check("nexus_cancel", arguments, cancelled("5"), &["cancel child Number(5)"]).await;
    let none = done(r#"{"cancelled":false,"reason":"not_found_or_completed","request_id":"gone"}"#);
    let arguments = json!({"agent_id": "child", "request_id": "gone"});
    check("agent_cancel", arguments, none, &[r#"cancel child Text("gone")"#]).await;
    for bad in [json!(1.5), json!(null), json!([1])] {
        let reply = failed("Invalid input: field `request_id`: expected a string or an integer");
        check("agent_cancel", json!({"agent_id": "child", "request_id": bad}), reply, &[]).await;
    }
}

#[tokio::test]
async fn destroy_reports_whether_the_agent_existed() {
    let destroyed = done(r#"{"agent_id":"child","success":true}"#);
    check("agent_destroy", json!({"agent_id": "child"}), destroyed, &["destroy child"]).await;
    let none = done(r#"{"agent_id":"child-unknown","success":false}"#);
    check("nexus_destroy", json!({"agent_id": "child-unknown"}), none, &["destroy child-unknown"]).await;
}

#[tokio::test]
async fn faults_retain_their_text_and_denials_their_kind() {
    for (tool, more) in [
        ("agent_send", json!({"content": "x"})),
        ("agent_status", json!({})),
        ("agent_cancel", json!({"request_id": 1})),
        ("agent_destroy", json!({})),
        ("agent_create", json!({})),
    ] {
        let call = async |id: &str| {
            let mut arguments = more.clone();
            arguments["agent_id"] = json!(id);
            Fixture::confined_to("/nowhere").call(tool, &arguments).await
        };
        assert_eq!(call("child-gone").await, failed("Agent not found: child-gone"), "{tool}");
        let denied = ToolOutcome::Denied("Permission denied: child-closed is closed".to_owned());
        assert_eq!(call("child-closed").await, denied, "{tool}");
        assert_eq!(call("").await, failed("Invalid input: Agent ID cannot be empty"), "{tool}");
        let reply = r#"Invalid input: Invalid agent ID "a..b": contains forbidden pattern '..'"#;
        assert_eq!(call("a..b").await, failed(reply), "{tool}");
    }
}

#[tokio::test]
async fn create_passes_all_arguments_on() {
    let fixture = Fixture::confined_to("/nowhere");
    let arguments = json!({
        "agent_id": "child-1", "preset": "reader", "system_prompt": "be kind", "disable_tools": ["echo"], "tools": ["echo", "get_time"], "allowed_commands": ["cargo"],
        "allowed_hosts": ["docs.rs"], "denied_hosts": ["x.org"],
        "cwd": "sub", "allowed_write_paths": ["out"], "model": "m", "initial_message": "go",
        "wait_for_initial_response": true,
    });
    let response = r#"{"content":"hello","request_id":"r1"}"#;
    let expected = format!(
        r#"{{"agent_id":"child-1","initial_request_id":7,"response":{response},"url":"/agent/child-1"}}"#
    );
    assert_eq!(fixture.call("agent_create", &arguments).await, done(expected));
    let new = NewPeer {
        id: Some(AgentId::parse("child-1").unwrap()),
        preset: Some("reader".into()),
        system_prompt: Some("be kind".into()),
        tools: Some(vec!["echo".into(), "get_time".into()]),
        disable_tools: vec!["echo".into()],
        commands: Some(vec!["cargo".into()]),
        hosts: Some(vec!["docs.rs".to_owned()]),
        denied_hosts: vec!["x.org".to_owned()],
        cwd: Some("sub".into()),
        write_paths: Some(vec!["out".into()]),
        model: Some("m".into()),
        initial_message: Some("go".into()),
        wait: true,
    };
    assert_eq!(*fixture.peers.created.lock().unwrap(), [new]);
}

#[tokio::test]
async fn create_reports_the_result_of_the_first_message() {
    let url = r#""url":"/agent/made-up""#;
    for (arguments, expected) in [
        (json!({}), format!(r#"{{"agent_id":"made-up",{url}}}"#)),
        (
            json!({"initial_message": "go"}),
            format!(r#"{{"agent_id":"made-up","initial_request_id":7,"initial_status":"queued",{url}}}"#),
        ),
        (
            json!({"initial_message": "fail", "wait_for_initial_response": true}),
            format!(
                r#"{{"agent_id":"made-up","initial_request_id":7,"response":{{"error":"the model failed"}},{url}}}"#
            ),
        ),
    ] {
        assert_eq!(Fixture::confined_to("/nowhere").call("nexus_create", &arguments).await, done(expected));
    }
    let fixture = Fixture::confined_to("/nowhere");
    fixture.call_text("agent_create", "").await;
    assert_eq!(*fixture.peers.created.lock().unwrap(), [NewPeer::default()]);
}

#[tokio::test]
async fn unknown_preset_is_named_in_the_error() {
    let reply = failed("Invalid input: unknown preset 'root'");
    check("agent_create", json!({"preset": "root"}), reply, &[]).await;
}

#[tokio::test]
async fn judge_checks_the_target_of_a_call() {
    let grant = Grant { targets: Targets::parent(), create: NameSet::none(), ..Grant::everything() };
    let fixture = Fixture::with_grant("/nowhere", grant);
    for (tool, arguments) in [
        ("agent_send", json!({"agent_id": "child", "content": "x"})),
        ("agent_status", json!({"agent_id": "child"})),
        ("agent_cancel", json!({"agent_id": "stranger", "request_id": 1})),
        ("agent_destroy", json!({"agent_id": "me"})),
        ("agent_create", json!({})),
    ] {
        let outcome = fixture.call(tool, &arguments).await;
        assert!(matches!(outcome, ToolOutcome::Denied(_)), "{tool}: {outcome:?}");
    }
    assert!(fixture.peers.calls.lock().unwrap().is_empty());
    assert_ne!(RequestId::Number(1), RequestId::Text("1".into()));
}
