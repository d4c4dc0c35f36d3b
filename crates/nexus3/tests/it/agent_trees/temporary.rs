//! Temporary names: the lowest number that is free.

use serde_json::{Value, json};

use crate::support::pending_calls::PendingCalls;
use crate::support::{ExpectError as _, Fixture, agent_ids};

#[test]
fn a_temporary_agent_gets_the_lowest_free_number() {
    let stage = Fixture::start();
    let name = || -> Value {
        stage.daemon.call_result("/", "create_agent", json!({ "temporary": true }))["agent_id"].take()
    };
    assert_eq!([name(), name(), name()], [".1", ".2", ".3"]);
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": ".2" }));
    stage.create(".4");
    assert_eq!([name(), name()], [".2", ".5"]);
    assert_eq!(stage.agent(".2")["agent"]["is_temp"], true);
    assert_eq!(agent_ids(&stage.daemon), [".1", ".3", ".4", ".2", ".5"]);
}

#[test]
fn a_name_and_a_temporary_name_are_one_too_many() {
    let stage = Fixture::start();
    let error = stage.daemon.error("/", "create_agent", json!({ "agent_id": "a", "temporary": true }));
    assert_eq!(error, json!({ "code": -32602, "message": "temporary cannot be combined with agent_id" }));
    stage.create_with(json!({ "agent_id": "a", "temporary": false }));
    assert_eq!(agent_ids(&stage.daemon), ["a"]);
}

#[test]
fn many_temporary_agents_at_once_get_a_name_each() {
    let stage = Fixture::start();
    let mut calls = PendingCalls::new();
    for _ in 0..12 {
        calls.start(&stage.daemon, "/", "create_agent", json!({ "temporary": true }));
    }
    let mut names: Vec<String> =
        (0..12).map(|_| calls.next_result()["agent_id"].as_str().unwrap().to_owned()).collect();
    names.sort_by_key(|name| name[1..].parse::<usize>().unwrap());
    let expected: Vec<_> = (1..=12).map(|number| format!(".{number}")).collect();
    assert_eq!(names, expected);
}
