//! Streamed sends, and sends with a request id.

use super::*;

const STREAMED: &str = "event: text_delta\n\
data: {\"kind\":\"text_delta\",\"journalled\":false,\"agent_id\":\"a\",\"request_id\":\"r\",\"turn\":1,\"text\":\"once \"}\n\n\
event: reasoning_delta\n\
data: {\"kind\":\"reasoning_delta\",\"journalled\":false,\"agent_id\":\"a\",\"request_id\":\"r\",\"turn\":1,\"text\":\"hm\"}\n\n\
event: text_delta\n\
data: {\"kind\":\"text_delta\",\"journalled\":false,\"agent_id\":\"a\",\"request_id\":\"r\",\"turn\":1,\"text\":\"upon\"}\n\n\
event: response\n\
data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":\"once upon\",\"request_id\":\"r\"}}\n\n";

const STORED_RESPONSE: &str = "event: response\n\
data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":\"as before\",\"request_id\":\"r\",\"halted\":\"budget\"}}\n\n";

const LAGGED: &str = "event: text_delta\n\
data: {\"kind\":\"text_delta\",\"journalled\":false,\"agent_id\":\"a\",\"request_id\":\"r\",\"turn\":1,\"text\":\"upon\"}\n\n\
event: response\n\
data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":\"once upon\",\"request_id\":\"r\"}}\n\n";

const WITH_NOTICES: &str = "id: 7\nevent: turn_begun\n\
data: {\"sequence\":7,\"agent_id\":\"a\",\"number\":3,\"at\":\"2026-11-16T02:00:00.000001Z\",\"kind\":\"turn_begun\",\"turn\":1}\n\n\
event: text_delta\n\
data: {\"kind\":\"text_delta\",\"journalled\":false,\"agent_id\":\"a\",\"request_id\":\"r\",\"turn\":1,\"text\":\"once \"}\n\n\
event: text_delta\n\
data: {\"kind\":\"text_delta\",\"journalled\":false,\"agent_id\":\"a\",\"request_id\":\"r\",\"turn\":1,\"text\":\"upon\"}\n\n\
event: response\n\
data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":\"\\n[Context compacted]\\n\\nonce [empty]upon[limit]\",\"request_id\":\"r\"}}\n\n";

const FAILED: &str = "event: response\n\
data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32603,\"message\":\"Provider failed\"}}\n\n";

#[tokio::test]
async fn streamed_send_prints_only_its_text() {
    let cases = [
        (STREAMED, "once upon\n"),
        (STORED_RESPONSE, "as before\n"),
        (LAGGED, "upon\nonce upon\n"),
        (WITH_NOTICES, "once upon[limit]\n"),
    ];
    for (stream, expected) in cases {
        let daemon = ScriptedDaemon::start(&[("send", Reply::Stream(stream))]);
        let outcome = rpc(&daemon, &["send", "a", "hello", "--stream"]).await;
        assert_eq!((outcome.code, outcome.output.as_str()), (0, expected), "{}", outcome.errors);
        assert!(daemon.received()[0].head.to_ascii_lowercase().contains("accept: text/event-stream"));
    }
}

#[tokio::test]
async fn streamed_send_reports_an_early_stop_on_standard_error() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Stream(STORED_RESPONSE))]);
    let outcome = rpc(&daemon, &["send", "a", "hello", "--stream"]).await;
    assert_eq!(outcome.errors, "the turn stopped early: budget\n");
    let daemon = ScriptedDaemon::start(&[("send", Reply::Stream(FAILED))]);
    let outcome = rpc(&daemon, &["send", "a", "hello", "--stream"]).await;
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert_eq!(outcome.errors, "Provider failed (-32603)\n");
}

#[tokio::test]
async fn ctrl_c_cancels_a_streamed_send() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::OpenStream("")), ("cancel", cancel_reply(true))]);
    tokio::time::pause();
    let interrupt = daemon.send_arrived();
    let outcome =
        CommandRun::new(&daemon, &["send", "a", "hello", "--stream"]).finish_with_interrupt(interrupt).await;
    assert_eq!((outcome.code, daemon.methods()), (1, vec!["send".to_owned(), "cancel".to_owned()]));
}

#[tokio::test]
async fn send_uses_the_given_request_id() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Result(send_output("hi")))]);
    rpc(&daemon, &["send", "a", "hello", "--request-id", "bill-17"]).await;
    assert_eq!(daemon.received()[0].params, json!({ "content": "hello", "request_id": "bill-17" }));
}

#[tokio::test]
async fn send_with_a_lost_connection_explains_the_retry() {
    let daemon = ScriptedDaemon::start(&[("send", Reply::Stream(""))]);
    let outcome = rpc(&daemon, &["send", "a", "hello", "--stream"]).await;
    assert_eq!(outcome.code, 1);
    let hint = "; send it again with --request-id 0123456789abcdef, it does not run twice\n";
    assert!(outcome.errors.ends_with(hint), "{}", outcome.errors);
}

#[tokio::test]
async fn create_sends_the_restart_policy() {
    let created = json!({ "agent_id": "a", "url": "/agent/a", "token": "nxc_a" });
    let daemon = ScriptedDaemon::start(&[("create_agent", Reply::Result(created))]);
    rpc(&daemon, &["create", "--on-restart", "mark"]).await;
    assert_eq!(daemon.received()[0].params, json!({ "on_restart": "mark" }));
}
