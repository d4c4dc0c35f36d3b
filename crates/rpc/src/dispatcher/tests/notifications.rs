//! Notifications: a request without an id, or with a null id, is executed and gets no response.

use super::*;

const NO_RESPONSE: (ResponseKind, String) = (ResponseKind::Notification, String::new());

/// The same notification without an id and with a null one.
fn both_forms(method: &str, params: &str) -> [String; 2] {
    ["", r#","id":null"#]
        .map(|id| format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}{id}}}"#))
}

#[tokio::test(start_paused = true)]
async fn notification_is_executed_without_response() {
    let fixture = Fixture::new().await;
    for (index, body) in both_forms("create_agent", "{}").iter().enumerate() {
        assert_eq!(fixture.call_daemon(body).await, NO_RESPONSE);
        assert_eq!(fixture.agent_names().await.len(), index + 1);
    }
    for body in both_forms("send", r#"{"content":"hi"}"#) {
        assert_eq!(fixture.call_agent("00000001", &body).await, NO_RESPONSE);
    }
    let (_, context) = fixture.call_agent("00000001", &request("get_context", "{}")).await;
    assert!(context.contains(r#""message_count":4"#), "{context}");
    for (body, left) in both_forms("destroy_agent", r#"{"agent_id":"00000001"}"#).iter().zip([1, 1]) {
        assert_eq!(fixture.call_daemon(body).await, NO_RESPONSE);
        assert_eq!(fixture.agent_names().await.len(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_notification_has_no_response() {
    let fixture = Fixture::with_limits(Limits { agents_max: 1, ..Limits::default() }).await;
    fixture.create_agents(&["a"]).await;
    let failing = [
        ("no_such_method", "{}"),
        ("create_agent", r#"{"agent_id":"a"}"#),
        ("create_agent", r#"{"agent_id":"b"}"#),
        ("create_agent", r#"{"agent_id":5}"#),
        ("create_agent", r#"{"agent_id":".."}"#),
        ("destroy_agent", "{}"),
        ("list_agents", r#"{"more":1}"#),
        ("send", r#"{"content":"hi"}"#),
    ];
    for (method, params) in failing {
        for body in both_forms(method, params) {
            assert_eq!(fixture.call_daemon(&body).await, NO_RESPONSE, "{body}");
        }
    }
    for body in both_forms("send", r#"{"content":"fail"}"#) {
        assert_eq!(fixture.call_agent("a", &body).await, NO_RESPONSE);
    }
    let denied = Caller::admin().acting_as("a");
    for body in both_forms("shutdown_server", "{}") {
        assert_eq!(fixture.call_as(&denied, "/", &body).await, NO_RESPONSE);
    }
    assert!(fixture.pool.stop_requested().now_or_never().is_none(), "a denied call has no effect");
    fixture.entropy.set_panics(true);
    for body in both_forms("create_agent", "{}") {
        assert_eq!(fixture.call_daemon(&body).await, NO_RESPONSE);
    }
    assert_eq!(fixture.agent_names().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_request_is_answered_with_null_id() {
    let fixture = Fixture::new().await;
    for body in ["{", "[]", r#"{"method":"list_agents"}"#, r#"{"jsonrpc":"2.0","method":"x","params":[]}"#] {
        let (kind, response) = fixture.call_daemon(body).await;
        assert_eq!(kind, ResponseKind::Refused);
        assert!(response.starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32"#), "{response}");
    }
}
