//! Slow clients: heads sent byte by byte, bodies that never arrive, responses that the client does not read, and more
//! connections than the limit.

use std::time::Duration;
use std::time::Instant;

use serde_json::json;
use testkit::http::{
    LIST_AGENTS, RequestBuilder, SlowPeer, WAIT_MAX, WellBehavedClient, assert_refused, assert_result,
    held_connections, raise_descriptor_limit, read_last,
};
use testkit::{RawConnection, RawResponse};

use crate::fixture::door;

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
    raise_descriptor_limit(2 * 1000);
    let door = door().limits(|limits| limits.head_timeout = Duration::from_millis(1500)).open();
    let head = RequestBuilder::valid(&door).header("A: ").head();
    let start = &head[..head.len() - 4];
    let mut client = WellBehavedClient::new(&door);
    let mut peers: Vec<_> = (0..1000).map(|_| SlowPeer::new(&door, start)).collect();
    send_until_closed(&mut peers, &mut client, "Header read timeout");
    assert!(peers.iter().map(|peer| peer.sent).max() > Some(1), "the heads were not sent slowly");
    client.call_until("all connections are released", || held_connections(door.port()) == 1);
}

#[test]
fn silent_connection_gets_408() {
    let door = door().limits(|limits| limits.first_byte_timeout = Duration::from_millis(200)).open();
    let mut silent: Vec<_> = (0..50).map(|_| door.connection()).collect();
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
    let door = door().limits(|limits| limits.body_timeout = Duration::from_millis(700)).open();
    let head = RequestBuilder::valid(&door).replace_header("Content-Length: 1048576").head();
    let mut client = WellBehavedClient::new(&door);
    let mut peers: Vec<_> = (0..200).map(|_| SlowPeer::new(&door, &head)).collect();
    send_until_closed(&mut peers, &mut client, "Body read timeout");
}

#[test]
fn idle_connection_is_closed_without_a_response() {
    let door = door().limits(|limits| limits.keep_alive_timeout = Duration::from_millis(200)).open();
    let mut connection = door.connection();
    for _ in 0..5 {
        connection.send(&RequestBuilder::valid(&door).bytes());
        assert_result("before the idle timeout", &connection.read_response());
    }
    assert!(connection.read_to_end().is_empty(), "an idle client gets no 408");
}

#[test]
fn incomplete_second_head_gets_408_not_the_idle_timeout() {
    let door = door()
        .limits(|limits| {
            limits.keep_alive_timeout = Duration::from_millis(200);
            limits.head_timeout = Duration::from_millis(400);
        })
        .open();
    let mut connection = door.connection();
    let bytes = RequestBuilder::valid(&door).bytes();
    connection.send(&[&bytes[..], &bytes[..30]].concat());
    assert_result("first request", &connection.read_response());
    let response = read_last("second request", &mut connection);
    assert_refused("second request", &response, 408, "Header read timeout");
}

#[test]
fn turn_longer_than_every_http_timeout_gets_its_response() {
    let door = door()
        .limits(|limits| {
            let short = Duration::from_millis(100);
            (limits.keep_alive_timeout, limits.head_timeout, limits.body_timeout) = (short, short, short);
            (limits.first_byte_timeout, limits.write_timeout) = (20 * short, short);
        })
        .open();
    let mut waiting = door.connection();
    let send = r#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"say a; wait; say b; done"}}"#;
    waiting.send(&RequestBuilder::valid(&door).body(send).bytes());
    door.block_on(door.model.wait_paused(1));
    // The idle timeout closes each of these; it must not apply to the connection that waits for its turn.
    for _ in 0..3 {
        let mut idle = door.connection();
        idle.send(&RequestBuilder::valid(&door).bytes());
        assert_result("idle connection", &idle.read_response());
        assert!(idle.read_to_end().is_empty());
    }
    door.model.release_all();
    let response = waiting.read_response();
    assert_result("connection that waited", &response);
    assert!(response.text().contains(r#""content":"ab""#), "{}", response.text());
}

#[test]
fn client_that_does_not_read_its_response_is_dropped() {
    let door = door()
        .limits(|limits| {
            limits.write_timeout = Duration::from_millis(300);
            limits.body_bytes_max = 16 * 1024 * 1024;
        })
        .open();
    let content = format!("say {}; done", "x".repeat(3 * 1024 * 1024));
    door.call_result("/", "send", json!({ "content": content }));
    let mut client = WellBehavedClient::new(&door);
    client.call_until("no other connection is open", || held_connections(door.port()) == 1);

    let request =
        RequestBuilder::valid(&door).body(LIST_AGENTS.replace("list_agents", "get_messages")).bytes();
    let mut not_reading: Vec<RawConnection> = (0..4).map(|_| door.connection()).collect();
    for connection in &mut not_reading {
        connection.send(&request);
    }
    for connection in &not_reading {
        let started = connection.stream().peek(&mut [0]).expect("a response begins");
        assert_eq!(started, 1, "the peek reads one byte and consumes none");
    }
    client.call_until("all connections are dropped", || held_connections(door.port()) == 1);
    for connection in &mut not_reading {
        let cut: std::io::Result<RawResponse> = connection.try_read_response();
        assert!(cut.is_err(), "a response that was not read arrived complete");
    }
    let mut reading = door.connection();
    reading.send(&request);
    assert!(
        reading.read_response().body.len() > 6 * 1024 * 1024,
        "a client that reads gets the complete response"
    );
}

#[test]
fn connection_beyond_the_limit_waits_and_is_served() {
    let door = door()
        .limits(|limits| {
            limits.connections_max = 4;
            limits.first_byte_timeout = Duration::from_secs(600);
        })
        .open();
    let mut clients: Vec<_> = (0..4).map(|_| WellBehavedClient::new(&door)).collect();
    for client in &mut clients {
        client.call();
    }
    let mut waiting = door.connection();
    waiting.send(&RequestBuilder::valid(&door).bytes());
    // The other clients are still served. A call on each gives the server time to accept one connection too many.
    for client in &mut clients {
        client.call();
    }
    assert_eq!(held_connections(door.port()), 4);
    clients.pop();
    assert_result("after a connection was released", &waiting.read_response());
}
