//! Requests that arrive while the daemon stops.

use testkit::http::RequestBuilder;
use testkit::{RawResponse, rpc_request};

use crate::fixture::door;

#[test]
fn every_request_is_503_while_the_daemon_stops() {
    let door = door().open();
    door.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    door.call_result("/", "shutdown_server", serde_json::json!({}));
    for (path, method, params) in [
        ("/", "list_agents", "{}"),
        ("/", "list_sessions", "{}"),
        ("/agent/main", "get_messages", "{}"),
        ("/agent/main", "send", r#"{"content":"hi"}"#),
    ] {
        let params = serde_json::from_str(params).expect("valid JSON");
        let request = RequestBuilder::valid(&door).target(path).body(rpc_request(1, method, params));
        for request in [request.clone(), request.header("Accept: text/event-stream")] {
            assert_stopping(&door.send_raw(&request.bytes()));
        }
    }
    for path in ["/events", "/agent/main/events"] {
        let request = RequestBuilder::valid(&door).method("GET").target(path).body("");
        assert_stopping(&door.send_raw(&request.bytes()));
    }
}

fn assert_stopping(response: &RawResponse) {
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")), "{}", response.text());
    let error = &response.json()["error"];
    assert_eq!((&error["code"], &error["message"]), (&(-32001).into(), &"Server shutting down".into()));
}
