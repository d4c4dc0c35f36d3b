//! Batches: accepted only under the rules of a transport that allows them.

use super::*;

async fn respond(fixture: &Fixture, body: &str, rules: EnvelopeRules) -> (ResponseKind, String) {
    let target = fixture.dispatcher.daemon_target();
    let response = fixture.dispatcher.respond(&target, &Caller::admin(), body.as_bytes(), rules).await;
    (response.kind, String::from_utf8(response.body).unwrap())
}

const CREATE: &str = r#"{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"a"}}"#;
const UNKNOWN: &str = r#"{"jsonrpc":"2.0","method":"no_such_method","id":7}"#;

#[tokio::test(start_paused = true)]
async fn batch_is_refused_under_the_rules_of_http() {
    let fixture = Fixture::new().await;
    let (kind, body) = respond(&fixture, &format!("[{CREATE}]"), EnvelopeRules::HTTP).await;
    assert_eq!(kind, ResponseKind::Refused);
    assert!(body.contains("Request must be a JSON object"), "{body}");
    assert_eq!(fixture.agent_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn batch_is_answered_in_order_without_its_notifications() {
    let fixture = Fixture::new().await;
    let batch = format!(r#"[{CREATE},1,{UNKNOWN},{}]"#, request("list_agents", "{}"));
    let (kind, body) = respond(&fixture, &batch, EnvelopeRules::FULL).await;
    assert_eq!(kind, ResponseKind::Completed);
    let body: Value = serde_json::from_str(&body).unwrap();
    let ids: Vec<_> = body.as_array().unwrap().iter().map(|response| &response["id"]).collect();
    assert_eq!(ids, [&Value::Null, &Value::from(7), &Value::from(1)]);
    assert_eq!(body[0]["error"]["code"], -32600);
    assert_eq!(body[1]["error"]["code"], -32601);
    assert_eq!(body[2]["result"]["agents"][0]["agent_id"], "a", "the notification ran first");
}

#[tokio::test(start_paused = true)]
async fn batch_of_notifications_has_no_response() {
    let fixture = Fixture::new().await;
    let response = respond(&fixture, &format!("[{CREATE}]"), EnvelopeRules::FULL).await;
    assert_eq!(response, (ResponseKind::Notification, String::new()));
    assert_eq!(fixture.agent_names().await, ["a"]);
}
