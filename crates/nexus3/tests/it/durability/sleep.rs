//! Agents that rest leave memory, and come back with everything when somebody calls.

use serde_json::{Value, json};

use super::send_params;
use crate::support::callers::result_as;
use crate::support::folder::TestDirectory;
use crate::support::pending_calls::PendingCalls;
use crate::support::{Fixture, agent_path, wait_until};

/// Who is live; asking wakes nobody.
fn live_agents(stage: &Fixture) -> Vec<String> {
    let listing = stage.daemon.call_result("/", "list_sessions", json!({ "limit": 2000 }));
    let sessions = listing["sessions"].as_array().expect("a list of sessions").clone();
    let live = sessions.into_iter().filter(|session| session["state"] == "live");
    live.map(|session| session["agent_id"].as_str().expect("a name").to_owned()).collect()
}

fn texts(stage: &Fixture, agent: &str) -> Vec<String> {
    stage.messages(agent).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn an_agent_that_rests_goes_to_sleep_and_is_woken_by_a_call() {
    let stage = Fixture::with_config("idle_sleep_s = 1\n");
    let folder = TestDirectory::new();
    let params = json!({
        "agent_id": "worker", "preset": "trusted", "cwd": folder.path_str(), "system_prompt": "You sleep well.",
        "budget": { "turns": 9 },
    });
    let token = stage.create_with(params);
    stage.send("worker", "one");
    let (agent, permissions) = (stage.agent("worker"), stage.permissions("worker"));
    wait_until("sleep", || live_agents(&stage).is_empty());
    let list = stage.daemon.call_result("/", "list_agents", json!({}));
    assert_eq!(list["agents"][0]["state"], "asleep");
    assert_eq!(
        (stage.agent("worker"), stage.permissions("worker")),
        (agent, permissions),
        "nothing has changed"
    );
    assert_eq!(live_agents(&stage), ["worker"]);
    wait_until("sleep again", || live_agents(&stage).is_empty());
    let own = result_as(&stage.daemon, &token, &agent_path("worker"), "get_messages", json!({}));
    assert_eq!(own["total"], 2, "its token wakes it too");
    assert_eq!(stage.send_text("worker", "!history"), "one | !history");
    assert_eq!(stage.resource_usage("worker", "turns")[1], json!(2));
}

#[test]
fn nobody_falls_asleep_who_works_or_is_watched() {
    let stage = Fixture::with_config("idle_sleep_s = 1\n");
    for name in ["works", "watched", "rests"] {
        stage.create(name);
    }
    let open = stage.start_send("works", "!hold gate so far", "r");
    let mut events = stage.daemon.events("/agent/watched/events", None);
    wait_until("the others to sleep", || !live_agents(&stage).contains(&"rests".to_owned()));
    assert_eq!(live_agents(&stage), ["works", "watched"]);
    stage.model.release("gate");
    assert_eq!(open.next_result()["content"], "so far released gate");
    stage.send("watched", "hello");
    assert_eq!(events.next_event(crate::support::WAIT_MAX).kind, "turn_accepted");
}

#[test]
fn fifty_first_calls_after_a_restart_wake_an_agent_once_and_are_all_answered() {
    let stage = Fixture::start();
    stage.create("worker");
    stage.send("worker", "before");
    let stage = stage.kill_and_start();
    let mut calls = PendingCalls::new();
    for number in 0..50 {
        let id = number.to_string();
        calls.start(&stage.daemon, &agent_path("worker"), "send", send_params(&id, &id));
    }
    let mut answers: Vec<String> =
        (0..50).map(|_| calls.next_result()["content"].as_str().expect("an answer").to_owned()).collect();
    let mut expected: Vec<String> = (0..50).map(|number| format!("echo: {number}")).collect();
    answers.sort();
    expected.sort();
    assert_eq!(answers, expected);
    let said = texts(&stage, "worker");
    assert_eq!((said.len(), said[0].as_str()), (102, "before"));
    crate::support::model_requests::assert_all_valid(&stage.model);
}

#[test]
fn fifty_agents_are_woken_at_once() {
    let stage = Fixture::start();
    let names: Vec<String> = (0..50).map(|number| format!("a{number}")).collect();
    names.iter().for_each(|name| stage.create(name));
    let stage = stage.kill_and_start();
    assert!(live_agents(&stage).is_empty(), "a start wakes nobody");
    let mut calls = PendingCalls::new();
    for name in &names {
        for _ in 0..2 {
            calls.start(&stage.daemon, &agent_path(name), "send", send_params(name, name));
        }
    }
    for _ in 0..100 {
        let answer: Value = calls.next_result();
        assert_eq!(answer["content"], format!("echo: {}", answer["request_id"].as_str().expect("a name")));
    }
    for name in &names {
        assert_eq!(texts(&stage, name).len(), 2, "the same send is one send");
        assert_eq!(stage.model.call_counts(name, 0).requests, 1);
    }
}

#[test]
fn only_so_many_agents_are_live_at_once() {
    const LIVE_MAX: usize = 4;
    let stage = Fixture::with_config(&format!("[limits]\nlive_agents_max = {LIVE_MAX}\n"));
    let names: Vec<String> = (0..20).map(|number| format!("a{number}")).collect();
    for name in &names {
        stage.create(name);
        assert!(live_agents(&stage).len() <= LIVE_MAX, "{:?}", live_agents(&stage));
    }
    for round in ["one", "two"] {
        for name in &names {
            assert_eq!(stage.send_text(name, round), format!("echo: {round}"));
            assert!(live_agents(&stage).len() <= LIVE_MAX, "{:?}", live_agents(&stage));
        }
    }
    let held: Vec<PendingCalls> =
        names[..LIVE_MAX].iter().map(|name| stage.start_send(name, "!hold gate", name)).collect();
    stage.model.wait_stalled(LIVE_MAX);
    let busy = stage.daemon.call(&agent_path("a19"), "send", json!({ "content": "hello" }));
    let error = &busy["error"];
    assert_eq!(error["code"], -32001, "all of them work: {busy}");
    assert!(error["data"]["retry_after_ms"].is_u64(), "{busy}");
    assert_eq!(
        stage.daemon.call_result("/", "list_agents", json!({}))["total"],
        20,
        "lists need nobody awake"
    );
    stage.model.release("gate");
    held.iter().for_each(|open| drop(open.next_result()));
    assert_eq!(stage.send_text("a19", "hello"), "echo: hello");
}

/// Everybody who rests makes room at once for somebody else, however many come together, and while others look on.
#[test]
fn nobody_is_refused_while_as_many_rest_as_come() {
    const LIVE_MAX: usize = 4;
    let stage = Fixture::with_config(&format!("[limits]\nlive_agents_max = {LIVE_MAX}\n"));
    let names: Vec<String> = (0..LIVE_MAX * 2).map(|number| format!("a{number}")).collect();
    names.iter().for_each(|name| stage.create(name));
    for round in 0..50 {
        let coming = &names[round % 2 * LIVE_MAX..][..LIVE_MAX];
        let mut calls = PendingCalls::new();
        for name in coming {
            calls.start(
                &stage.daemon,
                &agent_path(name),
                "send",
                send_params(name, &format!("{name}-{round}")),
            );
            calls.start(&stage.daemon, "/", "list_sessions", json!({}));
        }
        coming.iter().for_each(|_| {
            calls.next_result();
            calls.next_result();
        });
    }
    names.iter().for_each(|name| assert_eq!(texts(&stage, name).len(), 50, "{name}"));
}

#[test]
fn a_tree_sleeps_and_wakes_with_its_budgets() {
    let stage = Fixture::with_config("idle_sleep_s = 1\n[limits]\nlive_agents_max = 2\n");
    let lead = json!({ "agent_id": "lead", "preset": "trusted", "budget": { "turns": 10, "children": 4 } });
    stage.create_with(lead);
    stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead", "budget": { "turns": 4 } }));
    for round in 0..3 {
        stage.send("child", &round.to_string());
        wait_until("sleep", || live_agents(&stage).is_empty());
    }
    assert_eq!(stage.resource_usage("child", "turns"), [json!(4), json!(3), json!(0), json!(1)]);
    let before = stage.resource_usage("lead", "turns");
    let stage = stage.kill_and_start();
    assert_eq!(stage.resource_usage("lead", "turns"), before);
    stage.send("child", "last");
    stage.send("child", "too much");
    assert_eq!(stage.agent("child")["halted"], "budget");
    stage.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "child" }));
    let after = stage.resource_usage("lead", "turns");
    // What the child had set aside is given back by a commit of its own; this one comes behind it.
    stage.create("later");
    let stage = stage.kill_and_start();
    assert_eq!(stage.resource_usage("lead", "turns"), after);
    assert_eq!(stage.resource_usage("lead", "children")[1], json!(0));
}
