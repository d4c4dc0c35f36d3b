//! HTTP pipelining: the server responds in order, up to the first request that closes the connection.

use std::io::{Read as _, Write as _};

use serde_json::json;
use testkit::RawConnection;
use testkit::http::{RequestBuilder, WellBehavedClient, agents, assert_refused, assert_result, read_last};

use crate::fixture::{TestDoor, door};

/// A `list_agents` request with this id.
fn request_with_id(door: &TestDoor, id: usize) -> RequestBuilder {
    RequestBuilder::valid(door)
        .body(json!({ "jsonrpc": "2.0", "id": id, "method": "list_agents" }).to_string())
}

fn read_responses(connection: &mut RawConnection, ids: std::ops::Range<usize>) {
    for id in ids {
        let response = connection.read_response();
        assert_eq!((response.status, &response.json()["id"]), (200, &json!(id)));
    }
}

#[test]
fn a_hundred_pipelined_requests_get_responses_in_order() {
    let door = door().open();
    let mut connection = door.connection();
    let bytes: Vec<u8> = (0..100).flat_map(|id| request_with_id(&door, id).bytes()).collect();
    connection.send(&bytes);
    read_responses(&mut connection, 0..100);
    // The same in pieces that do not match the requests.
    for piece in bytes.chunks(97) {
        connection.send(piece);
    }
    read_responses(&mut connection, 0..100);
}

#[test]
fn a_thousand_large_requests_get_responses_in_order() {
    let door = door().open();
    let mut connection = door.connection();
    let sender = connection.stream().try_clone().expect("a socket can be cloned");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = sender;
            for id in 0..1000 {
                let body = json!({ "jsonrpc": "2.0", "id": id, "method": "list_agents" }).to_string();
                let bytes = RequestBuilder::valid(&door).body(format!("{body:<9000}")).bytes();
                sender.write_all(&bytes).expect("the server reads on");
            }
        });
        read_responses(&mut connection, 0..1000);
    });
}

#[test]
fn malformed_request_in_a_pipeline_ends_it() {
    let door = door().open();
    let malformed = [
        (
            "malformed",
            RequestBuilder::valid(&door).header("A : a"),
            400,
            "Invalid header line: the name is not a token",
        ),
        ("too large", RequestBuilder::valid(&door).replace_header("Content-Length: 1048577"), 413, TOO_LARGE),
        (
            "two lengths",
            RequestBuilder::valid(&door).header("Content-Length: 47"),
            400,
            "Invalid Content-Length: 47",
        ),
    ];
    for (name, request, status, message) in malformed {
        let before: Vec<u8> = (0..50).flat_map(|id| request_with_id(&door, id).bytes()).collect();
        let after = RequestBuilder::create_agent(&door, "after").bytes().repeat(49);
        let mut connection = door.connection();
        connection.send(&[before, request.bytes(), after].concat());
        read_responses(&mut connection, 0..50);
        assert_refused(name, &read_last(name, &mut connection), status, message);
    }
    assert!(agents(&door).is_empty());
}

const TOO_LARGE: &str = "Request body too large: 1048577 > 1048576";

#[test]
fn refused_request_in_a_pipeline_does_not_end_it() {
    let door = door().open();
    let refused = request_with_id(&door, 1).target("/agent/nope").bytes();
    let mut connection = door.connection();
    let before: Vec<u8> = (0..50).flat_map(|id| request_with_id(&door, id).bytes()).collect();
    let after: Vec<u8> = (50..100).flat_map(|id| request_with_id(&door, id).bytes()).collect();
    connection.send(&[before, refused, after].concat());
    read_responses(&mut connection, 0..50);
    assert_refused("in the middle", &connection.read_response(), 404, "Agent not found: nope");
    read_responses(&mut connection, 50..100);
}

#[test]
fn stalled_request_delays_only_the_requests_after_it() {
    let door = door().open();
    let params = json!({ "content": "wait; say a; done" });
    let stalled = json!({ "jsonrpc": "2.0", "id": 1, "method": "send", "params": params }).to_string();
    let stalled = RequestBuilder::valid(&door).body(stalled).bytes();
    let mut connection = door.connection();
    let (before, after) =
        (request_with_id(&door, 0).bytes(), RequestBuilder::create_agent(&door, "after").bytes());
    connection.send(&[before, stalled, after].concat());
    read_responses(&mut connection, 0..1);
    door.block_on(door.model.wait_paused(1));
    assert_eq!(agents(&door), ["main"], "the request after the stalled one waits");
    door.model.release_all();
    assert_result("the stalled request", &connection.read_response());
    assert_result("the request after it", &connection.read_response());
    assert_eq!(agents(&door), ["main", "after"]);
}

#[test]
fn no_request_runs_after_connection_close() {
    let door = door().open();
    let create_agent = RequestBuilder::create_agent(&door, "after").bytes();
    for times in [1, 100, 2000] {
        let last = RequestBuilder::valid(&door).header("Connection: close").bytes();
        let mut stream = door.connect();
        stream
            .write_all(&[last, create_agent.repeat(times)].concat())
            .expect("the server reads the requests that follow");
        let mut responses = String::new();
        stream.read_to_string(&mut responses).expect("the connection closes without a reset");
        assert_eq!(responses.matches("HTTP/1.1 200 OK").count(), 1, "{responses}");
        assert!(responses.ends_with(r#""result":{"agents":[],"total":0}}"#), "{responses}");
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn client_that_sends_on_after_a_refusal_is_not_reset() {
    let door = door().open();
    let mut client = WellBehavedClient::new(&door);
    let valid = RequestBuilder::valid(&door);
    let refused = [
        ("malformed", valid.clone().header("A : a"), "the name is not a token"),
        (
            "target of another host",
            valid.clone().target("http://evil.example/"),
            "Request target and Host header disagree",
        ),
        (
            "body not sent",
            valid.clone().replace_header("Content-Length: 100000").target("/nope"),
            "Not found.",
        ),
    ];
    for (name, request, message) in refused {
        let mut connection = door.connection();
        connection.send(&[request.bytes(), valid.bytes().repeat(100)].concat());
        let peeked_bytes = connection.stream().peek(&mut [0]).expect("a response begins");
        assert_eq!(peeked_bytes, 1, "{name}");
        // After a reset the second write would fail.
        for _ in 0..5 {
            client.call();
            connection.send(&valid.bytes());
        }
        let response = read_last(name, &mut connection);
        assert!(response.text().contains(message), "{name}: {}", response.text());
    }
}
