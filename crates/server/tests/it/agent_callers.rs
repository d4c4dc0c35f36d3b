//! Callers with an agent's capability token: what they learn about other agents, and their share of event streams.

use serde_json::{Value, json};
use testkit::http::RequestBuilder;
use testkit::rpc_request;

use crate::fixture::{TestDoor, door};

fn create(door: &TestDoor, id: &str) -> String {
    let created = door.call_result("/", "create_agent", json!({ "agent_id": id, "preset": "trusted" }));
    created["token"].as_str().expect("a new agent has a token").to_owned()
}

fn as_agent(door: &TestDoor, token: &str) -> RequestBuilder {
    RequestBuilder::valid(door).replace_header(format!("Authorization: Bearer {token}"))
}

/// Status and body of a request, without the agent's id.
fn answer(door: &TestDoor, request: &RequestBuilder, id: &str) -> (u16, String) {
    let response = door.send_raw(&request.bytes());
    (response.status, response.text().replace(id, "ID"))
}

#[test]
fn foreign_and_unknown_agents_give_the_same_answer() {
    let door = door().open();
    let token = create(&door, "worker");
    create(&door, "foreign");
    let named = |id: &str| {
        [
            ("destroy_agent", json!({ "agent_id": id })),
            ("export_agent", json!({ "agent_id": id })),
            ("fork_agent", json!({ "agent_id": id })),
            ("rollback_agent", json!({ "agent_id": id, "messages": 0 })),
            ("create_agent", json!({ "parent_agent_id": id })),
        ]
    };
    let at_agent = [
        ("get_agent", json!({})),
        ("get_messages", json!({})),
        ("send", json!({ "content": "hi" })),
        ("cancel", json!({ "request_id": 1 })),
        ("nope", json!({})),
        ("send", json!({})),
    ];
    let requests = |id: &str| {
        let request = as_agent(&door, &token);
        let call = |path: &str, method: &str, params: &Value| {
            request.clone().target(path).body(rpc_request(1, method, params.clone()))
        };
        let mut requests: Vec<_> =
            named(id).iter().map(|(method, params)| call("/", method, params)).collect();
        let path = format!("/agent/{id}");
        requests.extend(at_agent.iter().map(|(method, params)| call(&path, method, params)));
        requests.push(call(&path, "send", &json!({ "content": "hi" })).header("Accept: text/event-stream"));
        requests.push(request.clone().target(&path).body("{"));
        requests.push(request.clone().target(&path).header("Content-Encoding: gzip"));
        requests.push(request.clone().method("GET").target(format!("{path}/events")).body(""));
        requests.push(request.clone().method("GET").target(format!("{path}/events?after=x")).body(""));
        requests
    };
    for (foreign, unknown) in requests("foreign").iter().zip(&requests("unknown")) {
        let text = String::from_utf8_lossy(&foreign.bytes()).into_owned();
        assert_eq!(answer(&door, foreign, "foreign"), answer(&door, unknown, "unknown"), "{text}");
    }
    let as_admin = RequestBuilder::valid(&door).target("/agent/unknown");
    assert_eq!(door.send_raw(&as_admin.bytes()).status, 404, "an admin learns that the agent does not exist");
}

#[test]
fn streams_of_one_agent_leave_room_for_others() {
    let door = door().limits(|limits| limits.event_streams_max = 32).open();
    let (worker, other) = (create(&door, "worker"), create(&door, "other"));
    let open = |request: &RequestBuilder| {
        let mut connection = door.connection();
        connection.send(&request.bytes());
        let status = connection.read_head_response().expect("a response").status;
        (status, connection)
    };
    let events = |request: RequestBuilder| request.method("GET").target("/events").body("");
    let mut held = Vec::new();
    for number in 0..32 {
        let (status, connection) = open(&events(as_agent(&door, &worker)));
        assert_eq!(status, if number < 2 { 200 } else { 503 }, "stream {number}");
        held.push(connection);
    }
    for request in [as_agent(&door, &other), RequestBuilder::valid(&door)] {
        let (status, connection) = open(&events(request));
        assert_eq!(status, 200, "others still get a stream");
        held.push(connection);
    }
}
