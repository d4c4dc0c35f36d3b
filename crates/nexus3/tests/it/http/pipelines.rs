//! Requests sent ahead of their answers: answered one after the other, up to the first that ends the connection.

use std::io::{Read as _, Write as _};

use serde_json::json;
use testkit::{RawConnection, ScriptedModel, TestDaemon};

use crate::http::request_builder::RequestBuilder;
use crate::http::support::{WellBehavedClient, agents, assert_refused, assert_result, daemon, read_last};

/// A call with this id.
fn numbered(daemon: &TestDaemon, id: usize) -> RequestBuilder {
    RequestBuilder::valid(daemon)
        .body(json!({ "jsonrpc": "2.0", "id": id, "method": "list_agents" }).to_string())
}

fn read_numbered(connection: &mut RawConnection, ids: std::ops::Range<usize>) {
    for id in ids {
        let answer = connection.read_response();
        assert_eq!((answer.status, &answer.json()["id"]), (200, &json!(id)));
    }
}

#[test]
fn a_hundred_requests_at_once_are_answered_in_their_order() {
    let daemon = daemon().start();
    let mut connection = daemon.connection();
    let bytes: Vec<u8> = (0..100).flat_map(|id| numbered(&daemon, id).bytes()).collect();
    connection.send(&bytes);
    read_numbered(&mut connection, 0..100);
    // Cut anywhere, it is the same.
    for piece in bytes.chunks(97) {
        connection.send(piece);
    }
    read_numbered(&mut connection, 0..100);
}

#[test]
fn a_thousand_requests_with_large_bodies_are_answered_in_their_order() {
    let daemon = daemon().start();
    let mut connection = daemon.connection();
    let sender = connection.stream().try_clone().expect("a socket can be shared");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = sender;
            for id in 0..1000 {
                let body = json!({ "jsonrpc": "2.0", "id": id, "method": "list_agents" }).to_string();
                let bytes = RequestBuilder::valid(&daemon).body(format!("{body:<9000}")).bytes();
                sender.write_all(&bytes).expect("the door takes more");
            }
        });
        read_numbered(&mut connection, 0..1000);
    });
}

#[test]
fn a_malformed_request_among_others_is_answered_in_its_place_and_is_the_last() {
    let daemon = daemon().start();
    let spoiled = [
        (
            "malformed",
            RequestBuilder::valid(&daemon).header("A : a"),
            400,
            "Invalid header line: the name is not a token",
        ),
        (
            "too large",
            RequestBuilder::valid(&daemon).replace_header("Content-Length: 1048577"),
            413,
            TOO_LARGE,
        ),
        (
            "two lengths",
            RequestBuilder::valid(&daemon).header("Content-Length: 47"),
            400,
            "Invalid Content-Length: 47",
        ),
    ];
    for (name, ask, status, message) in spoiled {
        let before: Vec<u8> = (0..50).flat_map(|id| numbered(&daemon, id).bytes()).collect();
        let after = RequestBuilder::create_agent(&daemon, "after").bytes().repeat(49);
        let mut connection = daemon.connection();
        connection.send(&[before, ask.bytes(), after].concat());
        read_numbered(&mut connection, 0..50);
        assert_refused(name, &read_last(name, &mut connection), status, message);
    }
    assert!(agents(&daemon).is_empty());
}

const TOO_LARGE: &str = "Request body too large: 1048577 > 1048576";

#[test]
fn a_refused_request_among_others_is_answered_in_its_place_and_the_rest_goes_on() {
    let daemon = daemon().start();
    let refused = numbered(&daemon, 1).target("/agent/nope").bytes();
    let mut connection = daemon.connection();
    let before: Vec<u8> = (0..50).flat_map(|id| numbered(&daemon, id).bytes()).collect();
    let after: Vec<u8> = (50..100).flat_map(|id| numbered(&daemon, id).bytes()).collect();
    connection.send(&[before, refused, after].concat());
    read_numbered(&mut connection, 0..50);
    assert_refused("in the middle", &connection.read_response(), 404, "Agent not found: nope");
    read_numbered(&mut connection, 50..100);
}

#[test]
fn a_stalled_request_holds_up_its_followers_but_not_its_forerunners() {
    let model = ScriptedModel::start();
    let daemon = daemon().model(&model).start();
    let params = json!({ "content": "!hold gate done" });
    let stalled = json!({ "jsonrpc": "2.0", "id": 1, "method": "send", "params": params }).to_string();
    let stalled = RequestBuilder::valid(&daemon).body(stalled).bytes();
    let mut connection = daemon.connection();
    let (before, after) =
        (numbered(&daemon, 0).bytes(), RequestBuilder::create_agent(&daemon, "after").bytes());
    connection.send(&[before, stalled, after].concat());
    read_numbered(&mut connection, 0..1);
    model.wait_stalled(1);
    assert_eq!(agents(&daemon), ["main"], "what stands behind has to wait");
    model.release("gate");
    assert_result("the stalled one", &connection.read_response());
    assert_result("the one behind it", &connection.read_response());
    assert_eq!(agents(&daemon), ["main", "after"]);
}

#[test]
fn nothing_is_run_behind_a_request_that_asks_for_the_end() {
    let daemon = daemon().start();
    let creating = RequestBuilder::create_agent(&daemon, "after").bytes();
    for times in [1, 100, 2000] {
        let last = RequestBuilder::valid(&daemon).header("Connection: close").bytes();
        let mut stream = daemon.connect();
        stream.write_all(&[last, creating.repeat(times)].concat()).expect("what stands behind is taken");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("the connection ends in order");
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 1, "{answers}");
        assert!(answers.ends_with(r#""result":{"agents":[],"total":0}}"#), "{answers}");
    }
    assert!(agents(&daemon).is_empty());
}

#[test]
fn a_peer_that_goes_on_sending_after_its_refusal_is_not_cut_off() {
    let daemon = daemon().start();
    let mut honest = WellBehavedClient::new(&daemon);
    let good = RequestBuilder::valid(&daemon);
    let refused = [
        ("malformed", good.clone().header("A : a"), "the name is not a token"),
        (
            "another target",
            good.clone().target("http://evil.example/"),
            "Request target and Host header disagree",
        ),
        (
            "a body to come",
            good.clone().replace_header("Content-Length: 100000").target("/nope"),
            "Not found.",
        ),
    ];
    for (name, ask, message) in refused {
        let mut connection = daemon.connection();
        connection.send(&[ask.bytes(), good.bytes().repeat(100)].concat());
        let begun = connection.stream().peek(&mut [0]).expect("an answer that begins");
        assert_eq!(begun, 1, "{name}");
        // A connection that was reset takes no second write.
        for _ in 0..5 {
            honest.call();
            connection.send(&good.bytes());
        }
        let answer = read_last(name, &mut connection);
        assert!(answer.text().contains(message), "{name}: {}", answer.text());
    }
}
