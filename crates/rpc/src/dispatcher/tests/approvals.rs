//! `list_approvals` and `answer_approval` on the wire, and approval rules in parameters.

use serde_json::json;

use super::*;

/// An agent that asks before it reads, and the response of its turn.
async fn ask(fixture: &Fixture) -> (tokio::task::JoinHandle<(ResponseKind, String)>, String) {
    let (_, created) = fixture.request_create(r#"{"agent_id":"a","ask":["read_file"]}"#).await;
    assert!(created.contains(r#""result":"#), "{created}");
    let dispatcher = fixture.dispatcher.clone();
    let sending = tokio::spawn(async move {
        let target = dispatcher.agent_target("a", &Caller::admin()).unwrap();
        let body = request("send", r#"{"content":"read x"}"#);
        let response =
            dispatcher.respond(&target, &Caller::admin(), body.as_bytes(), EnvelopeRules::HTTP).await;
        (response.kind, String::from_utf8(response.body).unwrap())
    });
    // The paused clock advances only when every task waits.
    tokio::time::sleep(std::time::Duration::from_nanos(1)).await;
    let list = fixture.call_ok("/", "list_approvals", "{}").await;
    let approval = &list["approvals"][0];
    assert_eq!(
        (&approval["agent_id"], &approval["tool"], &approval["effects"], &approval["ancestors"]),
        (&json!("a"), &json!("fs.read_file"), &json!(["use fs.read_file"]), &json!([]))
    );
    assert_eq!(approval["reason"], "rule 'fs.read_file' of agent 'a' asks for it");
    assert_eq!(approval["asked_at"], "2024-01-15T10:30:00.000000Z");
    assert_eq!(approval["expires_at"], "2024-01-15T10:40:00.000000Z");
    (sending, approval["approval_id"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn approval_is_listed_and_answered_with_a_rule() {
    let fixture = Fixture::new().await;
    let (sending, id) = ask(&fixture).await;
    for (filter, count) in [(r#"{"agent_id":"a"}"#, 1), (r#"{"agent_id":"b"}"#, 0)] {
        let list = fixture.call_ok("/", "list_approvals", filter).await;
        assert_eq!(list["approvals"].as_array().unwrap().len(), count, "{filter}");
    }
    let params = format!(r#"{{"approval_id":"{id}","answer":"allow","scope":"agent","rule":"read_file"}}"#);
    let answered = fixture.call_ok("/", "answer_approval", &params).await;
    let rule = json!({
        "action": "allow", "rule": "fs.read_file", "scope": "agent", "granted_by": "admin",
    });
    assert_eq!(answered, json!({ "approval_id": id, "answer": "allow", "rule": rule }));
    let (_, response) = sending.await.unwrap();
    assert!(response.contains(r#""result":"#), "{response}");
    assert_eq!(fixture.call_ok("/", "list_approvals", "{}").await, json!({ "approvals": [] }));
    let rules = fixture.call_ok("a", "get_permissions", "{}").await["rules"].take();
    assert_eq!(rules.as_array().unwrap()[1], rule);
    let (_, late) = fixture.call_daemon(&request("answer_approval", &params)).await;
    assert!(late.contains("was answered already: allowed by admin"), "{late}");
}

#[tokio::test(start_paused = true)]
async fn invalid_answers_are_refused_and_change_nothing() {
    let fixture = Fixture::new().await;
    let (_sending, id) = ask(&fixture).await;
    for (rest, text) in [
        (r#""answer":"maybe""#, "answer must be one of 'allow', 'deny'"),
        (r#""answer":"allow","scope":"all""#, "scope must be one of 'once', 'agent', 'subtree'"),
        (r#""answer":"allow","rule":"run:""#, "rule 'run:' is invalid: the program is missing"),
        (r#""answer":"allow","rule":"fs.read_file""#, "a rule needs scope 'agent' or 'subtree'"),
        (
            r#""answer":"allow","scope":"agent","rule":"host:*""#,
            "rule 'host:*' does not match what is asked: use fs.read_file",
        ),
    ] {
        let body = request("answer_approval", &format!(r#"{{"approval_id":"{id}",{rest}}}"#));
        let (_, response) = fixture.call_daemon(&body).await;
        assert!(response.contains("-32602") && response.contains(text), "{rest}: {response}");
    }
    assert_eq!(fixture.call_ok("/", "list_approvals", "{}").await["approvals"][0]["approval_id"], id);
}

#[tokio::test(start_paused = true)]
async fn invalid_rules_of_agents_are_refused() {
    let fixture = Fixture::new().await;
    for list in ["ask", "allow", "deny"] {
        let (_, response) = fixture.request_create(&format!(r#"{{"{list}":["read:relative"]}}"#)).await;
        let text =
            format!("{list}: rule 'read:relative' is invalid: the path is not absolute and normalized");
        assert!(response.contains(&text), "{response}");
    }
    assert_eq!(fixture.agent_names().await, Vec::<String>::new());
}
