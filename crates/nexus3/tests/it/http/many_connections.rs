//! Ten thousand connections at once: all taken, all cheap, all given back, and others are served meanwhile.

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::http::kernel_sockets::held_connections;
use crate::http::request_builder::RequestBuilder;
use crate::http::support::{WellBehavedClient, assert_result, daemon};

const CONNECTIONS: usize = 10_000;

/// What one idle connection may cost.
const CONNECTION_KB_MAX: u64 = 32;

const LONG_TIMEOUTS_CONFIG: &str = "[limits]\nfirst_byte_ms = 600000\nkeep_alive_ms = 600000\n";

#[test]
fn ten_thousand_idle_connections_are_taken_kept_cheap_and_given_back() {
    raise_descriptor_limit();
    let daemon = daemon().config(LONG_TIMEOUTS_CONFIG).start();
    let mut honest = WellBehavedClient::new(&daemon);
    honest.call();
    let before = daemon.anonymous_memory_kb();

    let mut crowd: Vec<TcpStream> = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        crowd.push(daemon.connect());
        if number % 500 == 0 {
            honest.call();
        }
    }
    honest.call_until("all are taken", || held_connections(daemon.port()) == CONNECTIONS + 1);
    let grown = daemon.anonymous_memory_kb().saturating_sub(before);
    assert!(grown <= CONNECTION_KB_MAX * CONNECTIONS as u64, "{grown} KB for {CONNECTIONS} connections");

    drop(crowd);
    honest.call_until("all are given back", || held_connections(daemon.port()) == 1);
}

#[test]
fn a_thousand_connections_that_rest_after_a_call_stay_cheap() {
    let daemon = daemon().config(LONG_TIMEOUTS_CONFIG).start();
    let mut honest = WellBehavedClient::new(&daemon);
    honest.call();
    let before = daemon.anonymous_memory_kb();
    let mut crowd: Vec<_> = (0..1000).map(|_| daemon.connection()).collect();
    for round in 0..2 {
        for connection in &mut crowd {
            connection.send(&RequestBuilder::valid(&daemon).bytes());
            assert_result(&format!("round {round}"), &connection.read_response());
        }
    }
    let grown = daemon.anonymous_memory_kb().saturating_sub(before);
    assert!(grown <= CONNECTION_KB_MAX * 1000, "{grown} KB for 1000 connections");
    drop(crowd);
    honest.call_until("all are given back", || held_connections(daemon.port()) == 1);
}

#[test]
fn who_comes_when_all_places_are_taken_waits_and_is_served() {
    let daemon = daemon().config("[limits]\nconnections_max = 4\nfirst_byte_ms = 600000\n").start();
    let mut seated: Vec<_> = (0..4).map(|_| WellBehavedClient::new(&daemon)).collect();
    for honest in &mut seated {
        honest.call();
    }
    let mut waiting = daemon.connection();
    waiting.send(&RequestBuilder::valid(&daemon).bytes());
    // The others are served as before; a call on each is time enough to take one too many.
    for honest in &mut seated {
        honest.call();
    }
    assert_eq!(held_connections(daemon.port()), 4);
    seated.pop();
    assert_result("a place was free", &waiting.read_response());
}

/// This process needs a descriptor for its end of each connection.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the soft limit can be raised to the hard one");
    let enough = limit.maximum.is_none_or(|most| most > CONNECTIONS as u64 + 500);
    assert!(
        enough,
        "this test opens {CONNECTIONS} connections, but only {:?} files may be open",
        limit.maximum
    );
}
