//! Ten thousand connections at once: the server accepts all, needs little memory for each, releases all, and serves
//! other clients meanwhile.

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::http::kernel_sockets::held_connections;
use crate::http::request_builder::RequestBuilder;
use crate::http::support::{WellBehavedClient, assert_result, daemon};

const CONNECTIONS: usize = 10_000;

/// Limit on the memory of an idle connection.
const CONNECTION_KB_MAX: u64 = 32;

const LONG_TIMEOUTS_CONFIG: &str = "[limits]\nfirst_byte_ms = 600000\nkeep_alive_ms = 600000\n";

#[test]
fn ten_thousand_idle_connections_are_cheap_and_released() {
    raise_descriptor_limit();
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

#[test]
fn connection_beyond_the_limit_waits_and_is_served() {
    let daemon = daemon().config("[limits]\nconnections_max = 4\nfirst_byte_ms = 600000\n").start();
    let mut clients: Vec<_> = (0..4).map(|_| WellBehavedClient::new(&daemon)).collect();
    for client in &mut clients {
        client.call();
    }
    let mut waiting = daemon.connection();
    waiting.send(&RequestBuilder::valid(&daemon).bytes());
    // The other clients are still served. A call on each gives the server time to accept one connection too many.
    for client in &mut clients {
        client.call();
    }
    assert_eq!(held_connections(daemon.port()), 4);
    clients.pop();
    assert_result("after a connection was released", &waiting.read_response());
}

/// Raises the descriptor limit: this process needs one descriptor for its end of each connection.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the soft limit can be raised to the hard one");
    let is_enough = limit.maximum.is_none_or(|hard_limit| hard_limit > CONNECTIONS as u64 + 500);
    assert!(
        is_enough,
        "this test opens {CONNECTIONS} connections, but only {:?} files may be open",
        limit.maximum
    );
}
