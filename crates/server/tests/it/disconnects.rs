//! Clients that disconnect early: half-closed, reset in the middle of a request, gone before the response.

use serde_json::json;
use testkit::http::{RequestBuilder, WellBehavedClient, agents, assert_result, held_connections, read_last};

use crate::fixture::{TestDoor, door};

#[test]
fn half_closed_client_gets_its_response() {
    let door = door().open();
    for chunked in [false, true] {
        let valid = RequestBuilder::valid(&door);
        let request = if chunked { valid.chunks([testkit::http::LIST_AGENTS.as_bytes()]) } else { valid };
        let mut connection = door.connection();
        connection.send(&request.bytes());
        connection.shutdown_write();
        assert_result("half-closed", &read_last("half-closed", &mut connection));
    }
    let mut connection = door.connection();
    connection.send(&RequestBuilder::valid(&door).bytes().repeat(20));
    connection.shutdown_write();
    for _ in 0..19 {
        assert_result("half-closed, pipelined", &connection.read_response());
    }
    assert_result("half-closed, pipelined", &read_last("half-closed, last response", &mut connection));
}

#[test]
fn half_closed_client_gets_the_response_of_its_turn() {
    let door = door().open();
    let mut connection = door.connection();
    connection.send(&send_request(&door, "say a; wait; say b; done"));
    connection.shutdown_write();
    door.block_on(door.model.wait_paused(1));
    WellBehavedClient::new(&door).call();
    door.model.release_all();
    let response = read_last("half-closed", &mut connection);
    assert_result("half-closed", &response);
    assert_eq!(response.json()["result"]["content"], "ab");
}

#[test]
fn request_reset_at_any_byte_has_no_effect() {
    let door = door().open();
    let complete = RequestBuilder::create_agent(&door, "cut").bytes();
    for cut in 0..complete.len() {
        let mut connection = door.connection();
        connection.send(&complete[..cut]);
        connection.reset();
    }
    let mut client = WellBehavedClient::new(&door);
    client.call_until("all connections are released", || held_connections(door.port()) == 1);
    assert!(client.agents().is_empty());
}

#[test]
fn request_truncated_at_any_byte_gets_400_and_has_no_effect() {
    let door = door().open();
    let complete = RequestBuilder::create_agent(&door, "cut").bytes();
    for cut in 0..complete.len() {
        let mut connection = door.connection();
        connection.send(&complete[..cut]);
        connection.shutdown_write();
        let name = format!("cut at {cut}");
        assert_eq!(read_last(&name, &mut connection).status, 400, "{name}");
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn clients_that_leave_after_sending_do_no_harm() {
    let door = door().open();
    let mut client = WellBehavedClient::new(&door);
    for number in 0..200 {
        let mut connection = door.connection();
        connection.send(&RequestBuilder::create_agent(&door, &format!("left-{number}")).bytes());
        if number % 2 == 0 {
            connection.reset();
        }
    }
    client.call_until("all connections are released", || held_connections(door.port()) == 1);
    // Complete requests may have run: each agent then exists once and responds.
    let found = client.agents();
    let mut unique = found.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(found.len(), unique.len());
    for agent in found {
        door.call_result(&format!("/agent/{agent}"), "get_context", json!({}));
    }
}

#[test]
fn turn_continues_after_its_client_disconnects() {
    let door = door().open();
    let mut connection = door.connection();
    connection.send(&send_request(&door, "say a; wait; say b; done"));
    door.block_on(door.model.wait_paused(1));
    connection.reset();
    let mut client = WellBehavedClient::new(&door);
    client.call();
    door.model.release_all();
    let messages = || door.call_result("/", "get_messages", json!({}))["messages"].to_string();
    client.call_until("the turn has ended", || messages().contains(r#""content":"ab""#));
}

#[test]
fn responses_to_reset_connections_are_discarded() {
    let door = door().open();
    let pipeline = RequestBuilder::valid(&door).bytes().repeat(50);
    for _ in 0..50 {
        let mut connection = door.connection();
        connection.send(&pipeline);
        connection.reset();
    }
    let mut client = WellBehavedClient::new(&door);
    client.call_until("all connections are released", || held_connections(door.port()) == 1);
}

/// The bytes of a `send` request to `main`.
fn send_request(door: &TestDoor, content: &str) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "send", "params": { "content": content } });
    RequestBuilder::valid(door).body(body.to_string()).bytes()
}
