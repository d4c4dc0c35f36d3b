//! Notifications: a request without an id, or with a null one, is done and never answered.

use super::*;

const SILENT: (ResponseKind, String) = (ResponseKind::Notification, String::new());

/// The same notification without an id and with a null one.
fn both(method: &str, params: &str) -> [String; 2] {
    ["", r#","id":null"#]
        .map(|id| format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}{id}}}"#))
}

#[tokio::test(start_paused = true)]
async fn a_notification_is_done_and_not_answered() {
    let house = House::new().await;
    for (place, body) in both("create_agent", "{}").iter().enumerate() {
        assert_eq!(house.at_daemon(body).await, SILENT);
        assert_eq!(house.names().await.len(), place + 1);
    }
    for body in both("send", r#"{"content":"hi"}"#) {
        assert_eq!(house.at_agent("00000001", &body).await, SILENT);
    }
    let (_, context) = house.at_agent("00000001", &request("get_context", "{}")).await;
    assert!(context.contains(r#""message_count":4"#), "{context}");
    for (body, left) in both("destroy_agent", r#"{"agent_id":"00000001"}"#).iter().zip([1, 1]) {
        assert_eq!(house.at_daemon(body).await, SILENT);
        assert_eq!(house.names().await.len(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_goes_wrong_is_silent_too() {
    let house = House::with(Limits { agents_max: 1, ..Limits::default() }).await;
    house.agents(&["a"]).await;
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
        for body in both(method, params) {
            assert_eq!(house.at_daemon(&body).await, SILENT, "{body}");
        }
    }
    for body in both("send", r#"{"content":"fail"}"#) {
        assert_eq!(house.at_agent("a", &body).await, SILENT);
    }
    let denied = Caller::admin().acting_as("a");
    for body in both("shutdown_server", "{}") {
        assert_eq!(house.asked_by(&denied, "/", &body).await, SILENT);
    }
    assert!(house.pool.stop_requested().now_or_never().is_none(), "it was not done either");
    house.entropy.panics.store(true, Ordering::Relaxed);
    for body in both("create_agent", "{}") {
        assert_eq!(house.at_daemon(&body).await, SILENT);
    }
    assert_eq!(house.names().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_request_is_answered_with_a_null_id() {
    let house = House::new().await;
    for body in ["{", "[]", r#"{"method":"list_agents"}"#, r#"{"jsonrpc":"2.0","method":"x","params":[]}"#] {
        let (kind, answer) = house.at_daemon(body).await;
        assert_eq!(kind, ResponseKind::Refused);
        assert!(answer.starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32"#), "{answer}");
    }
}
