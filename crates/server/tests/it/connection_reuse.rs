//! Keep-alive: which connections are reused and which are closed, for HTTP/1.1, HTTP/1.0 and the Connection header.

use testkit::http::{RequestBuilder, assert_result, read_last};

use crate::fixture::door;

#[test]
fn one_connection_serves_a_thousand_requests() {
    let door = door().open();
    let mut connection = door.connection();
    let bytes = RequestBuilder::valid(&door).bytes();
    for _ in 0..1000 {
        connection.send(&bytes);
        let response = connection.read_response();
        assert_result("reused connection", &response);
        assert_eq!(response.header("connection"), None);
    }
}

#[test]
fn notifications_and_errors_leave_the_connection_open() {
    let door = door().open();
    let mut connection = door.connection();
    let valid = RequestBuilder::valid(&door);
    let requests = [
        (valid.clone().body(r#"{"jsonrpc":"2.0","method":"list_agents"}"#), 204),
        (valid.clone().body("not json"), 400),
        (valid.clone().body(""), 400),
        (valid.clone().target("/nope"), 404),
        (valid.clone().replace_header("Host: evil.example"), 403),
        (valid.clone().method("GET").body(""), 405),
        (valid.clone().without_header("Authorization"), 401),
        (valid, 200),
    ];
    for _ in 0..10 {
        for (request, status) in &requests {
            connection.send(&request.bytes());
            assert_eq!(connection.read_response().status, *status);
        }
    }
}

#[test]
fn connection_close_header_closes_after_the_response() {
    let door = door().open();
    for header in
        ["Connection: close", "connection: Close", "Connection: keep-alive, close", "Connection: close, x"]
    {
        let mut connection = door.connection();
        connection.send(&RequestBuilder::valid(&door).header(header).bytes());
        let response = read_last(header, &mut connection);
        assert_result(header, &response);
        assert_eq!(response.header("connection"), Some("close"), "{header}");
    }
}

#[test]
fn http_1_0_closes_after_one_response_unless_keep_alive() {
    let door = door().open();
    let http_1_0 = RequestBuilder::valid(&door).version("HTTP/1.0");
    let mut connection = door.connection();
    connection.send(&http_1_0.bytes());
    let response = read_last("HTTP/1.0", &mut connection);
    assert_result("HTTP/1.0", &response);
    assert!(response.raw.starts_with(b"HTTP/1.0 200 OK\r\n"));

    let keep_alive = http_1_0.header("Connection: keep-alive");
    let mut connection = door.connection();
    for _ in 0..3 {
        connection.send(&keep_alive.bytes());
        let response = connection.read_response();
        assert_result("HTTP/1.0 with keep-alive", &response);
        assert_eq!(response.header("connection"), Some("keep-alive"));
    }
    connection.send(&RequestBuilder::valid(&door).bytes());
    assert_result("HTTP/1.1 on the same connection", &connection.read_response());
}
