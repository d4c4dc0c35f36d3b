//! Every method at every path against a frozen list: what answers, and that nothing else does.

use crate::http::request_builder::RequestBuilder;
use crate::http::support::{assert_well_formed, daemon};

const METHODS: [&str; 12] = [
    "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "CONNECT", "post", "Post", "PROPFIND",
    "QUERY",
];

/// Every path that ever meant something to somebody, and the answer to `list_agents` posted there with the token.
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
fn nothing_answers_but_what_is_on_the_list() {
    let daemon = daemon().start();
    daemon.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    let (good, stranger) =
        (RequestBuilder::valid(&daemon), RequestBuilder::valid(&daemon).without_header("Authorization"));
    for (path, posted) in PATHS {
        let status = |ask: &RequestBuilder, method: &str| {
            let answer = daemon.send_raw(&ask.clone().method(method).target(path).bytes());
            if method != "HEAD" {
                assert_well_formed(&format!("{method} {path}"), &answer);
            }
            answer.status
        };
        assert_eq!(status(&good, "POST"), posted, "POST {path}");
        assert_eq!(status(&stranger, "POST"), 401, "POST {path} without a token");
        for method in METHODS {
            assert_eq!(status(&good, method), 405, "{method} {path}");
            assert_eq!(status(&stranger, method), 405, "{method} {path} without a token");
        }
    }
}

/// What is watched by GET with the token, and what looks like it and is not.
const WATCHED: [(&str, u16); 12] = [
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
fn nothing_is_watched_but_what_is_on_the_list() {
    let daemon = daemon().start();
    daemon.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    let (good, stranger) = (
        RequestBuilder::valid(&daemon).body(""),
        RequestBuilder::valid(&daemon).without_header("Authorization").body(""),
    );
    for (path, watched) in WATCHED {
        let head = |ask: &RequestBuilder, method: &str| {
            let mut connection = daemon.connection();
            connection.send(&ask.clone().method(method).target(path).bytes());
            connection.read_head_response().expect("a head")
        };
        let answer = head(&good, "GET");
        assert_eq!(answer.status, watched, "GET {path}");
        if watched == 200 {
            let headers =
                ["content-type", "cache-control", "x-content-type-options"].map(|name| answer.header(name));
            assert_eq!(headers, [Some("text/event-stream"), Some("no-store"), Some("nosniff")], "{path}");
        }
        let unknown = if watched == 405 { 405 } else { 401 };
        assert_eq!(head(&stranger, "GET").status, unknown, "GET {path} without a token");
        assert_eq!(head(&good, "POST").status, 404, "POST {path}");
        assert_eq!(head(&stranger, "POST").status, 401, "POST {path} without a token");
        for method in METHODS.into_iter().filter(|method| *method != "GET") {
            assert_eq!(head(&good, method).status, 405, "{method} {path}");
        }
    }
}

#[test]
fn a_head_request_gets_the_head_of_its_refusal() {
    let daemon = daemon().start();
    let mut connection = daemon.connection();
    connection.send(&RequestBuilder::valid(&daemon).method("HEAD").body("").bytes());
    let answer = connection.read_head_response().expect("a head");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    connection.send(&RequestBuilder::valid(&daemon).bytes());
    crate::http::support::assert_result("no body stands before it", &connection.read_response());
}

#[test]
fn nobody_becomes_a_tunnel_or_another_protocol() {
    let daemon = daemon().start();
    let tunnel = RequestBuilder::valid(&daemon).method("CONNECT").target("127.0.0.1:80").bytes();
    assert_eq!(daemon.send_raw(&tunnel).status, 400);
    for upgrade in ["websocket", "h2c", "TLS/1.0"] {
        let ask = RequestBuilder::valid(&daemon)
            .header("Connection: Upgrade")
            .header(format!("Upgrade: {upgrade}"));
        let socket = ask.clone().method("GET").header("Sec-WebSocket-Version: 13");
        let socket = socket.header("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(daemon.send_raw(&socket.bytes()).status, 405, "{upgrade}");
        let mut connection = daemon.connection();
        for _ in 0..2 {
            connection.send(&ask.bytes());
            crate::http::support::assert_result(upgrade, &connection.read_response());
        }
    }
}
