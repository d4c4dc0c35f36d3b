//! Every method on every path against a fixed table: which routes exist, and that no other path responds.

use testkit::http::{RequestBuilder, assert_well_formed};

use crate::fixture::door;

const METHODS: [&str; 12] = [
    "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "CONNECT", "post", "Post", "PROPFIND",
    "QUERY",
];

/// The daemon's paths and paths common on other HTTP servers, with the status of an authenticated POST of
/// `list_agents`.
const PATHS: [(&str, u16); 24] = [
    ("/", 200),
    ("/rpc", 200),
    ("/agent/main", 200),
    ("/agent/nope", 404),
    ("/agent", 404),
    ("/agent/", 404),
    ("/agents", 404),
    ("/nope", 404),
    ("/health", 404),
    ("/healthz", 404),
    ("/ready", 404),
    ("/metrics", 404),
    ("/mcp", 404),
    ("/sse", 404),
    ("/messages", 404),
    ("/docs", 404),
    ("/openapi.json", 404),
    ("/openrpc.json", 404),
    ("/favicon.ico", 404),
    ("/index.html", 404),
    ("/.well-known/oauth-authorization-server", 404),
    ("/.refused", 404),
    ("/debug/pprof", 404),
    ("*", 404),
];

#[test]
fn only_listed_paths_accept_post() {
    let door = door().open();
    door.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    let (valid, without_token) =
        (RequestBuilder::valid(&door), RequestBuilder::valid(&door).without_header("Authorization"));
    for (path, post_status) in PATHS {
        let status = |request: &RequestBuilder, method: &str| {
            let response = door.send_raw(&request.clone().method(method).target(path).bytes());
            if method != "HEAD" {
                assert_well_formed(&format!("{method} {path}"), &response);
            }
            response.status
        };
        assert_eq!(status(&valid, "POST"), post_status, "POST {path}");
        assert_eq!(status(&without_token, "POST"), 401, "POST {path} without a token");
        for method in METHODS {
            assert_eq!(status(&valid, method), 405, "{method} {path}");
            assert_eq!(status(&without_token, method), 405, "{method} {path} without a token");
        }
    }
}

/// Paths of event streams and similar paths, with the status of an authenticated GET.
const EVENT_PATHS: [(&str, u16); 12] = [
    ("/events", 200),
    ("/events?after=0", 200),
    ("/agent/main/events", 200),
    ("/agent/nope/events", 404),
    ("/agent/%6dain/events", 404),
    ("/events/", 405),
    ("/Events", 405),
    ("/rpc/events", 405),
    ("/agent/events", 405),
    ("/agent//events", 405),
    ("/agent/main/events/", 405),
    ("/agent/main/nope/events", 405),
];

#[test]
fn only_listed_paths_serve_event_streams() {
    let door = door().open();
    door.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    let (valid, without_token) = (
        RequestBuilder::valid(&door).body(""),
        RequestBuilder::valid(&door).without_header("Authorization").body(""),
    );
    for (path, get_status) in EVENT_PATHS {
        let head = |request: &RequestBuilder, method: &str| {
            let mut connection = door.connection();
            connection.send(&request.clone().method(method).target(path).bytes());
            connection.read_head_response().expect("a response head")
        };
        let response = head(&valid, "GET");
        assert_eq!(response.status, get_status, "GET {path}");
        if get_status == 200 {
            let headers =
                ["content-type", "cache-control", "x-content-type-options"].map(|name| response.header(name));
            assert_eq!(headers, [Some("text/event-stream"), Some("no-store"), Some("nosniff")], "{path}");
        }
        let without_token_status = if get_status == 405 { 405 } else { 401 };
        assert_eq!(head(&without_token, "GET").status, without_token_status, "GET {path} without a token");
        assert_eq!(head(&valid, "POST").status, 404, "POST {path}");
        assert_eq!(head(&without_token, "POST").status, 401, "POST {path} without a token");
        for method in METHODS.into_iter().filter(|method| *method != "GET") {
            assert_eq!(head(&valid, method).status, 405, "{method} {path}");
        }
    }
}

#[test]
fn head_request_gets_a_refusal_without_body() {
    let door = door().open();
    let mut connection = door.connection();
    connection.send(&RequestBuilder::valid(&door).method("HEAD").body("").bytes());
    let response = connection.read_head_response().expect("a response head");
    assert_eq!((response.status, response.header("allow")), (405, Some("POST")));
    connection.send(&RequestBuilder::valid(&door).bytes());
    testkit::http::assert_result(
        "next response follows without a body in between",
        &connection.read_response(),
    );
}

#[test]
fn connect_is_refused_and_upgrade_is_ignored() {
    let door = door().open();
    let tunnel = RequestBuilder::valid(&door).method("CONNECT").target("127.0.0.1:80").bytes();
    assert_eq!(door.send_raw(&tunnel).status, 400);
    for upgrade in ["websocket", "h2c", "TLS/1.0"] {
        let request =
            RequestBuilder::valid(&door).header("Connection: Upgrade").header(format!("Upgrade: {upgrade}"));
        let websocket = request.clone().method("GET").header("Sec-WebSocket-Version: 13");
        let websocket = websocket.header("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(door.send_raw(&websocket.bytes()).status, 405, "{upgrade}");
        let mut connection = door.connection();
        for _ in 0..2 {
            connection.send(&request.bytes());
            testkit::http::assert_result(upgrade, &connection.read_response());
        }
    }
}
