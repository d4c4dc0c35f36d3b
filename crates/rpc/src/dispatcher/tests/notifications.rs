//! Notifications: a request without an id, or with a null one, is done and never answered.

use super::*;

const NO_RESPONSE: (ResponseKind, String) = (ResponseKind::Notification, String::new());

/// The same notification without an id and with a null one.
fn both_forms(method: &str, params: &str) -> [String; 2] {
    ["", r#","id":null"#]
        .map(|id| format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}{id}}}"#))
}

#[tokio::test(start_paused = true)]
async fn a_notification_is_done_and_not_answered() {
    let house = Fixture::new().await;
    for (place, body) in both_forms("create_agent", "{}").iter().enumerate() {
        assert_eq!(house.call_daemon(body).await, NO_RESPONSE);
        assert_eq!(house.agent_names().await.len(), place + 1);
    }
    for body in both_forms("send", r#"{"content":"hi"}"#) {
        assert_eq!(house.call_agent("00000001", &body).await, NO_RESPONSE);
    }
    let (_, context) = house.call_agent("00000001", &request("get_context", "{}")).await;
    assert!(context.contains(r#""message_count":4"#), "{context}");
    for (body, left) in both_forms("destroy_agent", r#"{"agent_id":"00000001"}"#).iter().zip([1, 1]) {
        assert_eq!(house.call_daemon(body).await, NO_RESPONSE);
        assert_eq!(house.agent_names().await.len(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_goes_wrong_is_silent_too() {
    let house = Fixture::with_limits(Limits { agents_max: 1, ..Limits::default() }).await;
    house.create_agents(&["a"]).await;
    let wrong = [
        ("no_such_method", "{}"),
        ("create_agent", r#"{"agent_id":"a"}"#),
        ("create_agent", r#"{"agent_id":"b"}"#),
        ("create_agent", r#"{"agent_id":5}"#),
        ("create_agent", r#"{"agent_id":".."}"#),
        ("destroy_agent", "{}"),
        ("list_agents", r#"{"more":1}"#),
        ("send", r#"{"content":"hi"}"#),
    ];
    for (method, params) in wrong {
        for body in both_forms(method, params) {
            assert_eq!(house.call_daemon(&body).await, NO_RESPONSE, "{body}");
        }
    }
    for body in both_forms("send", r#"{"content":"fail"}"#) {
        assert_eq!(house.call_agent("a", &body).await, NO_RESPONSE);
    }
    let denied = Caller::admin().acting_as("a");
    for body in both_forms("shutdown_server", "{}") {
        assert_eq!(house.call_as(&denied, "/", &body).await, NO_RESPONSE);
    }
    assert!(house.pool.stop_requested().now_or_never().is_none(), "it was not done either");
    house.entropy.panics.store(true, Ordering::Relaxed);
    for body in both_forms("create_agent", "{}") {
        assert_eq!(house.call_daemon(&body).await, NO_RESPONSE);
    }
    assert_eq!(house.agent_names().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_request_is_answered_with_a_null_id() {
    let house = Fixture::new().await;
    for body in ["{", "[]", r#"{"method":"list_agents"}"#, r#"{"jsonrpc":"2.0","method":"x","params":[]}"#] {
        let (kind, answer) = house.call_daemon(body).await;
        assert_eq!(kind, ResponseKind::Refused);
        assert!(answer.starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32"#), "{answer}");
    }
}
