//! Ten thousand connections at once: the server accepts all, needs little memory for each, releases all, and serves
//! other clients meanwhile.

use std::net::TcpStream;

use testkit::http::{
    RequestBuilder, WellBehavedClient, assert_result, held_connections, raise_descriptor_limit,
};

use crate::http::daemon;

const CONNECTIONS: usize = 10_000;

/// Limit on the memory of an idle connection.
const CONNECTION_KB_MAX: u64 = 32;

const LONG_TIMEOUTS_CONFIG: &str = "[limits]\nfirst_byte_ms = 600000\nkeep_alive_ms = 600000\n";

#[test]
fn ten_thousand_idle_connections_are_cheap_and_released() {
    raise_descriptor_limit(CONNECTIONS);
    let daemon = daemon().config(LONG_TIMEOUTS_CONFIG).start();
    let mut client = WellBehavedClient::new(&daemon);
    client.call();
    let before = daemon.anonymous_memory_kb();

    let mut connections: Vec<TcpStream> = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        connections.push(daemon.connect());
        if number % 500 == 0 {
            client.call();
        }
    }
    client.call_until("all connections are accepted", || held_connections(daemon.port()) == CONNECTIONS + 1);
    let growth_kb = daemon.anonymous_memory_kb().saturating_sub(before);
    assert!(
        growth_kb <= CONNECTION_KB_MAX * CONNECTIONS as u64,
        "{growth_kb} KB for {CONNECTIONS} connections"
    );

    drop(connections);
    client.call_until("all connections are released", || held_connections(daemon.port()) == 1);
}

#[test]
fn a_thousand_idle_connections_after_a_call_are_cheap() {
    let daemon = daemon().config(LONG_TIMEOUTS_CONFIG).start();
    let mut client = WellBehavedClient::new(&daemon);
    client.call();
    let before = daemon.anonymous_memory_kb();
    let mut connections: Vec<_> = (0..1000).map(|_| daemon.connection()).collect();
    for round in 0..2 {
        for connection in &mut connections {
            connection.send(&RequestBuilder::valid(&daemon).bytes());
            assert_result(&format!("round {round}"), &connection.read_response());
        }
    }
    let growth_kb = daemon.anonymous_memory_kb().saturating_sub(before);
    assert!(growth_kb <= CONNECTION_KB_MAX * 1000, "{growth_kb} KB for 1000 connections");
    drop(connections);
    client.call_until("all connections are released", || held_connections(daemon.port()) == 1);
}
