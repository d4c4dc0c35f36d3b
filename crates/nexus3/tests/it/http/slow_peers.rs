//! Slow clients: heads sent byte by byte, bodies that never arrive, responses that the client does not read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::json;
use testkit::{RawConnection, RawResponse, ScriptedModel, TestDaemon};

use crate::http::kernel_sockets::held_connections;
use crate::http::request_builder::{LIST_AGENTS, RequestBuilder};
use crate::http::support::{WAIT_MAX, WellBehavedClient, assert_refused, assert_result, daemon, read_last};
use crate::support::LARGE_WINDOW_CONFIG;

/// A client that sends byte by byte and polls for a response after each byte.
struct SlowPeer {
    stream: TcpStream,
    response: Vec<u8>,
    sent: usize,
    is_closed: bool,
}

impl SlowPeer {
    fn new(daemon: &TestDaemon, start: &[u8]) -> Self {
        let mut stream = daemon.connect();
        stream.write_all(start).expect("a new connection accepts bytes");
        stream.set_nonblocking(true).expect("a connected socket can be non-blocking");
        Self { stream, response: Vec::new(), sent: 0, is_closed: false }
    }

    fn send_next_byte(&mut self) {
        // The write fails if the server has closed the connection; the read below detects that.
        self.sent += self.stream.write(b"a").unwrap_or_default();
        let mut buffer = [0; 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(read) => self.response.extend_from_slice(&buffer[..read]),
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.is_closed = true,
        }
    }
}

/// Sends bytes until every slow client got 408 with this message, while another client is served.
fn send_until_closed(peers: &mut [SlowPeer], client: &mut WellBehavedClient<'_>, message: &str) {
    let body_end = format!(r#""message":"{message}"}}}}"#);
    let began = Instant::now();
    while peers.iter().any(|peer| !peer.is_closed) {
        client.call();
        peers.iter_mut().filter(|peer| !peer.is_closed).for_each(SlowPeer::send_next_byte);
        assert!(began.elapsed() < WAIT_MAX, "the server did not close all connections");
    }
    for peer in peers.iter() {
        let text = String::from_utf8_lossy(&peer.response);
        assert!(text.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{text}");
        assert!(text.ends_with(&body_end), "{text}");
    }
}

#[test]
fn a_thousand_slow_heads_time_out_while_others_are_served() {
    let daemon = daemon().config("[limits]\nhead_ms = 1500\n").start();
    let head = RequestBuilder::valid(&daemon).header("A: ").head();
    let start = &head[..head.len() - 4];
    let mut client = WellBehavedClient::new(&daemon);
    let mut peers: Vec<_> = (0..1000).map(|_| SlowPeer::new(&daemon, start)).collect();
    send_until_closed(&mut peers, &mut client, "Header read timeout");
    assert!(peers.iter().map(|peer| peer.sent).max() > Some(1), "the heads were not sent slowly");
    client.call_until("all connections are released", || held_connections(daemon.port()) == 1);
}

#[test]
fn byte_of_a_long_head_costs_no_more_than_byte_of_a_body() {
    let daemon = daemon().config("[limits]\nhead_ms = 600000\nbody_ms = 600000\n").start();
    let filler = format!("A: {}", "v".repeat(8000));
    let long_head = (0..3)
        .fold(RequestBuilder::valid(&daemon), |request, _| request.header(&filler))
        .header("A: ")
        .head();
    let long_body = RequestBuilder::valid(&daemon).body(format!("{LIST_AGENTS:<32000}")).bytes();
    let mut client = WellBehavedClient::new(&daemon);
    let mut cost_of = |start: &[u8]| {
        let mut peers: Vec<_> = (0..40).map(|_| SlowPeer::new(&daemon, start)).collect();
        let before = daemon_ticks(&daemon);
        for _ in 0..400 {
            peers.iter_mut().for_each(SlowPeer::send_next_byte);
            client.call();
        }
        assert!(peers.iter().all(|peer| peer.sent == 400 && !peer.is_closed));
        daemon_ticks(&daemon) - before
    };
    let (body, head) = (cost_of(&long_body[..24_000]), cost_of(&long_head[..long_head.len() - 4]));
    assert!(head <= 3 * body + 20, "{head} hundredths of a second for heads, {body} for bodies");
}

/// CPU time of the daemon in clock ticks, each 1/100 s.
fn daemon_ticks(daemon: &TestDaemon) -> u64 {
    let path = format!("/proc/{}/stat", daemon.pid());
    let stat = std::fs::read_to_string(path).expect("a running process has a stat file");
    let (_, fields) = stat.rsplit_once(") ").expect("the process name is in parentheses");
    let fields: Vec<u64> = fields.split(' ').map(|field| field.parse().unwrap_or_default()).collect();
    fields[11] + fields[12]
}

#[test]
fn silent_connection_gets_408() {
    let daemon = daemon().config("[limits]\nfirst_byte_ms = 200\n").start();
    let mut silent: Vec<_> = (0..50).map(|_| daemon.connection()).collect();
    for connection in &mut silent {
        assert_refused(
            "silent connection",
            &read_last("silent connection", connection),
            408,
            "Request timeout",
        );
    }
}

#[test]
fn slow_body_gets_408() {
    let daemon = daemon().config("[limits]\nbody_ms = 700\n").start();
    let head = RequestBuilder::valid(&daemon).replace_header("Content-Length: 1048576").head();
    let mut client = WellBehavedClient::new(&daemon);
    let mut peers: Vec<_> = (0..200).map(|_| SlowPeer::new(&daemon, &head)).collect();
    send_until_closed(&mut peers, &mut client, "Body read timeout");
}

#[test]
fn idle_connection_is_closed_without_a_response() {
    let daemon = daemon().config("[limits]\nkeep_alive_ms = 200\n").start();
    let mut connection = daemon.connection();
    for _ in 0..5 {
        connection.send(&RequestBuilder::valid(&daemon).bytes());
        assert_result("before the idle timeout", &connection.read_response());
    }
    assert!(connection.read_to_end().is_empty(), "an idle client gets no 408");
}

#[test]
fn incomplete_second_head_gets_408_not_the_idle_timeout() {
    let daemon = daemon().config("[limits]\nkeep_alive_ms = 200\nhead_ms = 400\n").start();
    let mut connection = daemon.connection();
    let bytes = RequestBuilder::valid(&daemon).bytes();
    connection.send(&[&bytes[..], &bytes[..30]].concat());
    assert_result("first request", &connection.read_response());
    let response = read_last("second request", &mut connection);
    assert_refused("second request", &response, 408, "Header read timeout");
}

#[test]
fn turn_longer_than_every_http_timeout_gets_its_response() {
    let model = ScriptedModel::start();
    let limits =
        "[limits]\nkeep_alive_ms = 100\nhead_ms = 100\nbody_ms = 100\nfirst_byte_ms = 2000\nwrite_ms = 100\n";
    let daemon = daemon().model(&model).config(limits).start();
    let mut waiting = daemon.connection();
    let send = r#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"!hold gate done"}}"#;
    waiting.send(&RequestBuilder::valid(&daemon).body(send).bytes());
    model.wait_stalled(1);
    // The idle timeout closes each of these; it must not apply to the connection that waits for its turn.
    for _ in 0..3 {
        let mut idle = daemon.connection();
        idle.send(&RequestBuilder::valid(&daemon).bytes());
        assert_result("idle connection", &idle.read_response());
        assert!(idle.read_to_end().is_empty());
    }
    model.release("gate");
    let response = waiting.read_response();
    assert_result("connection that waited", &response);
    assert!(response.text().contains("done released gate"), "{}", response.text());
}

#[test]
fn client_that_does_not_read_its_response_is_dropped() {
    let model = ScriptedModel::start();
    let limits = format!("[limits]\nwrite_ms = 300\nbody_bytes_max = 16777216\n{LARGE_WINDOW_CONFIG}");
    let daemon = daemon().model(&model).config(&limits).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "main", "model": "big" }));
    let content = "x".repeat(3 * 1024 * 1024);
    daemon.call_result("/", "send", json!({ "content": content }));
    let mut client = WellBehavedClient::new(&daemon);
    client.call_until("no other connection is open", || held_connections(daemon.port()) == 1);

    let request =
        RequestBuilder::valid(&daemon).body(LIST_AGENTS.replace("list_agents", "get_messages")).bytes();
    let mut not_reading: Vec<RawConnection> = (0..4).map(|_| daemon.connection()).collect();
    for connection in &mut not_reading {
        connection.send(&request);
    }
    for connection in &not_reading {
        let started = connection.stream().peek(&mut [0]).expect("a response begins");
        assert_eq!(started, 1, "the peek reads one byte and consumes none");
    }
    client.call_until("all connections are dropped", || held_connections(daemon.port()) == 1);
    for connection in &mut not_reading {
        let cut: std::io::Result<RawResponse> = connection.try_read_response();
        assert!(cut.is_err(), "a response that was not read arrived complete");
    }
    let mut reading = daemon.connection();
    reading.send(&request);
    assert!(
        reading.read_response().body.len() > 2 * content.len(),
        "a client that reads gets the complete response"
    );
}
