//! Which refusal wins when a request has several faults, and that none of them waits for a body.

use testkit::TestDaemon;

use crate::http::request_builder::RequestBuilder;
use crate::http::support::{ExpectedMessage, agents};
use crate::http::support::{NO_ROUTE, assert_error, assert_refused, assert_result, daemon, read_last};

/// One fault that a request can have beside others.
struct RequestFault {
    name: &'static str,
    apply: fn(RequestBuilder) -> RequestBuilder,
    status: u16,
    code: i64,
    message: &'static str,
}

const fn fault(
    name: &'static str,
    spoil: fn(RequestBuilder) -> RequestBuilder,
    status: u16,
    message: &'static str,
) -> RequestFault {
    let code = if status == 404 { -32602 } else { -32600 };
    RequestFault { name, apply: spoil, status, code, message }
}

/// From the first that is looked at to the last. Each spoils something else, so that all can be combined.
const FAULTS: [RequestFault; 9] = [
    fault("malformed", |ask| ask.header("A : a"), 400, "Invalid header line: the name is not a token"),
    fault("body too large", |ask| ask.replace_header("Content-Length: 1048577"), 413, TOO_LARGE),
    fault("host", |ask| ask.replace_header("Host: evil.example"), 403, "Host not allowed"),
    fault("origin", |ask| ask.header("Origin: null"), 403, "Origin not allowed"),
    fault("method", |ask| ask.method("GET"), 405, "Method not allowed. Use POST."),
    fault("token", |ask| ask.replace_header("Authorization: Bearer nxk_wrong"), 403, "Invalid API key"),
    fault("route", |ask| ask.target("/nope"), 404, NO_ROUTE),
    fault("caller", |ask| ask.header("X-Nexus-Agent: a").header("X-Nexus-Agent: b"), 400, TWO_CALLERS),
    fault("coding", |ask| ask.header("Content-Encoding: gzip"), 415, "Content-Encoding is not supported"),
];

const TOO_LARGE: &str = "Request body too large: 1048577 > 1048576";
const TWO_CALLERS: &str = "Duplicate X-Nexus-Agent header";

/// Faults that stand in the place of one above.
const ALTERNATIVE_FAULTS: [(usize, RequestFault); 3] = [
    (0, fault("no host", |ask| ask.without_header("Host"), 400, "Missing Host header")),
    (5, fault("no token", |ask| ask.without_header("Authorization"), 401, "Authorization header required")),
    (6, fault("agent", |ask| ask.target("/agent/nope"), 404, "Agent not found: nope")),
];

impl RequestFault {
    fn check(&self, beside: &str, daemon: &TestDaemon, ask: RequestBuilder) {
        let name = format!("{} beside {beside}", self.name);
        // Everything is refused without the body, so that it need not come.
        let mut connection = daemon.connection();
        connection.send(&(self.apply)(ask).head());
        let answer = read_last(&name, &mut connection);
        assert_error(&name, &answer, self.status, self.code, ExpectedMessage::Exactly(self.message), "null");
    }
}

#[test]
fn the_fault_that_is_looked_at_first_wins_before_the_body_has_come() {
    let daemon = daemon().config("[limits]\nbody_ms = 600000\n").start();
    for (place, first) in FAULTS.iter().enumerate() {
        first.check("nothing", &daemon, RequestBuilder::valid(&daemon));
        for second in &FAULTS[place + 1..] {
            first.check(second.name, &daemon, (second.apply)(RequestBuilder::valid(&daemon)));
        }
    }
    for (place, first) in &ALTERNATIVE_FAULTS {
        first.check("nothing", &daemon, RequestBuilder::valid(&daemon));
        for second in &FAULTS[place + 1..] {
            // The fault that is looked at later must not undo the other.
            if second.name != "host" || first.name != "no host" {
                first.check(second.name, &daemon, (second.apply)(RequestBuilder::valid(&daemon)));
            }
        }
    }
}

#[test]
fn a_stream_is_guarded_like_a_call() {
    let daemon = daemon().config("[limits]\nbody_ms = 600000\n").start();
    let watch = || RequestBuilder::valid(&daemon).method("GET").target("/events");
    let all: Vec<&RequestFault> =
        FAULTS.iter().chain(ALTERNATIVE_FAULTS.iter().map(|(_, fault)| fault)).collect();
    let of = |names: &[&str]| -> Vec<&RequestFault> {
        names.iter().map(|name| *all.iter().find(|fault| fault.name == *name).expect("a fault")).collect()
    };
    let faults = of(&["malformed", "body too large", "host", "origin", "token", "caller"]);
    for (place, first) in faults.iter().enumerate() {
        first.check("nothing of a stream", &daemon, watch());
        for second in &faults[place + 1..] {
            first.check(second.name, &daemon, (second.apply)(watch()));
        }
    }
    for first in of(&["no host", "no token"]) {
        first.check("nothing of a stream", &daemon, watch());
    }
}

#[test]
fn a_wrong_body_is_only_looked_at_when_nothing_else_is_wrong() {
    let daemon = daemon().start();
    for fault in FAULTS.iter().filter(|fault| fault.status != 413) {
        let ask = (fault.apply)(RequestBuilder::valid(&daemon).body("not json"));
        let answer = daemon.send_raw(&ask.bytes());
        assert_error(
            fault.name,
            &answer,
            fault.status,
            fault.code,
            ExpectedMessage::Exactly(fault.message),
            "null",
        );
    }
    let answer = daemon.send_raw(&RequestBuilder::valid(&daemon).body("not json").bytes());
    let says = ExpectedMessage::StartsWith("Invalid JSON: ");
    assert_error("only the body is wrong", &answer, 400, -32700, says, "null");
}

#[test]
fn a_refused_request_has_no_effect() {
    let daemon = daemon().start();
    for fault in &FAULTS {
        let ask = (fault.apply)(RequestBuilder::create_agent(&daemon, "refused"));
        let answer = daemon.send_raw(&ask.bytes());
        assert_eq!(answer.status, fault.status, "{}", fault.name);
    }
    assert!(agents(&daemon).is_empty());
}

#[test]
fn a_body_is_asked_for_only_when_its_request_is_welcome() {
    let daemon = daemon().config("[limits]\nbody_ms = 600000\n").start();
    let expecting = RequestBuilder::valid(&daemon).header("Expect: 100-continue");
    for fault in &FAULTS {
        fault.check("an expectation", &daemon, expecting.clone());
    }
    let mut connection = daemon.connection();
    connection.send(&expecting.head());
    let interim = connection.read_response();
    assert_eq!(interim.raw, b"HTTP/1.1 100 Continue\r\n\r\n");
    connection.send(crate::http::request_builder::LIST_AGENTS.as_bytes());
    assert_result("after 100", &connection.read_response());
    connection.send(&RequestBuilder::valid(&daemon).bytes());
    assert_result("the connection stays", &connection.read_response());
}

#[test]
fn an_expectation_is_ignored_where_nothing_is_to_be_expected() {
    let daemon = daemon().start();
    let bodiless = RequestBuilder::valid(&daemon).body("").header("Expect: 100-continue");
    let says = ExpectedMessage::StartsWith("Invalid JSON: ");
    assert_error("no body", &daemon.send_raw(&bodiless.bytes()), 400, -32700, says, "null");
    let old = RequestBuilder::valid(&daemon).version("HTTP/1.0").header("Expect: 100-continue");
    assert_result("HTTP/1.0", &daemon.send_raw(&old.bytes()));
    let eager = RequestBuilder::valid(&daemon).header("Expect: 100-Continue").bytes();
    let mut connection = daemon.connection();
    connection.send(&eager);
    let first = connection.read_response();
    let last = if first.status == 100 { connection.read_response() } else { first };
    assert_result("a body that is sent without waiting", &last);
}

#[test]
fn a_refused_request_keeps_its_connection_only_when_all_of_it_has_come() {
    let daemon = daemon().start();
    let refused = RequestBuilder::valid(&daemon).target("/agent/nope");
    let mut connection = daemon.connection();
    for _ in 0..3 {
        connection.send(&refused.bytes());
        let answer = connection.read_response();
        assert_refused("all has come", &answer, 404, "Agent not found: nope");
        assert_eq!(answer.header("connection"), None);
    }
    connection.send(&refused.head());
    let answer = read_last("the body has not come", &mut connection);
    assert_refused("the body has not come", &answer, 404, "Agent not found: nope");
    assert_eq!(answer.header("connection"), Some("close"), "the peer is told");
}
