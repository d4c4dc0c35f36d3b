//! Peers that leave early: half closed, reset in the middle of a request, gone before their answer.

use serde_json::json;
use testkit::{ScriptedModel, TestDaemon};

use crate::http::kernel_sockets::held_connections;
use crate::http::request_builder::RequestBuilder;
use crate::http::support::{WellBehavedClient, agents, assert_result, daemon, read_last};

#[test]
fn a_peer_that_only_listens_any_more_gets_its_answer() {
    let daemon = daemon().start();
    for chunked in [false, true] {
        let good = RequestBuilder::valid(&daemon);
        let ask =
            if chunked { good.chunks([crate::http::request_builder::LIST_AGENTS.as_bytes()]) } else { good };
        let mut connection = daemon.connection();
        connection.send(&ask.bytes());
        connection.shutdown_write();
        assert_result("half closed", &read_last("half closed", &mut connection));
    }
    let mut connection = daemon.connection();
    connection.send(&RequestBuilder::valid(&daemon).bytes().repeat(20));
    connection.shutdown_write();
    for _ in 0..19 {
        assert_result("half closed, pipelined", &connection.read_response());
    }
    assert_result("half closed, pipelined", &read_last("the last", &mut connection));
}

#[test]
fn a_peer_that_only_listens_any_more_waits_for_its_turn() {
    let model = ScriptedModel::start();
    let daemon = daemon().model(&model).start();
    let mut connection = daemon.connection();
    connection.send(&send_request(&daemon, "!hold gate done"));
    connection.shutdown_write();
    model.wait_stalled(1);
    WellBehavedClient::new(&daemon).call();
    model.release("gate");
    let answer = read_last("half closed", &mut connection);
    assert_result("half closed", &answer);
    assert_eq!(answer.json()["result"]["content"], "done released gate");
}

#[test]
fn a_request_cut_off_at_any_byte_has_no_effect() {
    let daemon = daemon().start();
    let whole = RequestBuilder::create_agent(&daemon, "cut").bytes();
    for cut in 0..whole.len() {
        let mut connection = daemon.connection();
        connection.send(&whole[..cut]);
        connection.reset();
    }
    let mut honest = WellBehavedClient::new(&daemon);
    honest.call_until("all are given back", || held_connections(daemon.port()) == 1);
    assert!(honest.agents().is_empty());
}

#[test]
fn a_request_that_ends_at_any_byte_has_no_effect_and_is_told_so() {
    let daemon = daemon().start();
    let whole = RequestBuilder::create_agent(&daemon, "cut").bytes();
    for cut in 0..whole.len() {
        let mut connection = daemon.connection();
        connection.send(&whole[..cut]);
        connection.shutdown_write();
        let name = format!("cut at {cut}");
        assert_eq!(read_last(&name, &mut connection).status, 400, "{name}");
    }
    assert!(agents(&daemon).is_empty());
}

#[test]
fn peers_that_leave_right_after_asking_harm_nobody() {
    let daemon = daemon().start();
    let mut honest = WellBehavedClient::new(&daemon);
    for number in 0..200 {
        let mut connection = daemon.connection();
        connection.send(&RequestBuilder::create_agent(&daemon, &format!("left-{number}")).bytes());
        if number % 2 == 0 {
            connection.reset();
        }
    }
    honest.call_until("all are given back", || held_connections(daemon.port()) == 1);
    // Whole requests may have been run; each agent is then there once, and answers.
    let found = honest.agents();
    let mut unique = found.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(found.len(), unique.len());
    for agent in found {
        daemon.call_result(&format!("/agent/{agent}"), "get_context", json!({}));
    }
}

#[test]
fn a_turn_goes_on_when_its_client_has_left() {
    let model = ScriptedModel::start();
    let daemon = daemon().model(&model).start();
    let mut connection = daemon.connection();
    connection.send(&send_request(&daemon, "!hold gate done"));
    model.wait_stalled(1);
    connection.reset();
    let mut honest = WellBehavedClient::new(&daemon);
    honest.call();
    model.release("gate");
    let said = || daemon.call_result("/", "get_messages", json!({}))["messages"].to_string();
    honest.call_until("the turn has ended", || said().contains("done released gate"));
}

#[test]
fn answers_that_nobody_waits_for_are_thrown_away() {
    let daemon = daemon().start();
    let many = RequestBuilder::valid(&daemon).bytes().repeat(50);
    for _ in 0..50 {
        let mut connection = daemon.connection();
        connection.send(&many);
        connection.reset();
    }
    let mut honest = WellBehavedClient::new(&daemon);
    honest.call_until("all are given back", || held_connections(daemon.port()) == 1);
}

/// A message to `main`.
fn send_request(daemon: &TestDaemon, content: &str) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "send", "params": { "content": content } });
    RequestBuilder::valid(daemon).body(body.to_string()).bytes()
}
