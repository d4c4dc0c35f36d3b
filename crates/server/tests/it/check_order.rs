//! Order of the checks: the refusal for a request with several faults, and that no refusal waits for the body.

use std::time::Duration;

use testkit::http::{
    ExpectedMessage, NO_ROUTE, RequestBuilder, agents, assert_error, assert_refused, assert_result, read_last,
};

use crate::fixture::{TestDoor, door};

/// A fault that a request can combine with others.
struct RequestFault {
    name: &'static str,
    apply: fn(RequestBuilder) -> RequestBuilder,
    status: u16,
    code: i64,
    message: &'static str,
}

const fn fault(
    name: &'static str,
    apply: fn(RequestBuilder) -> RequestBuilder,
    status: u16,
    message: &'static str,
) -> RequestFault {
    let code = if status == 404 { -32602 } else { -32600 };
    RequestFault { name, apply, status, code, message }
}

/// The faults in the order of their checks. Each changes a different part of the request, so that they can be combined.
const FAULTS: [RequestFault; 9] = [
    fault(
        "malformed",
        |request| request.header("A : a"),
        400,
        "Invalid header line: the name is not a token",
    ),
    fault("body too large", |request| request.replace_header("Content-Length: 1048577"), 413, TOO_LARGE),
    fault("host", |request| request.replace_header("Host: evil.example"), 403, "Host not allowed"),
    fault("origin", |request| request.header("Origin: null"), 403, "Origin not allowed"),
    fault("method", |request| request.method("GET"), 405, "Method not allowed. Use POST."),
    fault(
        "token",
        |request| request.replace_header("Authorization: Bearer nxk_wrong"),
        403,
        "Invalid API key",
    ),
    fault("route", |request| request.target("/nope"), 404, NO_ROUTE),
    fault(
        "caller",
        |request| request.header("X-Nexus-Agent: a").header("X-Nexus-Agent: b"),
        400,
        TWO_CALLERS,
    ),
    fault(
        "coding",
        |request| request.header("Content-Encoding: gzip"),
        415,
        "Content-Encoding is not supported",
    ),
];

const TOO_LARGE: &str = "Request body too large: 1048577 > 1048576";
const TWO_CALLERS: &str = "Duplicate X-Nexus-Agent header";

/// Alternatives to a fault of [`FAULTS`], each with the index of the fault that it replaces.
const ALTERNATIVE_FAULTS: [(usize, RequestFault); 3] = [
    (0, fault("no host", |request| request.without_header("Host"), 400, "Missing Host header")),
    (
        5,
        fault(
            "no token",
            |request| request.without_header("Authorization"),
            401,
            "Authorization header required",
        ),
    ),
    (6, fault("agent", |request| request.target("/agent/nope"), 404, "Agent not found: nope")),
];

impl RequestFault {
    fn check(&self, combined_with: &str, door: &TestDoor, request: RequestBuilder) {
        let name = format!("{} combined with {combined_with}", self.name);
        // Only the head is sent: the server refuses all these requests without reading the body.
        let mut connection = door.connection();
        connection.send(&(self.apply)(request).head());
        let response = read_last(&name, &mut connection);
        assert_error(
            &name,
            &response,
            self.status,
            self.code,
            ExpectedMessage::Exactly(self.message),
            "null",
        );
    }
}

#[test]
fn first_failed_check_decides_before_the_body_arrives() {
    let door = door().limits(|limits| limits.body_timeout = Duration::from_millis(600000)).open();
    for (index, first) in FAULTS.iter().enumerate() {
        first.check("nothing", &door, RequestBuilder::valid(&door));
        for second in &FAULTS[index + 1..] {
            first.check(second.name, &door, (second.apply)(RequestBuilder::valid(&door)));
        }
    }
    for (index, first) in &ALTERNATIVE_FAULTS {
        first.check("nothing", &door, RequestBuilder::valid(&door));
        for second in &FAULTS[index + 1..] {
            // Replacing the Host header would undo its absence.
            if second.name != "host" || first.name != "no host" {
                first.check(second.name, &door, (second.apply)(RequestBuilder::valid(&door)));
            }
        }
    }
}

#[test]
fn event_stream_requests_pass_the_same_checks_as_calls() {
    let door = door().limits(|limits| limits.body_timeout = Duration::from_millis(600000)).open();
    let stream_request = || RequestBuilder::valid(&door).method("GET").target("/events");
    let all_faults: Vec<&RequestFault> =
        FAULTS.iter().chain(ALTERNATIVE_FAULTS.iter().map(|(_, fault)| fault)).collect();
    let faults_named = |names: &[&str]| -> Vec<&RequestFault> {
        names
            .iter()
            .map(|name| *all_faults.iter().find(|fault| fault.name == *name).expect("a known fault name"))
            .collect()
    };
    let faults = faults_named(&["malformed", "body too large", "host", "origin", "token", "caller"]);
    for (index, first) in faults.iter().enumerate() {
        first.check("nothing, event stream", &door, stream_request());
        for second in &faults[index + 1..] {
            first.check(second.name, &door, (second.apply)(stream_request()));
        }
    }
    for first in faults_named(&["no host", "no token"]) {
        first.check("nothing, event stream", &door, stream_request());
    }
}

#[test]
fn body_is_parsed_only_after_all_other_checks() {
    let door = door().open();
    for fault in FAULTS.iter().filter(|fault| fault.status != 413) {
        let request = (fault.apply)(RequestBuilder::valid(&door).body("not json"));
        let response = door.send_raw(&request.bytes());
        assert_error(
            fault.name,
            &response,
            fault.status,
            fault.code,
            ExpectedMessage::Exactly(fault.message),
            "null",
        );
    }
    let response = door.send_raw(&RequestBuilder::valid(&door).body("not json").bytes());
    let expected_message = ExpectedMessage::StartsWith("Invalid JSON: ");
    assert_error("only the body is invalid", &response, 400, -32700, expected_message, "null");
}

#[test]
fn refused_request_has_no_effect() {
    let door = door().open();
    for fault in &FAULTS {
        let request = (fault.apply)(RequestBuilder::create_agent(&door, "refused"));
        let response = door.send_raw(&request.bytes());
        assert_eq!(response.status, fault.status, "{}", fault.name);
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn server_sends_100_continue_only_for_accepted_heads() {
    let door = door().limits(|limits| limits.body_timeout = Duration::from_millis(600000)).open();
    let with_expect = RequestBuilder::valid(&door).header("Expect: 100-continue");
    for fault in &FAULTS {
        fault.check("Expect: 100-continue", &door, with_expect.clone());
    }
    let mut connection = door.connection();
    connection.send(&with_expect.head());
    let interim = connection.read_response();
    assert_eq!(interim.raw, b"HTTP/1.1 100 Continue\r\n\r\n");
    connection.send(testkit::http::LIST_AGENTS.as_bytes());
    assert_result("after 100 Continue", &connection.read_response());
    connection.send(&RequestBuilder::valid(&door).bytes());
    assert_result("next request on the connection", &connection.read_response());
}

#[test]
fn expect_header_is_ignored_where_it_has_no_meaning() {
    let door = door().open();
    let without_body = RequestBuilder::valid(&door).body("").header("Expect: 100-continue");
    let expected_message = ExpectedMessage::StartsWith("Invalid JSON: ");
    assert_error("no body", &door.send_raw(&without_body.bytes()), 400, -32700, expected_message, "null");
    let http_1_0 = RequestBuilder::valid(&door).version("HTTP/1.0").header("Expect: 100-continue");
    assert_result("HTTP/1.0", &door.send_raw(&http_1_0.bytes()));
    let body_without_waiting = RequestBuilder::valid(&door).header("Expect: 100-Continue").bytes();
    let mut connection = door.connection();
    connection.send(&body_without_waiting);
    let first = connection.read_response();
    let last = if first.status == 100 { connection.read_response() } else { first };
    assert_result("body sent without waiting for 100", &last);
}

#[test]
fn refusal_closes_the_connection_if_the_body_is_missing() {
    let door = door().open();
    let refused = RequestBuilder::valid(&door).target("/agent/nope");
    let mut connection = door.connection();
    for _ in 0..3 {
        connection.send(&refused.bytes());
        let response = connection.read_response();
        assert_refused("complete request", &response, 404, "Agent not found: nope");
        assert_eq!(response.header("connection"), None);
    }
    connection.send(&refused.head());
    let response = read_last("body not sent", &mut connection);
    assert_refused("body not sent", &response, 404, "Agent not found: nope");
    assert_eq!(response.header("connection"), Some("close"), "the response announces the close");
}
