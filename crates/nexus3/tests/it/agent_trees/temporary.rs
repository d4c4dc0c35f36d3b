//! Temporary agents: each gets the lowest free number as its id.

use serde_json::{Value, json};

use crate::support::pending_calls::PendingCalls;
use crate::support::{ExpectError as _, Fixture, agent_ids};

#[test]
fn a_temporary_agent_gets_the_lowest_free_number() {
    let fixture = Fixture::start();
    let create = || -> Value {
        fixture.daemon.call_result("/", "create_agent", json!({ "temporary": true }))["agent_id"].take()
    };
    assert_eq!([create(), create(), create()], [".1", ".2", ".3"]);
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": ".2" }));
    fixture.create(".4");
    assert_eq!([create(), create()], [".2", ".5"]);
    assert_eq!(fixture.agent(".2")["agent"]["is_temp"], true);
    assert_eq!(agent_ids(&fixture.daemon), [".1", ".3", ".4", ".2", ".5"]);
}

#[test]
fn temporary_cannot_be_combined_with_an_id() {
    let fixture = Fixture::start();
    let error = fixture.daemon.error("/", "create_agent", json!({ "agent_id": "a", "temporary": true }));
    assert_eq!(error, json!({ "code": -32602, "message": "temporary cannot be combined with agent_id" }));
    fixture.create_with(json!({ "agent_id": "a", "temporary": false }));
    assert_eq!(agent_ids(&fixture.daemon), ["a"]);
}

#[test]
fn concurrent_temporary_agents_get_distinct_ids() {
    let fixture = Fixture::start();
    let mut calls = PendingCalls::new();
    for _ in 0..12 {
        calls.start(&fixture.daemon, "/", "create_agent", json!({ "temporary": true }));
    }
    let mut ids: Vec<String> =
        (0..12).map(|_| calls.next_result()["agent_id"].as_str().unwrap().to_owned()).collect();
    ids.sort_by_key(|id| id[1..].parse::<usize>().unwrap());
    let expected: Vec<_> = (1..=12).map(|number| format!(".{number}")).collect();
    assert_eq!(ids, expected);
}
