//! Malformed HTTP: the server responds 400 and closes the connection, and no request that follows runs.

use std::time::Duration;

use testkit::http::{
    ExpectedMessage, RequestBuilder, agents, assert_error, assert_refused, assert_result, request_once,
};

use crate::fixture::{TestDoor, door};

/// Malformed header lines.
const HEADER_LINES: [&[u8]; 25] = [
    b"A: b\r\n folded",
    b"A: b\r\n\tfolded: c",
    b" A: b",
    b"\tA: b",
    b"A : b",
    b"A\t: b",
    b"A\0: b",
    b"A\r: b",
    b"A: b\0",
    b"A: b\0c",
    b"A: b\rc",
    b"A: b\r\rc",
    b"A: \x1b[31m",
    b"A: \x7f",
    b"A: b\nC: d",
    b"A: b\n",
    b": b",
    b"A",
    b"A b",
    b"A(: b",
    b"\"A\": b",
    b"A\xff: b",
    b"A: \xe9",
    b"A: \xc0\xaf",
    b"A: \xed\xa0\x80",
];

/// First bytes of other protocols, and malformed request lines.
const OPENINGS: [&[u8]; 24] = [
    b"GET /\r\n",
    b"GET / \r\n",
    b"POST /\r\n\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"POST / HTTP/1.1\n",
    b"POST / HTTP/1.1\nHost: a\n\n",
    b"POST / HTTP/1.1\r\r\n",
    b"POST /\0 HTTP/1.1\r\n",
    b"POST /\r HTTP/1.1\r\n",
    b"POST\0 / HTTP/1.1\r\n",
    b"POST / HTTP/1.1\0\r\n",
    b"POST / HTTP/0.9\r\n",
    b"POST / HTTP/11\r\n",
    b"POST / HTTP/1.1/\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
    b"EHLO localhost\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list_agents\"}",
    b"<?xml version=\"1.0\"?>",
    b"\x05\x01\x00",
];

/// First bytes of binary protocols: TLS, SSL 2, PROXY protocol version 2, and length-prefixed frames.
const BINARY_OPENINGS: [&[u8]; 4] = [
    b"\x16\x03\x01\x00\xc0\x01\x00\x00\xbc\x03\x03",
    b"\x80\x2e\x01\x03\x01",
    b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a",
    b"\x00\x00\x00\x2f",
];

fn check(door: &TestDoor, bytes: &[u8]) {
    let name = bytes.escape_ascii().to_string();
    let hidden = RequestBuilder::create_agent(door, "hidden").bytes();
    let response = request_once(&name, door, &[bytes, &hidden].concat());
    assert_error(&name, &response, 400, -32600, ExpectedMessage::StartsWith("Invalid "), "null");
    assert_eq!(response.header("connection"), Some("close"), "{name}");
}

#[test]
fn malformed_header_line_closes_the_connection() {
    let door = door().open();
    for line in HEADER_LINES {
        check(&door, &RequestBuilder::valid(&door).header(line).bytes());
        let host = format!("Host: 127.0.0.1:{}\r\n\r\n", door.port());
        check(&door, &[b"POST / HTTP/1.1\r\n", line, b"\r\n", host.as_bytes()].concat());
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn malformed_request_line_closes_the_connection() {
    let door = door().open();
    for opening in OPENINGS.iter().chain(&BINARY_OPENINGS) {
        check(&door, opening);
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn binary_protocol_gets_400_before_it_sends_a_line() {
    let door = door()
        .limits(|limits| {
            limits.head_timeout = Duration::from_millis(600000);
            limits.first_byte_timeout = Duration::from_millis(600000);
        })
        .open();
    for opening in BINARY_OPENINGS.iter().filter(|bytes| bytes[0] != b'\r') {
        let name = opening.escape_ascii().to_string();
        let response = door.send_raw(opening);
        assert_error(&name, &response, 400, -32600, ExpectedMessage::StartsWith("Invalid request "), "null");
        assert!(response.closed, "{name}");
    }
}

#[test]
fn line_ending_needs_both_cr_and_lf() {
    let door = door().open();
    let valid = RequestBuilder::valid(&door).bytes();
    let ends: Vec<usize> = (0..valid.len()).filter(|at| valid[*at] == b'\r').collect();
    assert!(ends.len() > 3);
    for end in ends {
        let without_cr = [&valid[..end], &valid[end + 1..]].concat();
        let response = request_once("no CR", &door, &without_cr);
        assert_refused("no CR", &response, 400, "Invalid line ending: lines end with CR LF");
        let without_lf = [&valid[..=end], &valid[end + 2..]].concat();
        let response = request_once("no LF", &door, &without_lf);
        assert_eq!(response.status, 400, "no LF at {end}: {}", response.text());
    }
}

#[test]
fn non_ascii_is_accepted_in_values_the_server_does_not_read() {
    let door = door().open();
    let request = RequestBuilder::valid(&door).header("User-Agent: caf\u{e9} \u{1f600}");
    assert_result("UTF-8", &door.send_raw(&request.bytes()));
}

#[test]
fn target_too_long_for_hyper_gets_a_well_formed_refusal() {
    let door = door().limits(|limits| limits.request_line_bytes_max = 200000).open();
    for (bytes, status) in [(65_534, 404), (65_535, 400), (70_000, 400)] {
        let target = format!("/{}", "a".repeat(bytes - 1));
        let response = door.send_raw(&RequestBuilder::valid(&door).target(target).bytes());
        assert_eq!(response.status, status, "{bytes}");
        testkit::http::assert_well_formed("long target", &response);
    }
}
