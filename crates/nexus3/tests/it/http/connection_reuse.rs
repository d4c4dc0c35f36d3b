//! Connections that are used again, and those that are not: HTTP/1.1, HTTP/1.0, and what a client asks for.

use crate::http::request_builder::RequestBuilder;
use crate::http::support::{assert_result, daemon, read_last};

#[test]
fn one_connection_carries_a_thousand_requests() {
    let daemon = daemon().start();
    let mut connection = daemon.connection();
    let bytes = RequestBuilder::valid(&daemon).bytes();
    for _ in 0..1000 {
        connection.send(&bytes);
        let answer = connection.read_response();
        assert_result("again", &answer);
        assert_eq!(answer.header("connection"), None);
    }
}

#[test]
fn notifications_and_errors_leave_the_connection_as_it_is() {
    let daemon = daemon().start();
    let mut connection = daemon.connection();
    let good = RequestBuilder::valid(&daemon);
    let asks = [
        (good.clone().body(r#"{"jsonrpc":"2.0","method":"list_agents"}"#), 204),
        (good.clone().body("not json"), 400),
        (good.clone().body(""), 400),
        (good.clone().target("/nope"), 404),
        (good.clone().replace_header("Host: evil.example"), 403),
        (good.clone().method("GET").body(""), 405),
        (good.clone().without_header("Authorization"), 401),
        (good, 200),
    ];
    for _ in 0..10 {
        for (ask, status) in &asks {
            connection.send(&ask.bytes());
            assert_eq!(connection.read_response().status, *status);
        }
    }
}

#[test]
fn a_client_that_asks_for_the_end_gets_it_after_its_answer() {
    let daemon = daemon().start();
    for header in
        ["Connection: close", "connection: Close", "Connection: keep-alive, close", "Connection: close, x"]
    {
        let mut connection = daemon.connection();
        connection.send(&RequestBuilder::valid(&daemon).header(header).bytes());
        let answer = read_last(header, &mut connection);
        assert_result(header, &answer);
        assert_eq!(answer.header("connection"), Some("close"), "{header}");
    }
}

#[test]
fn http_1_0_ends_after_one_answer_unless_it_asks_to_go_on() {
    let daemon = daemon().start();
    let old = RequestBuilder::valid(&daemon).version("HTTP/1.0");
    let mut connection = daemon.connection();
    connection.send(&old.bytes());
    let answer = read_last("HTTP/1.0", &mut connection);
    assert_result("HTTP/1.0", &answer);
    assert!(answer.raw.starts_with(b"HTTP/1.0 200 OK\r\n"));

    let going_on = old.header("Connection: keep-alive");
    let mut connection = daemon.connection();
    for _ in 0..3 {
        connection.send(&going_on.bytes());
        let answer = connection.read_response();
        assert_result("HTTP/1.0 that goes on", &answer);
        assert_eq!(answer.header("connection"), Some("keep-alive"));
    }
    connection.send(&RequestBuilder::valid(&daemon).bytes());
    assert_result("HTTP/1.1 on the same connection", &connection.read_response());
}
