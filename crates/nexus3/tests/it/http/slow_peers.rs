//! Peers that take their time: heads that drip, bodies that do not come, answers that nobody takes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::json;
use testkit::{RawConnection, RawResponse, ScriptedModel, TestDaemon};

use crate::http::kernel_sockets::held_connections;
use crate::http::request_builder::{LIST_AGENTS, RequestBuilder};
use crate::http::support::{WAIT_MAX, WellBehavedClient, assert_refused, assert_result, daemon, read_last};
use crate::support::LARGE_WINDOW_CONFIG;

/// A peer that sends a head byte by byte and looks for an answer in between.
struct SlowPeer {
    stream: TcpStream,
    answer: Vec<u8>,
    sent: usize,
    ended: bool,
}

impl SlowPeer {
    fn new(daemon: &TestDaemon, start: &[u8]) -> Self {
        let mut stream = daemon.connect();
        stream.write_all(start).expect("a new connection takes some bytes");
        stream.set_nonblocking(true).expect("a connected socket takes options");
        Self { stream, answer: Vec::new(), sent: 0, ended: false }
    }

    fn send_next_byte(&mut self) {
        // The door may have closed it; what was read tells.
        self.sent += self.stream.write(b"a").unwrap_or_default();
        let mut space = [0; 1024];
        match self.stream.read(&mut space) {
            Ok(0) => self.ended = true,
            Ok(read) => self.answer.extend_from_slice(&space[..read]),
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
    }
}

/// Drips until every peer was sent away with 408 and this message, while the honest are served.
fn send_until_closed(peers: &mut [SlowPeer], honest: &mut WellBehavedClient<'_>, message: &str) {
    let end = format!(r#""message":"{message}"}}}}"#);
    let began = Instant::now();
    while peers.iter().any(|peer| !peer.ended) {
        honest.call();
        peers.iter_mut().filter(|peer| !peer.ended).for_each(SlowPeer::send_next_byte);
        assert!(began.elapsed() < WAIT_MAX, "dripping for ever");
    }
    for peer in peers.iter() {
        let text = String::from_utf8_lossy(&peer.answer);
        assert!(text.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{text}");
        assert!(text.ends_with(&end), "{text}");
    }
}

#[test]
fn a_thousand_dripping_heads_are_sent_away_and_hinder_nobody() {
    let daemon = daemon().config("[limits]\nhead_ms = 1500\n").start();
    let head = RequestBuilder::valid(&daemon).header("A: ").head();
    let start = &head[..head.len() - 4];
    let mut honest = WellBehavedClient::new(&daemon);
    let mut peers: Vec<_> = (0..1000).map(|_| SlowPeer::new(&daemon, start)).collect();
    send_until_closed(&mut peers, &mut honest, "Header read timeout");
    assert!(peers.iter().map(|peer| peer.sent).max() > Some(1), "they did drip");
    honest.call_until("the connections are given back", || held_connections(daemon.port()) == 1);
}

#[test]
fn a_byte_of_a_long_head_costs_no_more_than_a_byte_of_a_body() {
    let daemon = daemon().config("[limits]\nhead_ms = 600000\nbody_ms = 600000\n").start();
    let filler = format!("A: {}", "v".repeat(8000));
    let long_head =
        (0..3).fold(RequestBuilder::valid(&daemon), |ask, _| ask.header(&filler)).header("A: ").head();
    let long_body = RequestBuilder::valid(&daemon).body(format!("{LIST_AGENTS:<32000}")).bytes();
    let mut honest = WellBehavedClient::new(&daemon);
    let mut cost_of = |start: &[u8]| {
        let mut peers: Vec<_> = (0..40).map(|_| SlowPeer::new(&daemon, start)).collect();
        let before = daemon_ticks(&daemon);
        for _ in 0..400 {
            peers.iter_mut().for_each(SlowPeer::send_next_byte);
            honest.call();
        }
        assert!(peers.iter().all(|peer| peer.sent == 400 && !peer.ended));
        daemon_ticks(&daemon) - before
    };
    let (body, head) = (cost_of(&long_body[..24_000]), cost_of(&long_head[..long_head.len() - 4]));
    assert!(head <= 3 * body + 20, "{head} hundredths of a second for heads, {body} for bodies");
}

/// The processor time that the daemon has used, in the kernel's hundredths of a second.
fn daemon_ticks(daemon: &TestDaemon) -> u64 {
    let path = format!("/proc/{}/stat", daemon.pid());
    let stat = std::fs::read_to_string(path).expect("a running process has numbers");
    let (_, fields) = stat.rsplit_once(") ").expect("the name stands in parentheses");
    let fields: Vec<u64> = fields.split(' ').map(|field| field.parse().unwrap_or_default()).collect();
    fields[11] + fields[12]
}

#[test]
fn a_silent_connection_is_told_that_its_time_is_over() {
    let daemon = daemon().config("[limits]\nfirst_byte_ms = 200\n").start();
    let mut silent: Vec<_> = (0..50).map(|_| daemon.connection()).collect();
    for connection in &mut silent {
        assert_refused("silence", &read_last("silence", connection), 408, "Request timeout");
    }
}

#[test]
fn a_body_that_drips_is_sent_away_when_its_time_is_over() {
    let daemon = daemon().config("[limits]\nbody_ms = 700\n").start();
    let head = RequestBuilder::valid(&daemon).replace_header("Content-Length: 1048576").head();
    let mut honest = WellBehavedClient::new(&daemon);
    let mut peers: Vec<_> = (0..200).map(|_| SlowPeer::new(&daemon, &head)).collect();
    send_until_closed(&mut peers, &mut honest, "Body read timeout");
}

#[test]
fn a_connection_at_rest_is_closed_without_a_word() {
    let daemon = daemon().config("[limits]\nkeep_alive_ms = 200\n").start();
    let mut connection = daemon.connection();
    for _ in 0..5 {
        connection.send(&RequestBuilder::valid(&daemon).bytes());
        assert_result("before it rests", &connection.read_response());
    }
    assert!(connection.read_to_end().is_empty(), "no 408 to a client that asked for nothing");
}

#[test]
fn a_next_head_that_does_not_end_is_told_so_and_not_taken_for_rest() {
    let daemon = daemon().config("[limits]\nkeep_alive_ms = 200\nhead_ms = 400\n").start();
    let mut connection = daemon.connection();
    let bytes = RequestBuilder::valid(&daemon).bytes();
    connection.send(&[&bytes[..], &bytes[..30]].concat());
    assert_result("the first", &connection.read_response());
    let answer = read_last("the second", &mut connection);
    assert_refused("the second", &answer, 408, "Header read timeout");
}

#[test]
fn a_turn_longer_than_every_limit_of_the_door_is_answered() {
    let model = ScriptedModel::start();
    let limits =
        "[limits]\nkeep_alive_ms = 100\nhead_ms = 100\nbody_ms = 100\nfirst_byte_ms = 2000\nwrite_ms = 100\n";
    let daemon = daemon().model(&model).config(limits).start();
    let mut waiting = daemon.connection();
    let send = r#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"!hold gate done"}}"#;
    waiting.send(&RequestBuilder::valid(&daemon).body(send).bytes());
    model.wait_stalled(1);
    // Each of these ends by the clock that must not run for the one that waits.
    for _ in 0..3 {
        let mut resting = daemon.connection();
        resting.send(&RequestBuilder::valid(&daemon).bytes());
        assert_result("one that rests", &resting.read_response());
        assert!(resting.read_to_end().is_empty());
    }
    model.release("gate");
    let answer = waiting.read_response();
    assert_result("the one that waited", &answer);
    assert!(answer.text().contains("done released gate"), "{}", answer.text());
}

#[test]
fn a_peer_that_does_not_take_its_answer_is_dropped() {
    let model = ScriptedModel::start();
    let limits = format!("[limits]\nwrite_ms = 300\nbody_bytes_max = 16777216\n{LARGE_WINDOW_CONFIG}");
    let daemon = daemon().model(&model).config(&limits).start();
    daemon.call_result("/", "create_agent", json!({ "agent_id": "main", "model": "big" }));
    let content = "x".repeat(3 * 1024 * 1024);
    daemon.call_result("/", "send", json!({ "content": content }));
    let mut honest = WellBehavedClient::new(&daemon);
    honest.call_until("nobody else is there", || held_connections(daemon.port()) == 1);

    let ask = RequestBuilder::valid(&daemon).body(LIST_AGENTS.replace("list_agents", "get_messages")).bytes();
    let mut stubborn: Vec<RawConnection> = (0..4).map(|_| daemon.connection()).collect();
    for connection in &mut stubborn {
        connection.send(&ask);
    }
    for connection in &stubborn {
        let started = connection.stream().peek(&mut [0]).expect("an answer that begins");
        assert_eq!(started, 1, "only looked at, not taken");
    }
    honest.call_until("all are dropped", || held_connections(daemon.port()) == 1);
    for connection in &mut stubborn {
        let cut: std::io::Result<RawResponse> = connection.try_read_response();
        assert!(cut.is_err(), "an answer that was never taken came whole");
    }
    let mut willing = daemon.connection();
    willing.send(&ask);
    assert!(willing.read_response().body.len() > 2 * content.len(), "who reads gets all of it");
}
